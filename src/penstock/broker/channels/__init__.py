"""Channels: consumers, cursors, dead letters, and commands of operators."""
