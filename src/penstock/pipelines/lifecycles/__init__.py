"""From the events of the trace to the lives of messages: SQL in DuckDB, and no Spark.

    rows of the trace table -> events -> lives, one for each message and channel -> a table of them

- `engine`: DuckDB, and the tables that it reads.
- `lives`: events become lives, and parts of one life add up; what became of it; the table of them,
  and the reports out of it.
- `keeper`: keeps that table level with the trace table, each event once.

The pipeline `trace` keeps the table and prints the reports; `audit` counts with the same lives.
"""
