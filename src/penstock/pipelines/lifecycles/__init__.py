"""From the events of the trace to the lives of messages: SQL in DuckDB, and no Spark.

rows of the trace table -> events -> lives, one for each message and channel -> a table of them
"""
