"""Decoders of `penstock.formats` in Spark: they go to its Python workers, and what they make there
is of Spark's types."""

import io
import json
import struct
from collections.abc import Iterator
from datetime import UTC, datetime

import fastavro
import pyarrow as pa
from pyspark.sql import SparkSession

from penstock.formats import AvroDecoder

SCHEMA = """{"type": "record", "name": "Order", "fields": [
    {"name": "user", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "totals", "type": {"type": "map", "values": "double"}}]}"""


def test_bodies_of_a_column(spark: SparkSession) -> None:
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.pandas.types import from_arrow_type

    moment = datetime(2026, 11, 26, 20, 17, 2, 5000, tzinfo=UTC)
    file = io.BytesIO(struct.pack(">bI", 0, 7))
    file.seek(5)
    order = {"user": "anna", "at": moment, "totals": {"net": 0.5}}
    fastavro.schemaless_writer(file, fastavro.parse_schema(json.loads(SCHEMA)), order)
    decode = AvroDecoder(SCHEMA, {7: SCHEMA}.__getitem__)
    kind = from_arrow_type(decode.type)
    frame = spark.createDataFrame([(1, file.getvalue()), (2, b"{}")], "n int, body binary")

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.set_column(1, "value", decode(batch["body"]))

    by_batches = frame.mapInArrow(rows, f"n int, value {kind.simpleString()}")
    by_column = frame.select("n", arrow_udf(decode, kind)("body").alias("value"))
    for found in (by_batches, by_column):
        one, two = found.orderBy("n").selectExpr("value.*", "unix_millis(value.at) AS ms").collect()
        assert (one.user, one.totals, one.ms) == ("anna", {"net": 0.5}, moment.timestamp() * 1000)
        assert two.user is None
