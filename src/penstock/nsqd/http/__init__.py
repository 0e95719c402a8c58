"""nsqd's HTTP API: `routes.py` has the table, the other modules serve its rows by subject."""
