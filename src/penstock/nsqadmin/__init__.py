"""nsqadmin: where an operator sees and steers everything.

A drop-in for the official one (its flags, URLs and `/api`), and much more beside it. Nothing but
this package depends on it: nsqds and nsqlookupds are reached over their public HTTP APIs only.
"""
