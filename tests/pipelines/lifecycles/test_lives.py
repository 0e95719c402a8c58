"""The table of lifecycles says what the events say one by one."""

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from penstock.errors import ConfigError, SchemaMismatch
from penstock.pipelines import topic_logs, trace, trace_table
from penstock.pipelines.lifecycles import lives as under_test
from penstock.pipelines.lifecycles.lives import LifeKeeper, LifeTable
from penstock.pipelines.progress import Progress
from penstock.spark.delta_files import write
from penstock.spark.delta_table import TableLocation, commit
from penstock.trace.events import TOPIC, Event, Kind, encode

from ..audit.test_rules import History

Row = dict[str, Any]
S_NS = 1_000_000_000


class Traced:
    """A trace table, as the pipeline writes it: each batch a file and a transaction."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._place = TableLocation(str(path), {})
        self._place.create(trace.SHAPE, {})
        topic_logs.claim(self._place, "test", [TOPIC])
        self._batches = self._bodies = 0

    def add(self, table: pa.Table) -> None:
        staged = write(self._place, trace.SHAPE, table.combine_chunks().to_batches())
        self._batches += 1
        commit(self._place, trace.SHAPE, "test", self._batches, staged)

    def events(self, *events: Event) -> None:
        self.add(
            pa.Table.from_batches(
                [trace_table.events([trace_table.decode(encode(events), 0, self._bodies)])]
            )
        )
        self._bodies += 1


def rows(path: Path) -> list[Row]:
    found = DeltaTable(path).to_pyarrow_table().to_pylist()
    return sorted(found, key=lambda row: tuple(str(row[name]) for name in KEY))


KEY = ("topic", "partition", "offset", "message_id", "channel")


def event(kind: Kind, at_s: float, offset: int, channel: str | None = None) -> Event:
    id = (offset + 1) << 22
    time_ns = 1_790_000_000 * S_NS + int(at_s * S_NS)
    return Event(kind, time_ns, "orders", channel, 0, offset, id, int(channel is not None))


@pytest.mark.parametrize("seed", range(25))
def test_every_event_is_in_the_lifecycles(seed: int, tmp_path: Path) -> None:
    history = History(seed)
    traced = Traced(tmp_path / "trace")
    half = max(history.table["trace_offset"].to_pylist()) // 2
    lives = LifeTable(str(traced.path), str(tmp_path / "lives"))
    for part in (pc.field("trace_offset") <= half, pc.field("trace_offset") > half):
        traced.add(history.table.filter(part))
        lives.update()
    assert lives.update() == 0
    expected(history, rows(tmp_path / "lives"))


def expected(history: History, found: list[Row]) -> None:
    """The same fates as event by event, for all that have an event in a channel."""
    oracle = history.oracle(history.rules())
    keys = [tuple(row[name] for name in KEY) for row in found]
    assert len(keys) == len(set(keys))
    by_key = dict(zip(keys, found, strict=True))
    for channel in oracle.channels:
        for (partition, offset, id), life in oracle.lives(channel).items():
            row = by_key.get(("orders", partition, offset, f"{id:016x}", channel))
            if life.steps:
                assert row is not None
            if row is not None:
                assert row["fate"] == life.fate
                assert row["sends"] == len(life.of(Kind.SENT))
                assert (row["published"] is None) == (life.published is None)


def test_late_events_find_their_rows(tmp_path: Path) -> None:
    traced, path = Traced(tmp_path / "trace"), tmp_path / "lives"
    lives = LifeTable(str(traced.path), str(path))
    for offset in range(1, 5):
        traced.events(event(Kind.PUBLISHED, offset, offset))
        traced.events(event(Kind.SENT, offset + 0.5, offset, "mail"))
    assert lives.update() == 4
    traced.events(event(Kind.REQUEUED, 50, 3, "mail"), event(Kind.SENT, 60, 3, "mail"))
    traced.events(event(Kind.FINISHED, 90_000, 3, "mail"))
    assert lives.update() == 4
    (row,) = [row for row in rows(path) if row["offset"] == 3]
    assert (row["fate"], row["sends"], row["given_back"]) == ("finished", 2, 1)
    assert (row["finished"] - row["published"]).total_seconds() == 89_997
    assert {row["fate"] for row in rows(path) if row["offset"] != 3} == {"out"}


def test_messages_without_a_channel_and_late_channels(tmp_path: Path) -> None:
    traced, path = Traced(tmp_path / "trace"), tmp_path / "lives"
    lives = LifeTable(str(traced.path), str(path))
    traced.events(event(Kind.PUBLISHED, 0, 0), event(Kind.PUBLISHED, 1, 1))
    lives.update()
    assert [(row["channel"], row["fate"]) for row in rows(path)] == [(None, "unsent")] * 2
    traced.events(event(Kind.SENT, 2, 1, "mail"), event(Kind.PUBLISHED, 3, 2))
    traced.events(event(Kind.SENT, 4, 1, "late"))
    lives.update()
    found = [(row["offset"], row["channel"], row["fate"]) for row in rows(path)]
    assert found == [
        (0, None, "unsent"), (1, "late", "out"), (1, "mail", "out"), (2, "mail", "unsent"),
    ]  # fmt: skip


def test_what_was_emptied_has_ended(tmp_path: Path) -> None:
    """Ranges that overlap, in any order, and one of another channel."""
    traced, path = Traced(tmp_path / "trace"), tmp_path / "lives"
    traced.events(*(event(Kind.SENT, n, n, "mail") for n in range(40)))
    for channel, first, count in (("mail", 20, 15), ("mail", 5, 15), ("mail", 6, 2), ("b", 0, 40)):
        emptied = event(Kind.EMPTIED, 50, first, channel)
        traced.events(emptied._replace(message_id=0, count=count))
    traced.events(event(Kind.FINISHED, 60, 7, "mail"))
    LifeTable(str(traced.path), str(path)).update()
    fates = {row["offset"]: row["fate"] for row in rows(path)}
    ended = [offset for offset, fate in fates.items() if fate == "ended"]
    assert sorted(ended) == [n for n in range(5, 35) if n != 7]
    assert fates[7] == "finished"


def test_only_one_of_two_brings_the_same_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another update commits while this one is about to."""
    traced, path = Traced(tmp_path / "trace"), tmp_path / "lives"
    traced.events(event(Kind.SENT, 1, 0, "mail"), event(Kind.SENT, 2, 0, "mail"))
    slow, quick = (LifeTable(str(traced.path), str(path)) for _ in range(2))

    def overtaken(*given: Any, **named: Any) -> None:
        monkeypatch.setattr(under_test, "write_deltalake", write_deltalake)
        assert quick.update() == 1
        write_deltalake(*given, **named)

    monkeypatch.setattr(under_test, "write_deltalake", overtaken)
    assert slow.update() == 0
    (row,) = rows(path)
    assert row["sends"] == 2


