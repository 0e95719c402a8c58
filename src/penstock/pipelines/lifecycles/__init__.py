"""From the events of the trace to the lifecycles of messages: SQL in DuckDB, without Spark.

rows of the trace table -> events -> lives, one for each message and channel -> a table of them
"""
