"""Replays over a real nsqd and a real Spark: what comes, in which order, and how often."""

import datetime as dt
import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession

from cases import each
from penstock.errors import ConfigError
from penstock.pipelines import replay, topic_logs
from penstock.pipelines.audit import program as audit
from penstock.pipelines.outages import cause_line
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import Settings
from penstock.spark.delta_table import TableLocation

from .node import Node, in_the_log, numbered
from .sample import defaults

COLUMNS = pa.schema(
    [("body", pa.binary()), ("timestamp", pa.timestamp("us", "UTC")), ("key", pa.binary())]
)
BEGAN = dt.datetime(2026, 11, 20, 23, 59, 50, tzinfo=dt.UTC)


def archived(path: Path, topic: str, count: int, first: int = 0) -> None:
    """A message a second, archived in an order of its own, with a key."""
    offsets = list(range(first, first + count))[::-1]
    times = [BEGAN + dt.timedelta(seconds=offset) for offset in offsets]
    table = pa.table(
        {
            "topic": [topic] * count,
            "date": pa.array([time.date() for time in times]),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
            "timestamp": pa.array(times, pa.timestamp("us", tz="UTC")),
            "id": [f"{offset:016x}" for offset in offsets],
            "attempts": pa.array([0] * count, pa.int16()),
            "body": pa.array([f"{topic} {offset}".encode() for offset in offsets]),
            "key": pa.array([b"k%d" % offset for offset in offsets]),
        }
    )
    write_deltalake(str(path), table, mode="append", partition_by=["topic", "date"])


class Replay:
    def __init__(self, session: SparkSession, node: Node, tmp_path: Path) -> None:
        self.session, self.node, self.plans = session, node, tmp_path / "plans"

    def settings(self, **changed: Any) -> Settings:
        given = {"url": self.node.url, "to": "again", "name": "one", "plans": str(self.plans)}
        found = defaults(replay.SETTINGS, **{**given, **changed})
        replay.check(found)
        return found

    def run(self, stop_after: int = 1 << 30, **changed: Any) -> str:
        """What it said."""
        output = io.StringIO()
        progress = Stopping(output, stop_after)
        assert replay.run(self.session, self.settings(**changed), progress) == 0
        self.state = progress.state
        return output.getvalue()

    def rows(self, topic: str = "again") -> list[dict[str, Any]]:
        return in_the_log(self.node, topic, COLUMNS).to_pylist()

    def bodies(self) -> list[str]:
        return [row["body"].decode() for row in self.rows()]


class Stopping(Progress):
    """Somebody asks for an end after so many reports."""

    def __init__(self, stream: io.StringIO, reports: int) -> None:
        super().__init__("replay", 0, stream)
        self._left = reports

    def report(self, report: Any, final: bool = False) -> None:
        super().report(report, final)
        self._left -= 1
        if self._left == 0:
            self.ask_to_stop()


@pytest.fixture
def replays(spark: SparkSession, node: Node, tmp_path: Path) -> Replay:
    return Replay(spark, node, tmp_path)


def test_a_table_comes_back_in_order_and_once(replays: Replay, tmp_path: Path) -> None:
    """Stopped in its middle, started again, and again when all is done; the table has grown."""
    table = str(tmp_path / "archive")
    archived(tmp_path / "archive", "orders", 25)
    archived(tmp_path / "archive", "bills", 5)
    output = replays.run(stop_after=1, table=table, chunk=10)
    assert "the same name goes on" in output
    assert len(replays.bodies()) == 5
    assert (replays.state.table, replays.state.batch) == (table, 0)
    assert Path(replays.state.checkpoint).is_file()
    archived(tmp_path / "archive", "orders", 10, first=25)
    assert "5 of 30 messages were replayed before" in replays.run(table=table, chunk=10)
    assert "30 of 30" in replays.run(table=table, chunk=10)
    wanted = [f"bills {n}" for n in range(5)] + [f"orders {n}" for n in range(25)]
    assert sorted(replays.bodies()) == sorted(wanted)
    for topic in ("bills", "orders"):
        assert [b for b in replays.bodies() if b.startswith(topic)] == [
            body for body in wanted if body.startswith(topic)
        ]
    last = replays.rows()[-1]
    number = int(last["body"].split()[1])
    assert last["key"] == b"k%d" % number
    assert last["timestamp"] == BEGAN + dt.timedelta(seconds=number)