def test_another_table_is_refused_as_it_is(tmp_path: Path) -> None:
    Traced(tmp_path / "one").events(event(Kind.SENT, 1, 0, "mail"))
    other = Traced(tmp_path / "two")
    other.events(event(Kind.SENT, 1, 0, "mail"))
    with pytest.raises(SchemaMismatch):
        LifeTable(str(tmp_path / "one"), str(other.path)).update()
    assert DeltaTable(other.path).version() == 2


def test_the_table_of_another_trace_is_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        Traced(tmp_path / name).events(event(Kind.SENT, 1, 0, "mail"))
    LifeTable(str(tmp_path / "one"), str(tmp_path / "lives")).update()
    with pytest.raises(ConfigError, match="of another trace table"):
        LifeTable(str(tmp_path / "two"), str(tmp_path / "lives")).update()


def test_trouble_beside_the_query_is_told_and_at_the_end_an_error(tmp_path: Path) -> None:
    output = io.StringIO()
    table = LifeTable(str(tmp_path / "none"), str(tmp_path / "lives"))
    keeper = LifeKeeper(table, 0, Progress("trace", stream=output))
    with pytest.raises(Exception, match="no Delta table"), keeper:
        keeper.after_batches(1)
    assert "not brought up to date" in output.getvalue()
