"""A Spark driver in a process of its own, to be killed: it copies one topic into another.

It gets ready, and waits for a line on its standard input: so a second one can stand by. A query
that fails is started again, as a supervisor would.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import TYPE_CHECKING

from quickjvm import SESSION  # it is started as a script

from penstock.spark.session import open_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

ATTEMPTS = "local[2,4]"  # a task that lost its Python worker is tried again
SETTINGS = {**SESSION, "spark.sql.streaming.pollingDelay": "50ms"}


def start(spark: SparkSession, url: str, checkpoint: str) -> StreamingQuery:
    frame = (
        spark.readStream.format("penstock")
        .options(url=url, subscribe="orders", startingOffsets="earliest", minPartitions="2")
        .options(maxOffsetsPerTrigger="200", **{"fetchOffset.numRetries": "8"})
        .schema("body binary")
        .load()
    )
    return (
        frame.writeStream.format("penstock")
        .options(url=url, topic="copy", numRetries="8", stageBytes="2000")
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="0 seconds")
        .start()
    )


def end_with_parent() -> None:
    """Nothing runs on, with its JVM, when the test itself was killed."""
    sys.stdin.read()
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main(url: str, checkpoint: str, java: str) -> None:
    settings = {**SETTINGS, "spark.driver.extraJavaOptions": java}
    spark = open_session("penstock kill tests", ATTEMPTS, settings)
    spark.sparkContext.setLogLevel("OFF")
    print("ready", flush=True)
    if not sys.stdin.readline():
        return
    threading.Thread(target=end_with_parent, daemon=True).start()
    while True:
        query = start(spark, url, checkpoint)
        try:
            query.awaitTermination()
        except Exception as error:  # whatever it was: the next one goes on from the checkpoint
            print(f"started again after {error}".partition("\n")[0], flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
