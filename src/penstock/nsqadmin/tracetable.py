"""One message's life in the trace table: the statement that asks for it, and what comes back.

No I/O: `traces.py` has the statement run in the process of the SQL console. Nothing that somebody
has typed stands in it but numbers, which is why a text is made into numbers first.

The table is partitioned by the day of an event. A message has no event before it was made, and its
id holds that time, so days before are never opened. A trace id says nothing of the time: then the
days are those that were asked for, or all.

An event that the log has too is the same event when all its columns are the same: one of a message
and a client is not told from another of the same microsecond, but then there are as many of them on
both sides.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import QueryRefused
from penstock.trace.events import ABOUT_NO_MESSAGE, Event, Kind

Place = tuple[str, int, int]  # topic, partition, offset

_COLUMNS = (
    "event, epoch_us(time), topic, channel, partition, \"offset\", message_id, attempts, client,"
    " trace_id, messages"
)  # fmt: skip
_KINDS = {kind.label: kind for kind in Kind}
_ATTEMPTS_MAX = 0x7FFF  # the table's column holds no more
_U64 = 1 << 64


class Wanted(NamedTuple):
    """What is looked for: one of the two ids is 0."""

    message_id: int
    trace_id: int
    from_ms: int  # nothing of it happened before
    is_bounded: bool  # whether that is known, and not only where the log is looked into


def statement(tables: Sequence[str], wanted: Wanted, places: Iterable[Place]) -> str:
    """Over the views `tables`. `places` are where the log says that its messages stand."""
    whole = " UNION ALL ".join(f"SELECT * FROM {name}" for name in tables)
    days = _days(wanted)
    mine = _is_mine(wanted)
    known = ['SELECT topic, partition, "offset" FROM mine']
    known += [
        f"SELECT {_text(one)}, {partition:d}, {offset:d}" for one, partition, offset in places
    ]
    none = ", ".join(_text(kind.label) for kind in sorted(ABOUT_NO_MESSAGE))
    return (
        f"WITH events AS (SELECT * FROM ({whole}) WHERE {days}),"
        f" mine AS (SELECT * FROM events WHERE {mine}),"
        f" known(topic, partition, place) AS ({' UNION '.join(known)})"
        f" SELECT {_COLUMNS} FROM mine UNION ALL"
        f" SELECT {_COLUMNS} FROM events e WHERE message_id IS NULL AND event NOT IN ({none})"
        " AND EXISTS (SELECT 1 FROM known k WHERE k.topic = e.topic"
        ' AND k.partition = e.partition AND k.place >= e."offset"'
        ' AND k.place < e."offset" + e.messages)'
        f" ORDER BY 2 LIMIT {limits.ADMIN_TRACE_EVENTS + 1:d}"
    )


def _days(wanted: Wanted) -> str:
    return f"date >= DATE '{first_day(wanted).isoformat()}'" if wanted.is_bounded else "true"


def first_day(wanted: Wanted) -> datetime.date:
    return datetime.datetime.fromtimestamp(wanted.from_ms / 1000, datetime.UTC).date()


def _is_mine(wanted: Wanted) -> str:
    if wanted.message_id:
        return f"message_id = '{wanted.message_id:016x}'"
    signed = wanted.trace_id - _U64 if wanted.trace_id >= _U64 // 2 else wanted.trace_id
    return f"trace_id = {signed:d}"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def events(rows: Iterable[Sequence[Any]]) -> list[Event]:
    """Raises QueryRefused for an event that this version does not know."""
    return [_event(row) for row in rows]


def _event(row: Sequence[Any]) -> Event:
    label, time_us, topic, channel, partition, offset, id, attempts, client, trace_id, count = row
    kind = _KINDS.get(label)
    if kind is None:
        raise QueryRefused(f"the table has an event {label!r}, which this version does not know")
    return Event(
        kind=kind, time_ns=time_us * 1000, topic=topic, channel=channel, partition=partition,
        offset=offset, message_id=int(id, 16) if id else 0, attempts=attempts, client=client,
        trace_id=(trace_id or 0) % _U64, count=count,
    )  # fmt: skip


def places(events: Iterable[Event]) -> set[Place]:
    """Where the messages of these events stand."""
    return {(one.topic, one.partition, one.offset) for one in events if one.message_id}


class Found(NamedTuple):
    """An event and who has it: "log" (and on which node), "table", or both."""

    event: Event
    node: str  # "" when only the table has it
    in_table: bool

    @property
    def sources(self) -> str:
        if not self.node:
            return "table"
        return "log and table" if self.in_table else "log"


def merged(logged: Iterable[tuple[str, Event]], tabled: Iterable[Event]) -> list[Found]:
    """Both together, in the order of time; what both have is one."""
    left: dict[Event, list[Event]] = defaultdict(list)
    for event in tabled:
        left[_as_in_table(event)].append(event)
    found = []
    for node, event in logged:
        same = left.get(_as_in_table(event))
        found.append(Found(event, node, bool(same)))
        if same:
            same.pop()
    found += [Found(event, "", True) for events in left.values() for event in events]
    return sorted(found, key=lambda one: one.event.time_ns)


def _as_in_table(event: Event) -> Event:
    """What the table's columns keep of it."""
    attempts = min(event.attempts, _ATTEMPTS_MAX)
    return event._replace(time_ns=event.time_ns // 1000 * 1000, attempts=attempts)
