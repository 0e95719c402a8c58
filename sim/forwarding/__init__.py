"""A world for publishes that are handed on, and whose answers get lost."""
