"""Which partition of its target a replayed message goes to.

Its own number, where the target has it. Of the other partitions of the source, what has a key goes
where its key belongs, and what has none goes, all of a partition, to one and the same. So whatever
a partition of the target gets from one of the source has kept its order.

The number of partitions is the one that the plan noted: a target that grows meanwhile changes
nothing for the rest of the replay.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import Column


def target_partition(partitions: int, has_key: bool) -> Column:
    """As the sink's column `partition`; null: by key. `has_key`: the source has a column for it."""
    from pyspark.sql import functions as F

    number = F.col("partition")
    beyond = number % F.lit(partitions)
    if has_key:
        beyond = F.when(F.col("key").isNull(), beyond)
    return F.when(number < partitions, number).otherwise(beyond).cast("int").alias("partition")
