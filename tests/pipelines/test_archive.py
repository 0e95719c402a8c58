"""The archive over a real nsqd and a real Spark, read back by DuckDB, which knows neither."""

import io
import shutil
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from penstock import limits
from penstock.errors import ConfigError, FetchFailed, SchemaMismatch, TableAway
from penstock.pipelines import archive
from penstock.pipelines.outages import cause_line, outage_of
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import Settings
from penstock.spark.session import ARROW_ROWS
from spark.patience import patiently

from .node import Node, numbered
from .sample import defaults


class Archive:
    def __init__(self, session: SparkSession, node: Node, table: Path) -> None:
        self.session, self.node, self.table = session, node, table

    def settings(self, **changed: Any) -> Settings:
        given = {"url": self.node.url, "table": str(self.table), "once": True, **changed}
        given = {"topics": ("orders",), **given} if "pattern" not in given else given
        found = defaults(archive.SETTINGS, **given)
        archive.check(found)
        return found

    def run(self, **changed: Any) -> str:
        """What it said."""

        def run() -> str:
            output = io.StringIO()
            progress = Progress("archive", 0, output)
            assert archive.run(self.session, self.settings(**changed), progress) == 0
            return output.getvalue()

        return patiently(run)

    def rows(self, what: str = 'topic, "offset"', where: str = "true") -> list[Any]:
        relation = duckdb.from_arrow(DeltaTable(self.table).to_pyarrow_dataset())
        query = f"SELECT {what} FROM archived WHERE {where} ORDER BY ALL"
        return relation.query("archived", query).fetchall()


@pytest.fixture
def made(spark: SparkSession, node: Node, tmp_path: Path) -> Archive:
    return Archive(spark, node, tmp_path / "lake")


def test_json_bodies_are_decoded_and_bad_ones_kept(made: Archive, tmp_path: Path) -> None:
    bodies = [
        b'{"number": 1, "name": "one", "tags": ["a", "b"], "more": 2}',
        b'{"name": null}',
        b'{"number": "many", "name": "x"}',
        b"{",
        b"[1]",
        b"null",
        b"\xff\xfe",
        b'{"number": 1}\n{"number": 2}\n',
        b'{"total": 1e400}',
    ]
    for body in bodies:
        made.node.publish("orders", [body])
    ddl = tmp_path / "orders.ddl"
    ddl.write_text("number INT, name STRING, tags ARRAY<STRING>, total DOUBLE\n")
    made.run(schema=f"@{ddl}")
    assert made.rows('"offset", value.number, value.name, len(value.tags), bad') == [
        (0, 1, "one", 2, None),
        (1, None, None, None, None),
        (2, None, None, None, "does not fit the schema"),
        (3, None, None, None, "not JSON"),
        (4, None, None, None, "not a JSON object"),
        (5, None, None, None, "not a JSON object"),
        (6, None, None, None, "not UTF-8"),
        (7, None, None, None, "not JSON"),  # more than one value: the second would be dropped
        (8, None, None, None, "does not fit the schema"),  # from_json makes it infinite
    ]
    assert [bytes(body) for _, body in made.rows('"offset", body')] == bodies
    with pytest.raises(SchemaMismatch, match="its column value is "):
        made.run(schema="number STRING", name="other")
    with pytest.raises(ConfigError, match="as Spark's DDL has them"):
        made.run(schema="number NOTHING", name="other")


def test_keys_and_headers_come_with_their_messages(spark: SparkSession, made: Archive) -> None:
    wanted = [
        (0, b"both", b"k\x00\xff", {"a": "one", "b": "zw\u00f6lf"}),
        (1, b"a key", b"", None),
        (2, b"headers", None, {"a": ""}),
        (3, b"neither", None, None),
    ]
    rows = spark.createDataFrame(
        wanted, "n int, body binary, key binary, headers map<string,string>"
    )
    sink = rows.coalesce(1).sortWithinPartitions("n").drop("n").write.format("penstock")
    sink.option("url", made.node.url).option("topic", "orders").mode("append").save()
    spark.conf.set(ARROW_ROWS, limits.SPARK_ROWS_MAX)
    made.run(columns=("headers",))
    assert spark.conf.get(ARROW_ROWS) == str(limits.SPARK_ARROW_ROWS)
    found = made.rows('"offset", body, key, headers')
    assert [(*row, headers and dict(headers)) for *row, headers in found] == wanted


