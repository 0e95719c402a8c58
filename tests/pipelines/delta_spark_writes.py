"""For Spark 4.0 with Delta: `delta_spark_writes.py DIRECTORY JAR` prints what a table has then."""

import json
import sys
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyspark.sql.datasource as datasource
from pyspark.sql import SparkSession

datasource.DataSourceStreamArrowWriter = datasource.DataSourceArrowWriter  # of Spark 4.2

from penstock.errors import ConfigError, DataLost  # noqa: E402
from penstock.pipelines.delta_sink import Target, append, register  # noqa: E402
from penstock.pipelines.runner import _DELTA  # noqa: E402
from penstock.pipelines.topic_logs import known  # noqa: E402
from penstock.spark.delta_table import Shape, TableLocation  # noqa: E402

directory, jar = Path(sys.argv[1]), sys.argv[2]
# The jar is a bundle, which has lost the line that names Delta.
named = directory / "path/META-INF/services/org.apache.spark.sql.sources.DataSourceRegister"
named.parent.mkdir(parents=True)
named.write_text("org.apache.spark.sql.delta.sources.DeltaDataSource\n")
settings = {**_DELTA, "spark.driver.extraClassPath": f"{named.parents[2]}:{jar}"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sql("CREATE SCHEMA lake")

location = TableLocation(str(directory / "it's a table"), {})
schema = pa.schema([("topic", pa.string()), ("date", pa.date32()), ("offset", pa.int64())])
shape = Shape(schema, ("topic", "date"), ("offset",))
location.create(shape, {})
for name in ("lake.orders", "lake.orders", path := f"delta.`{location.root}`"):
    register(spark, name, location)
refusals = []
try:
    register(spark, "lake.orders", TableLocation("/elsewhere", {}))
except ConfigError as error:
    refusals.append(error.rule)
target = Target(location, shape, "orders-1", "log", only_one=True)
try:
    for number, name in (0, "lake.orders"), (0, path), (1, path), (1, path), (0, path), (2, path):
        log = "another" if number == 2 else "one"
        rows = [("orders", date(2026, 1, 2), 5 * number + n, log) for n in range(5)]
        columns = "topic string, date date, offset bigint, log string"
        append(target, name, spark.createDataFrame(rows, columns), number)
except DataLost as error:
    refusals.append(error.reason)
table = location.open()
offsets = table.to_pyarrow_table(columns=["offset"]).column("offset").to_pylist()
version, logs = table.transaction_version("orders-1"), known(location)["orders"].noted
print(json.dumps([refusals, sorted(offsets), version, logs]))
