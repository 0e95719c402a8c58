r"""The pipeline `audit`: was every message of a topic delivered, once, in order?

    trace table --gather--> lives of messages --judge--> lost, stuck, doubled, out of order
    traced publishes, archive, log --log_order--> gaps, offsets and ids that stand twice
        findings: all of it together --> report --> terminal, JSON, page

- `program`: the settings, the tables that are read, where the report goes, the exit code.
- `rules`: what is lost, stuck and doubled, as SQL over the lives of one topic (`penstock.pipelines.
  lifecycles`). `sampling` says when a silence means something.
- `log_order`: rows that have places, compared with the row before; for DuckDB and for Spark.
- `findings`: what the queries bring back, put together; what nsqd says (`channel_state`).
- `report`: the result as values and as JSON; `formats` and `charts` make words and a page of it.
"""
