"""A life in the trace table: asked for by the days that count, and made one with the log's part."""

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from penstock.errors import QueryRefused, TableUnreadable
from penstock.ids.guid import make, parse, tick_of
from penstock.nsqadmin.console import Question, answer
from penstock.nsqadmin.messages import InputInvalid
from penstock.nsqadmin.traces import MessagePosition, Wanted, event_of, merged, statement, wanted
from penstock.pipelines.trace_table import SCHEMA
from penstock.trace.events import Event, Kind

DAY_US = 86_400_000_000
T0_US = 1_790_000_000_000_000 // DAY_US * DAY_US + 12 * 3_600_000_000  # noon of some day
ID = make(tick_of(T0_US * 1000), 1, 0)
LARGE = (1 << 64) - 5  # a trace id beyond what Spark's numbers hold


def event(kind: Kind, after_us: int = 0, **more: object) -> Event:
    values = {
        "kind": kind, "time_ns": (T0_US + after_us) * 1000, "topic": "orders", "channel": None,
        "partition": 0, "offset": 7, "message_id": ID, "trace_id": LARGE,
    } | more  # fmt: skip
    return Event(**values)  # type: ignore[arg-type]


PUBLISHED = event(Kind.PUBLISHED, client="web")
SENT = event(Kind.SENT, 500, channel="mail", attempts=1, client="till")
EMPTIED = event(Kind.EMPTIED, DAY_US, channel="mail", message_id=0, trace_id=0, offset=0, count=10)
OTHER = event(Kind.EMPTIED, DAY_US, channel="mail", message_id=0, trace_id=0, offset=8, count=10)
SWITCHED = event(Kind.SWITCHED, DAY_US, message_id=0, trace_id=0, offset=7)


def write(path: Path, events: list[Event]) -> Path:
    def row(number: int, one: Event) -> dict[str, object]:
        at = datetime.fromtimestamp(one.time_ns / 1e9, UTC)
        signed = one.trace_id - (1 << 64) if one.trace_id >> 63 else one.trace_id
        return {
            "date": at.date(), "event": one.kind.label, "time": at, "topic": one.topic,
            "channel": one.channel, "partition": one.partition, "offset": one.offset,
            "messages": one.count, "client": one.client, "attempts": one.attempts,
            "message_id": f"{one.message_id:016x}" if one.message_id else None,
            "trace_id": signed or None, "trace_partition": 0, "trace_offset": number,
            "trace_index": 0,
        }  # fmt: skip

    rows = pa.Table.from_pylist([row(*one) for one in enumerate(events)], schema=SCHEMA)
    write_deltalake(path, rows, partition_by=["date"], mode="append")
    return path


def asked(
    ask: Wanted, *paths: Path, positions: set[MessagePosition] = set()  # noqa: B006
) -> list[Event]:  # fmt: skip
    tables = {f"trace_{number}": str(path) for number, path in enumerate(paths)}
    reply = answer(Question(statement(list(tables), ask, positions), [], [], tables=tables))
    return [event_of(row) for row in reply.rows]


def test_a_message_with_the_ranges_that_hold_it(tmp_path: Path) -> None:
    path = write(tmp_path / "t", [SENT, PUBLISHED, EMPTIED, OTHER, SWITCHED])
    assert asked(wanted(f"{ID:016x}"), path) == [PUBLISHED, SENT, EMPTIED]
    assert asked(wanted(f"trace:{LARGE}"), path) == [PUBLISHED, SENT, EMPTIED]
    assert asked(wanted("trace:5"), path) == []


def test_several_tables_are_asked_as_one(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a", [PUBLISHED]), write(tmp_path / "b", [SENT])
    assert asked(wanted(f"{ID:016x}"), one, other) == [PUBLISHED, SENT]


def test_a_range_is_found_by_the_position_that_the_log_knows(tmp_path: Path) -> None:
    path = write(tmp_path / "t", [EMPTIED, OTHER])
    assert asked(wanted(f"{ID:016x}"), path) == []
    assert asked(wanted(f"{ID:016x}"), path, positions={("orders", 0, 7)}) == [EMPTIED]
    assert asked(wanted(f"{ID:016x}"), path, positions={("it's", 0, 7)}) == []


def test_days_before_the_message_are_never_opened(tmp_path: Path) -> None:
    path = write(tmp_path / "t", [PUBLISHED])
    write(path, [event(Kind.PUBLISHED, -3 * DAY_US)])
    other = f"date={datetime.fromtimestamp(T0_US / 1e6, UTC).date()}"
    broken = [file for file in path.glob("date=*/*.parquet") if file.parent.name != other]
    assert len(broken) == 1
    broken[0].write_bytes(b"nothing that can be read")
    assert asked(wanted(f"{ID:016x}"), path) == [PUBLISHED]
    since = datetime.fromtimestamp(T0_US / 1e6, UTC).date().isoformat()
    assert asked(wanted(f"trace:{LARGE}", since), path) == [PUBLISHED]
    with pytest.raises(QueryRefused):
        asked(wanted(f"trace:{LARGE}"), path)  # any day may have it


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    with pytest.raises(TableUnreadable, match="it is no Delta table"):
        asked(wanted(f"{ID:016x}"), tmp_path / "nowhere")


def test_events_of_log_and_table_merge() -> None:
    later = event(Kind.FINISHED, 900, channel="mail", attempts=1)
    logged = [("n1", SENT._replace(time_ns=SENT.time_ns + 999)), ("n1", later), ("n2", SENT)]
    found = merged(logged, [PUBLISHED, SENT, SENT, SENT])
    assert [(one.event.kind, one.node, one.sources) for one in found] == [
        (Kind.PUBLISHED, "", "table"),
        (Kind.SENT, "n2", "log and table"),
        (Kind.SENT, "", "table"),
        (Kind.SENT, "n1", "log and table"),
        (Kind.FINISHED, "n1", "log"),
    ]


def test_more_attempts_than_the_table_holds_are_the_same_event() -> None:
    logged, tabled = SENT._replace(attempts=60_000), SENT._replace(attempts=0x7FFF)
    assert [one.sources for one in merged([("n", logged)], [tabled])] == ["log and table"]


def test_an_event_of_a_later_version_is_named() -> None:
    row = ["frozen", 1, "t", None, 0, 0, None, 0, None, None, 1]
    with pytest.raises(QueryRefused, match="'frozen', which this version does not know"):
        event_of(row)


def test_queries_as_typed() -> None:
    ask = wanted(f" {ID:016x} ")
    assert (ask.message_id, ask.is_bounded) == (ID, True)
    assert 0 <= parse(ID).time_ns // 10**6 - ask.from_ms <= 10_000
    assert wanted("trace:7", "2026-05-01").from_ms == 1_777_593_600_000
    assert not wanted("trace:7").is_bounded
    w3c = "4bf92f3577b34da6a3ce929d0e0e4736"
    for text in (w3c, f" trace:{w3c} "):
        assert wanted(text).trace_id == 0xA3CE929D0E0E4736
    for text in (
        "",
        w3c[1:],
        "trace:0",
        "trace:x",
        "trace:99999999999999999999",
        "abc",
        "' OR 1=1 --",
    ):
        with pytest.raises(InputInvalid):
            wanted(text)
    with pytest.raises(InputInvalid, match="is no time"):
        wanted("trace:7", "yesterday' OR '1")
