"""Penstock: a durable message platform that any NSQ client can use unchanged."""

__version__ = "0.1.0"
