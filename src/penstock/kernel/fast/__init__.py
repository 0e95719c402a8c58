"""The kernel compiled: C speed, nothing made per message. Its twin `pure/` says the same in Python."""
