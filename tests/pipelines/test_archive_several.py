"""The archive of several nsqds into one table, and columns that a table gets later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from e2e.daemon import Daemon
from penstock.errors import ConfigError, DataLost, SchemaMismatch
from penstock.pipelines import archive
from penstock.pipelines.streams import follow
from penstock.spark.brokerapi import name_of

from .node import Node, numbered
from .test_archive import Archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.spark,
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

SECRET = "geheim-4711"


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


def test_a_lost_checkpoint_of_two(spark: SparkSession, nodes: list[Node], tmp_path: Path) -> None:
    """Each goes on behind its own rows, also those from before there was a second one; its
    topic made again is refused. No plan shows what is known of the table's store."""
    one, two = nodes
    both = {"url": f"{one.url},{two.url}", "storage_option": (f"AWS_SECRET_ACCESS_KEY={SECRET}",)}
    made = Archive(spark, one, tmp_path / "lake")
    one.publish("orders", numbered(3))
    made.run()
    one.publish("orders", numbered(2))
    two.publish("orders", numbered(4))
    plans: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(archive, "follow", lambda *given, **more: _watched(plans, *given, **more))
        made.run(**both)
    assert "penstock_delta" in plans[0]
    assert SECRET not in plans[0]
    one.publish("orders", numbered(1))
    lost = {**both, "checkpoint": str(tmp_path / "lost")}
    with pytest.raises(ConfigError, match="run with --recover to go on behind them"):
        made.run(**lost)
    said = made.run(**lost, recover=True)
    for node, offset in ((one, 5), (two, 4)):
        assert f"orders of {name_of(node.url)} goes on at offset {offset}" in said
    assert made.rows('count(*), count(DISTINCT (id, "offset"))') == [(10, 10)]
    two.daemon.post("/topic/delete?topic=orders")
    two.publish("orders", numbered(9))
    with pytest.raises(DataLost, match="deleted and made again"):
        made.run(**{**lost, "checkpoint": str(tmp_path / "again")}, recover=True)


def _watched(plans: list[str], query: Any, *given: Any, **more: Any) -> None:
    follow(query, *given, **more)
    plans.append(query._jsq.explainInternal(True))


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
