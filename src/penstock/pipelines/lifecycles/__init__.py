"""From the events of the trace to the lives of messages: numpy all the way, and no Spark.

    rows of the trace table -> events -> lives, one for each message and channel -> a table of them

- `events`: rows become records of numbers. `ranges`: what happened to many messages at once.
- `lives`: events become lives, and parts of one life add up. `fates`: what became of it.
- `table`: lives as rows of a Delta table, and back again.
- `keeper`: keeps that table level with the trace table, each event once.
- `latencies`: the reports out of the table, in SQL.

The pipeline `trace` keeps the table and prints the reports; `audit` counts with the same lives.
"""
