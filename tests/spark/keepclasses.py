"""`keepclasses.py ARCHIVE`: what a Spark driver loads for a batch and a stream, kept for others
(`quickjvm`). Java writes the archive at its own end; only then it gets its name."""

import sys
import tempfile
from pathlib import Path

from pyspark import SparkContext
from quickjvm import SESSION  # it is started as a script

from penstock.spark.session import open_session


def main(classes: Path) -> None:
    unfinished = classes.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    java = f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ArchiveClassesAtExit={unfinished}"
    settings = {**SESSION, "spark.driver.extraJavaOptions": java}
    spark = open_session("penstock tests: classes", "local[1]", settings)
    spark.range(10).mapInArrow(lambda batches: batches, "id bigint").groupBy("id").count().collect()
    with tempfile.TemporaryDirectory() as checkpoint:
        rows = spark.readStream.format("rate").load().writeStream.format("noop")
        rows.option("checkpointLocation", checkpoint).trigger(once=True).start().awaitTermination()
    gateway = SparkContext._gateway
    spark.stop()
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()  # this is how Java hears that it may go
        if gateway.proc.wait() == 0:
            unfinished.rename(classes)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
