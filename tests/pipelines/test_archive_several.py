"""The archive of several nsqds into one table, and columns that a table gets later."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from e2e.daemon import Daemon
from penstock.errors import SchemaMismatch
from penstock.spark.brokerapi import name_of

from .node import Node, numbered, skewed
from .test_archive import Archive

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[Node]]:
    with ExitStack() as stack:
        yield [Node(stack.enter_context(Daemon(tmp_path / name))) for name in ("a", "b")]


def test_an_archive_of_one_goes_on_with_two(
    spark: SparkSession, nodes: list[Node], tmp_path: Path
) -> None:
    one, two = nodes
    made = Archive(spark, one, tmp_path / "lake")
    one.publish("orders", numbered(3))
    made.run()
    assert made.rows('"offset"') == [(0,), (1,), (2,)]
    one.publish("orders", numbered(2))
    two.publish("orders", numbered(4))
    both = f"{one.url},{two.url}"
    for _ in range(2):
        made.run(url=both)
        counted = "coalesce(broker, ''), count(*), max(\"offset\")"
        assert made.rows(counted, "true GROUP BY broker") == sorted(
            [("", 3, 2), (name_of(one.url), 2, 4), (name_of(two.url), 4, 3)]
        )
    two.publish("orders", numbered(1))
    with pytest.raises(Exception, match="goneBrokers"):
        made.run()
    made.run(gone_brokers=(name_of(two.url),))
    made.run(url=both)
    assert made.rows("count(*)") == [(10,)]


def test_a_table_gets_columns_when_asked(
    spark: SparkSession, nodes: list[Node], tmp_path: Path
) -> None:
    made = Archive(spark, nodes[0], tmp_path / "lake")
    nodes[0].publish("orders", numbered(2))
    made.run()
    nodes[0].publish("orders", [b'{"number": 7}'])
    more = {"columns": ("headers",), "schema": "number INT"}
    with pytest.raises(SchemaMismatch, match="no column headers"):
        made.run(**more)
    made.run(add_columns=True, **more)
    assert made.rows('"offset", headers, value.number') == [
        (0, None, None),
        (1, None, None),
        (2, None, 7),
    ]
    nodes[0].publish("orders", [b'{"number": 8, "name": "x", "at": {"x": 1, "y": 2}}'])
    more["schema"] = "at STRUCT<y INT, x INT>, name STRING, number INT"
    with pytest.raises(SchemaMismatch, match="its column value is"):
        made.run(**more)
    made.run(add_columns=True, **more)
    made.run(**{**more, "schema": "name STRING, number INT, at STRUCT<x INT, y INT>"})
    found = made.rows('"offset", value.number, value.name, value.at.x', '"offset" > 1')
    assert found == [(2, 7, None, None), (3, 8, "x", 1)]


# --- a topic of four partitions, one of which has nine tenths of it ---


ROW = 'partition, "offset", body::VARCHAR::INT'


def expected(*parts: dict[int, list[bytes]]) -> list[tuple[int, int, int]]:
    """Each partition counts for itself."""
    whole = {number: [b for part in parts for b in part.get(number, [])] for number in range(4)}
    return [(n, at, int(b)) for n, bodies in whole.items() for at, b in enumerate(bodies)]


def test_every_message_of_every_partition_once(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    """In many batches, by runs that each go on; and behind the table when the checkpoint is
    lost."""
    node.daemon.post("/topic/create?topic=orders&partition_num=4")
    made = Archive(spark, node, tmp_path / "lake")
    first, second, third = skewed(1000), skewed(500, 1000), skewed(200, 1500)
    node.publish_to("orders", first)
    output = made.run(max_offsets_per_trigger=300)
    assert "archive: 1,000 rows" in output
    assert "up to date" in output
    assert made.rows(ROW) == expected(first)
    node.publish_to("orders", second)
    made.run(max_offsets_per_trigger=300)
    assert made.rows(ROW) == expected(first, second)
    node.publish_to("orders", third)
    output = made.run(checkpoint=str(tmp_path / "lost"), recover=True)
    for number, at in ((1, 1350), (3, 90)):
        assert f"recovering: partition {number} of orders goes on at offset {at}" in output
    made.run(checkpoint=str(tmp_path / "lost"))  # the checkpoint counts again
    assert made.rows(ROW) == expected(first, second, third)