def test_ways_to_select_messages(replays: Replay, tmp_path: Path) -> None:
    archived(tmp_path / "archive", "orders", 30)
    common = {"table": str(tmp_path / "archive"), "topics": ("orders",)}
    wishes: dict[str, dict[str, Any]] = {
        "time": {"since": "2026-11-20T23:59:55Z", "until": "2026-11-21T00:00:02"},
        "offset": {"from_offset": 5, "to_offset": 12},
        "id": {"ids": tuple(f"{n:016X}" for n in range(5, 12))},
        "sql": {"where": "int(split(string(body), ' ')[1]) BETWEEN 5 AND 11"},
    }
    for name, wish in wishes.items():
        replays.run(name=name, to=name, **common, **wish)
        found = [row["body"].decode() for row in replays.rows(name)]
        assert found == [f"orders {n}" for n in range(5, 12)], name


def test_messages_that_nsqd_refuses_go_into_a_table(replays: Replay, tmp_path: Path) -> None:
    archived(tmp_path / "archive", "orders", 12)
    rows = pa.table(DeltaTable(str(tmp_path / "archive")).to_pyarrow_table()).sort_by("offset")
    bodies = [b"" if n in (3, 7) else b"%d" % n for n in range(12)]
    rows = rows.set_column(rows.schema.get_field_index("body"), "body", pa.array(bodies))
    lake = {"table": str(tmp_path / "lake"), "chunk": 5, "topics": ("orders",)}
    write_deltalake(lake["table"], rows, partition_by=["topic", "date"])
    with pytest.raises(Exception, match="the body is empty"):
        replays.run(**lake)
    output = replays.run(**lake, rejected_table=str(tmp_path / "rejected"))
    assert f"2 of 12 messages were refused, they are in {tmp_path / 'rejected'}" in output
    assert replays.bodies() == [str(n) for n in range(12) if n not in (3, 7)]
    table = pa.table(DeltaTable(str(tmp_path / "rejected")).to_pyarrow_table())
    found = sorted((r["app"], r["topic"], r["key"], r["reason"]) for r in table.to_pylist())
    reason = "the body is empty, and NSQ has no empty messages"
    assert found == [("replay-one", "again", b"k%d" % n, reason) for n in (3, 7)]


def test_a_topic_is_replayed_from_its_own_log(replays: Replay) -> None:
    bodies = numbered(1200)
    replays.node.publish("orders", bodies)
    before = dt.datetime.now(dt.UTC)
    output = replays.run(topics=("orders",), to="orders", timestamps="new", rate=100_000, chunk=500)
    assert "orders has all 1,200 messages" in output
    rows = replays.rows("orders")
    assert [row["body"] for row in rows] == bodies * 2
    assert rows[1199]["timestamp"] <= before <= rows[1200]["timestamp"]
    assert "1,200 of 1,200" in replays.run(
        topics=("orders",), to="orders", timestamps="new", rate=100_000, chunk=500
    )
    assert len(replays.rows("orders")) == 2400


def test_a_dry_run_counts_and_writes_nothing(replays: Replay, tmp_path: Path) -> None:
    archived(tmp_path / "archive", "orders", 30)
    output = replays.run(table=str(tmp_path / "archive"), dry_run=True, name="")
    lines = [line.split()[1:] for line in output.splitlines() if "2026-11" in line]
    assert [line[:6] for line in lines] == [
        ["orders", "0", "2026-11-20", "10", "80", "0"],
        ["orders", "0", "2026-11-21", "20", "180", "10"],
    ]
    assert lines[0][6:] == ["9", "2026-11-20T23:59:50Z", "2026-11-20T23:59:59Z"]
    assert "30 messages, 260B, would go to again" in output
    assert replays.node.end("again") == 0
    assert not replays.plans.exists()


def test_a_replay_with_other_settings_is_refused(replays: Replay, tmp_path: Path) -> None:
    replays.node.publish("orders", numbered(10))
    replays.run(topics=("orders",))
    with pytest.raises(ConfigError, match="other settings: where was ''"):
        replays.run(topics=("orders",), where="offset > 3")
    with pytest.raises(ConfigError, match="its plan is not in"):
        replays.run(topics=("orders",), plans=str(tmp_path / "elsewhere"))
    replays.node.daemon.post("/topic/delete?topic=orders")
    replays.node.publish("orders", numbered(10))
    with pytest.raises(ConfigError, match="topic orders was deleted and made again"):
        replays.run(topics=("orders",))
    with pytest.raises(Exception, match="nothing") as caught:
        replays.run(topics=("orders",), name="two", where="nothing = 1")
    assert "\n" not in cause_line(caught.value)
    assert len(replays.rows()) == 10


