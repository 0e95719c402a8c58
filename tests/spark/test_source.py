"""The data source in a real Spark session, over a broker that tells what the test wants."""

import pytest
from pyspark.sql import SparkSession

from penstock.kernel import Section

from .fakebroker import FakeBroker
from .queries import batch


def test_a_schema_chooses_the_columns(spark: SparkSession, broker: FakeBroker) -> None:
    sections = {Section.KEY: {1: b"k"}, Section.HEADERS: {1: b'{"a":"x","n":2}'}}
    broker.topic("orders").publish([b"a", b"b"], sections=sections)
    values = {"a": "x", "n": "2"}
    frame = batch(spark, broker, "headers map<string,string>, offset bigint, key binary")
    rows = frame.orderBy("offset").collect()
    assert [tuple(row) for row in rows] == [(None, 0, None), (values, 1, bytearray(b"k"))]
    assert batch(spark, broker).columns[-2:] == ["body", "key"]
    asked = batch(spark, broker, includeHeaders="true")
    assert asked.columns[-2:] == ["key", "headers"]
    assert asked.where("headers['a'] = 'x' AND key = 'k'").count() == 1


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "empty"},
        {"subscribe": "", "subscribePattern": "nothing.*"},
        {"startingOffsets": '{"orders":{"0":4}}', "endingOffsets": '{"orders":{"0":4}}'},
        {"startingOffsets": '{"orders":{"0":4}}', "endingOffsets": '{"orders":{"0":2}}'},
        {"startingTimestamp": "1800000000000"},
        {"endingTimestamp": "0"},
    ],
)
def test_a_range_of_nothing_is_an_empty_table(
    spark: SparkSession, broker: FakeBroker, given: dict[str, str]
) -> None:
    broker.topic("empty")
    broker.topic("orders").publish([b"x"] * 5, 1_700_000_000_000_000_000)
    frame = batch(spark, broker, **given)
    assert frame.count() == 0
    assert frame.select("topic", "body").collect() == []
