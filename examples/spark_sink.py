"""Count words of one topic, and write the counts into another: exactly once, with a checkpoint.

penstock pub lines "to be or not to be"
python examples/spark_sink.py
penstock topic peek words

Start it again with the same directory: it goes on where it was, also after a crash. It takes other
names, too: http://127.0.0.1:4151 lines words words-checkpoint
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(
    url: str = "http://127.0.0.1:4151",
    lines: str = "lines",
    words: str = "words",
    directory: str = "words-checkpoint",
) -> None:
    spark = open_session("words")
    spark.conf.set("spark.sql.shuffle.partitions", "4")  # its default of 200 is for clusters
    frame = (
        spark.readStream.format("penstock")
        .option("url", url)
        .option("subscribe", lines)
        .option("startingOffsets", "earliest")
        .load()
    )

    def write(changed: DataFrame, batch_id: int) -> None:
        """The counts that a batch has changed. Its number makes a repeat harmless; the query's id
        is in the checkpoint, so another checkpoint begins anew."""
        query_id = spark.sparkContext.getLocalProperty("sql.streaming.queryId")
        (
            changed.selectExpr("word AS key", "to_json(struct(*)) AS body")
            .write.format("penstock")
            .option("url", url)
            .option("topic", words)
            .option("txnAppId", query_id)
            .option("txnVersion", str(batch_id))
            .mode("append")
            .save()
        )

    query = (
        frame.selectExpr("explode(split(string(body), ' ')) AS word")
        .groupBy("word")
        .count()
        .writeStream.foreachBatch(write)
        .outputMode("update")
        .option("checkpointLocation", directory)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