@each(
    ("changed", "rule"),
    [
        ({"to": "a b"}, "a topic: 1 to 64"),
        ({"name": ""}, "under it the replay can go on"),
        ({"name": "../x"}, "1 to 64"),
        ({"topics": ()}, "needed without a table"),
        ({"topics": ("a", "b"), "from_offset": 1}, "of one topic"),
        ({"ids": ("12",)}, "16 hexadecimal"),
        ({"since": "yesterday"}, "no time, as 2026"),
        ({"table": "/nothing/there"}, "no Delta table"),
    ],
)
def test_wrong_settings_are_named(changed: dict[str, Any], rule: str) -> None:
    given = {"to": "again", "name": "one", "topics": ("orders",), **changed}
    with pytest.raises(Exception, match=rule):
        replay.check(defaults(replay.SETTINGS, **given))


def test_only_of_one_nsqd_of_several(spark: SparkSession, node: Node, tmp_path: Path) -> None:
    path = tmp_path / "several"
    archived(path, "orders", 5)
    table = pa.table(DeltaTable(str(path)).to_pyarrow_table())
    for name in ("a:4151", "b:4151"):
        named = table.append_column("broker", pa.array([name] * 5))
        write_deltalake(
            str(tmp_path / "lake"), named, mode="append", partition_by=["topic", "date"]
        )
    made = Replay(spark, node, tmp_path)
    made.run(table=str(tmp_path / "lake"), broker="b:4151")
    assert [row["body"] for row in made.rows()] == [b"orders %d" % n for n in range(5)]
    with pytest.raises(ConfigError, match="has no column broker"):
        made.settings(table=str(path), broker="b:4151")
    given = {"topic": "orders", "archive": str(tmp_path / "lake")}
    several = defaults(audit.SETTINGS, **given)
    for dry_run in (True, False):
        with pytest.raises(ConfigError, match=r"orders of several .* a:4151, b:4151 \(--broker\)"):
            made.run(table=str(tmp_path / "lake"), name="all", dry_run=dry_run)
    with pytest.raises(ConfigError, match="name one of a:4151, b:4151"):
        audit.run(spark, several, Progress("audit", stream=io.StringIO()))
    one = defaults(audit.SETTINGS, broker="a:4151", **given)
    assert audit.run(spark, one, Progress("audit", stream=io.StringIO())) == 0


def test_a_table_of_several_is_replayed_where_no_topic_is_of_two(
    replays: Replay, tmp_path: Path
) -> None:
    """Also when its older rows name no nsqd, and those behind them do."""
    rows = []
    for path, topic, broker, first in (
        ("1", "orders", None, 0),
        ("2", "orders", "a:4151", 5),
        ("3", "bills", "b:4151", 0),
        ("4", "orders", "b:4151", 4),
        ("5", "orders", "b:4151", 10),
    ):
        archived(tmp_path / path, topic, 5, first)
        table = pa.table(DeltaTable(str(tmp_path / path)).to_pyarrow_table())
        rows.append(table.append_column("broker", pa.array([broker] * 5, pa.string())))
    lake = {"table": str(tmp_path / "lake")}
    for table in rows[:3]:
        write_deltalake(lake["table"], table, mode="append", partition_by=["topic", "date"])
    assert "15 of 15" in replays.run(**lake)
    wanted = [f"bills {n}" for n in range(5)] + [f"orders {n}" for n in range(10)]
    assert replays.bodies() == wanted
    (tmp_path / "other").mkdir()
    lake = {"table": str(tmp_path / "other"), "name": "two"}
    for table in (rows[0], rows[3]):
        write_deltalake(lake["table"], table, mode="append", partition_by=["topic", "date"])
    with pytest.raises(ConfigError, match="older ones are of an nsqd without a name"):
        replays.run(**lake)
    assert "5 of 5" in replays.run(**lake, where="broker IS NULL")
    (tmp_path / "nodes").mkdir()
    lake = {"table": str(tmp_path / "nodes"), "name": "three"}
    for table in (rows[1], rows[4]):
        write_deltalake(lake["table"], table, mode="append", partition_by=["topic", "date"])
    nodes = [("orders", "one@a:4151"), ("orders", "one@b:4151")]  # of a cluster: the log is one
    topic_logs.note(TableLocation(lake["table"], {}), "archive", nodes, {})
    assert "10 of 10" in replays.run(**lake)
