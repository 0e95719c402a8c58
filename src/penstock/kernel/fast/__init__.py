"""The kernel compiled: C speed, no object per message. `pure/` says the same in Python."""
