"""Count words of one topic, and write the counts into another: exactly once, with a checkpoint.

python examples/spark_sink.py http://127.0.0.1:4151 lines words /tmp/words

Start it again with the same directory: it goes on where it was, also after a crash.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def main(url: str, lines: str, words: str, directory: str) -> None:
    spark = open_session("words")
    frame = (
        spark.readStream.format("penstock")
        .option("url", url)
        .option("subscribe", lines)
        .option("startingOffsets", "earliest")
        .load()
    )

    def write(changed: DataFrame, batch_id: int) -> None:
        """The counts that a batch has changed. Its number makes a repeat harmless."""
        (
            changed.selectExpr("word AS key", "to_json(struct(*)) AS body")
            .write.format("penstock")
            .option("url", url)
            .option("topic", words)
            .option("txnAppId", f"words of {directory}")
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
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
