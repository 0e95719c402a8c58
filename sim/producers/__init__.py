"""A world for idempotent producers: their tables on several nodes, with retries and failovers."""
