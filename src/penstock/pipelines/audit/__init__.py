r"""The pipeline `audit`: was every message of a topic delivered, once, in order?

    trace table --passes--> lives of messages --rules--> lost, stuck, doubled
                      \--> first deliveries and the log --order--> out of order, gaps
        findings: all of it together --> report --> terminal, JSON, page

- `program`: the settings, the tables that are read, where the report goes, the exit code.
- `passes`: the two passes over the events on Spark, the only module with something to shuffle.
- `rules`: what lost, stuck and doubled mean, for the lives of one topic (`penstock.pipelines.
  lifecycles`). `tracing` says when a silence means something, `marks` how far a channel has come.
- `order`: rows that have places, compared with the row before.
- `findings`: what the passes bring back, put together; examples, and what nsqd says (`asking`).
- `report`: the result as values, as words and as JSON; `html` and `charts` make the page.
"""
