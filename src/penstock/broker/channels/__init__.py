"""Channels: consumers, cursors, dead letters, and what an operator does to them."""