def test_a_checkpoint_of_something_else_is_refused(made: Archive, tmp_path: Path) -> None:
    made.node.publish("orders", numbered(3))
    made.node.publish("others", numbered(3))
    checkpoint = str(tmp_path / "checkpoint")
    made.run(checkpoint=checkpoint)
    backup = shutil.copytree(checkpoint, tmp_path / "backup")
    with pytest.raises(ConfigError, match="it is of other topics: orders"):
        made.run(checkpoint=checkpoint, topics=("others",))
    with pytest.raises(ConfigError, match="it is of the table "):
        made.run(checkpoint=checkpoint, table=str(tmp_path / "another"))
    (tmp_path / "foreign" / "offsets").mkdir(parents=True)
    (tmp_path / "foreign" / "offsets" / "0").write_text("v1")
    with pytest.raises(ConfigError, match="it is not an archive's"):
        made.run(checkpoint=str(tmp_path / "foreign"))
    made.run(checkpoint=checkpoint, topics=("orders", "others"))
    assert len(made.rows()) == 6
    with pytest.raises(ConfigError, match="it is older than the table, which has its batch 1: "):
        made.run(checkpoint=str(backup))


def test_a_table_that_is_not_mounted_is_waited_for(made: Archive, tmp_path: Path) -> None:
    """None is made in its place, and nothing is archived there."""
    checkpoint = str(tmp_path / "checkpoint")
    made.node.publish("orders", numbered(3))
    made.run(checkpoint=checkpoint)
    away = made.table.rename(tmp_path / "away")
    made.node.publish("orders", numbered(2, 3))
    with pytest.raises(TableAway, match="is its disk mounted") as met:
        made.run(checkpoint=checkpoint)
    assert outage_of(met.value) == "the table"
    assert not made.table.exists()
    made.table.mkdir()  # where it is mounted
    with pytest.raises(TableAway):
        made.run(checkpoint=checkpoint)
    assert list(made.table.iterdir()) == []
    made.table.rmdir()
    away.rename(made.table)
    made.run(checkpoint=checkpoint)
    assert made.rows('"offset"') == [(n,) for n in range(5)]


def test_topics_that_end_do_not_stop_the_others(made: Archive) -> None:
    """But one that is made again does, unless it is wanted: its offsets count anew."""
    pattern, live = "order\\..*", "order.live%23ephemeral"
    node = made.node
    for name in ("order.a", "order.b"):
        node.publish(name, numbered(3))
    node.daemon.post(f"/topic/create?topic={live}")
    node.daemon.post(f"/pub?topic={live}", b"x")
    made.run(pattern=pattern)
    node.daemon.post("/topic/delete?topic=order.b")
    node.daemon.post(f"/topic/delete?topic={live}")
    node.publish("order.a", numbered(2, 3))
    made.run(pattern=pattern)
    node.daemon.post(f"/topic/create?topic={live}")
    node.daemon.post(f"/pub?topic={live}", b"x")
    made.run(pattern=pattern)
    ephemeral = [("order.live#ephemeral", 0)] * 2
    there = [*(("order.a", n) for n in range(5)), *(("order.b", n) for n in range(3)), *ephemeral]
    assert made.rows() == there
    node.publish("order.b", numbered(1))
    with pytest.raises(Exception, match="deleted and made again") as caught:
        made.run(pattern=pattern)
    assert cause_line(caught.value).startswith("topic order.b partition 0: ")
    assert made.rows() == there
    made.run(pattern=pattern, on_topic_deleted="ignore")
    assert made.rows() == sorted([*there, ("order.b", 0)])


def test_invalid_settings_are_refused_at_once(made: Archive) -> None:
    for changed, output in (
        ({"topics": ()}, "exactly one of the two"),
        ({"topics": ("bad name",)}, "topics: 'bad name' is not valid: a topic: 1 to 64"),
        ({"name": "../other"}, "name: '../other' is not valid: 1 to 64"),
        ({"pattern": "(", "topics": ()}, r"pattern: '\(' is not valid: no regex"),
        ({"columns": ("nope",)}, "one of key, headers"),
        ({"table": "s3://bucket/lake"}, "checkpoint: '' is not valid: it is needed"),
        ({"schema": "@/nowhere"}, "the file can't be read"),
        ({"storage_option": ("AWS_REGION",)}, "as AWS_REGION=eu-west-1"),
    ):
        with pytest.raises(ConfigError, match=output):
            made.settings(**changed)
    made.node.daemon.stop()
    with pytest.raises(FetchFailed, match=r"/log/positions: .*refused"):
        made.settings()
