"""One message's timeline: from topic `_trace` of every nsqd for the recent past, and from the table
of the pipeline `trace` for the rest. Each reports its failures; the other's part is shown.

The statement over the table runs in the process of the SQL console. Nothing that somebody has typed
stands in it but numbers, which is why a text is made into numbers first. The table is partitioned
by the day of an event. A message has no event before it was made, and its id holds that time, so
days before are never opened. A trace id says nothing of the time: then the days are those that were
asked for, or all.

An event that the log has too is the same event when all its columns are the same: one of a message
and a client is not told from another of the same microsecond, but then there are as many of them on
both sides.
"""

import asyncio
import base64
import datetime
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import BrokerRefused, FetchFailed, PenstockError, QueryRefused, RangeCorrupt
from penstock.ids.guid import parse
from penstock.kernel import hex_to_id
from penstock.net.query import whole_number
from penstock.nsqadmin import console
from penstock.nsqadmin.console import Question, literal
from penstock.nsqadmin.messages import InputInvalid, Log, typed_time_ns
from penstock.nsqadmin.upstream import NotOffered, Upstream
from penstock.nsqdapi import calls
from penstock.trace.events import ABOUT_NO_MESSAGE, TOPIC, Event, Kind, decode
from penstock.trace.search import (
    RULE,
    W3C_DIGITS,
    Copy,
    Only,
    Search,
    context_of,
    copies,
    read_trace_id,
)

MessagePosition = tuple[str, int, int]  # topic, partition, offset

_COLUMNS = (
    "event, epoch_us(time), topic, channel, partition, \"offset\", message_id, attempts, client,"
    " trace_id, messages"
)  # fmt: skip
_KINDS = {kind.label: kind for kind in Kind}
_ATTEMPTS_MAX = 0x7FFF  # the table's column holds no more
_U64 = 1 << 64


class Wanted(NamedTuple):
    """The search: one of the two ids is 0."""

    message_id: int
    trace_id: int
    from_ms: int  # nothing of it happened before
    is_bounded: bool  # whether that is known, and not only where the log is looked into


def statement(tables: Sequence[str], wanted: Wanted, positions: Iterable[MessagePosition]) -> str:
    """Over the views `tables`. `positions` are those of its messages according to the log."""
    whole = " UNION ALL ".join(f"SELECT * FROM {name}" for name in tables)
    days = f"date >= DATE '{first_day(wanted)}'" if wanted.is_bounded else "true"
    mine = _is_mine(wanted)
    known = ['SELECT topic, partition, "offset" FROM mine']
    known += [
        f"SELECT {literal(one)}, {partition:d}, {offset:d}" for one, partition, offset in positions
    ]
    none = ", ".join(literal(kind.label) for kind in sorted(ABOUT_NO_MESSAGE))
    return (
        f"WITH events AS (SELECT * FROM ({whole}) WHERE {days}),"
        f" mine AS (SELECT * FROM events WHERE {mine}),"
        f" known(topic, partition, position) AS ({' UNION '.join(known)})"
        f" SELECT {_COLUMNS} FROM mine UNION ALL"
        f" SELECT {_COLUMNS} FROM events e WHERE message_id IS NULL AND event NOT IN ({none})"
        " AND EXISTS (SELECT 1 FROM known k WHERE k.topic = e.topic"
        ' AND k.partition = e.partition AND k.position >= e."offset"'
        ' AND k.position < e."offset" + e.messages)'
        f" ORDER BY 2 LIMIT {limits.ADMIN_TRACE_EVENTS + 1:d}"
    )


def first_day(wanted: Wanted) -> datetime.date:
    return datetime.datetime.fromtimestamp(wanted.from_ms / 1000, datetime.UTC).date()


def _is_mine(wanted: Wanted) -> str:
    if wanted.message_id:
        return f"message_id = '{wanted.message_id:016x}'"
    signed = wanted.trace_id - _U64 if wanted.trace_id >= _U64 // 2 else wanted.trace_id
    return f"trace_id = {signed:d}"


def event_of(row: Sequence[Any]) -> Event:
    """Raises QueryRefused for an event that this version does not know."""
    label, time_us, topic, channel, partition, offset, id, attempts, client, trace_id, count = row
    kind = _KINDS.get(label)
    if kind is None:
        raise QueryRefused(f"the table has an event {label!r}, which this version does not know")
    return Event(
        kind=kind, time_ns=time_us * 1000, topic=topic, channel=channel, partition=partition,
        offset=offset, message_id=int(id, 16) if id else 0, attempts=attempts, client=client,
        trace_id=(trace_id or 0) % _U64, count=count,
    )  # fmt: skip


def positions_of(events: Iterable[Event]) -> set[MessagePosition]:
    return {(one.topic, one.partition, one.offset) for one in events if one.message_id}


class TracedEvent(NamedTuple):
    """An event and its source: "log" (with its node), "table", or both."""

    event: Event
    node: str  # "" when only the table has it
    in_table: bool

    @property
    def sources(self) -> str:
        if not self.node:
            return "table"
        return "log and table" if self.in_table else "log"


def merged(logged: Iterable[tuple[str, Event]], tabled: Iterable[Event]) -> list[TracedEvent]:
    """Both combined, in the order of time; common events are one."""
    left: dict[Event, list[Event]] = defaultdict(list)
    for event in tabled:
        left[_as_in_table(event)].append(event)
    found = []
    for node, event in logged:
        same = left.get(_as_in_table(event))
        found.append(TracedEvent(event, node, bool(same)))
        if same:
            same.pop()
    found += [TracedEvent(event, "", True) for events in left.values() for event in events]
    return sorted(found, key=lambda one: one.event.time_ns)


def _as_in_table(event: Event) -> Event:
    """Rounded as in the table's columns."""
    attempts = min(event.attempts, _ATTEMPTS_MAX)
    return event._replace(time_ns=event.time_ns // 1000 * 1000, attempts=attempts)


# --- the log and the tables together ---

log = logging.getLogger("penstock.nsqadmin.traces")

ID_AHEAD_MS = 10_000  # an id may be ahead of the clock that wrote the event
TRACE_ID_MS = 2 * 3600 * 1000  # how far back a trace id is looked for in the log
_NEWEST_MAX = 100  # events' messages that are committed and not durable yet

_asking = asyncio.Semaphore(1)  # one process for tables at a time, whoever looks


async def recent(upstream: Upstream, nodes: Iterable[str]) -> list[Event]:
    """The last event of each message traced lately on all nodes, the latest first. A failing node
    has none; a search names the reason."""
    found = await asyncio.gather(*(_recent(upstream, node) for node in nodes))
    last: dict[int, Event] = {}
    for event in sorted((one for events in found for one in events), key=lambda one: one.time_ns):
        last.pop(event.message_id, None)
        last[event.message_id] = event
    return list(last.values())[: -limits.ADMIN_TRACED_SHOWN - 1 : -1]


async def _recent(upstream: Upstream, node: str) -> list[Event]:
    log_ = Log(upstream, node, TOPIC)
    try:
        extent = await log_.extent()
        first = extent.end - limits.ADMIN_TRACED_SHOWN
        bodies = [one.body async for some in log_.walk(extent, first, extent.end) for one in some]
    except BrokerRefused:
        return []  # it has not traced anything
    except (FetchFailed, RangeCorrupt) as error:
        log.info("%s: what was traced last can't be read: %s", node, error)
        return []
    return [event for body in bodies for event in decode(body) if event.message_id]


def wanted(text: str, since: str = "") -> Wanted:
    """The typed text: a message id, or "trace:" and a trace id; `since` (2026-05-01) is its
    earliest time. 32 hex digits are a trace id as they stand."""
    text = text.strip()
    from_ms = max(1, typed_time_ns(since) // limits.MS) if since.strip() else 0
    trace_id = read_trace_id(text.removeprefix("trace:"))
    if trace_id and (text.startswith("trace:") or len(text) == W3C_DIGITS):
        recent_ms = max(0, time.time_ns() // limits.MS - TRACE_ID_MS)
        return Wanted(0, trace_id, from_ms or recent_ms, bool(from_ms))
    number = hex_to_id(text.encode("utf-8", "replace"))
    if number <= 0:
        rule = f"neither a message id (16 hex digits) nor trace:N, where N is {RULE}"
        raise InputInvalid(f"{text!r} is {rule}")
    made_ms = max(0, parse(number).time_ns // limits.MS - ID_AHEAD_MS)
    return Wanted(number, 0, from_ms or made_ms, True)


def only_in(topic: str, partition: str) -> Only:
    """Filters by place; empty values match everything."""
    if not partition.strip():
        return Only(topic.strip())
    number = whole_number(partition.strip(), limits.PARTITIONS_MAX - 1)
    if number is None:
        raise InputInvalid(f"{partition!r} is no partition: 0 to {limits.PARTITIONS_MAX - 1}")
    return Only(topic.strip(), number)


class Seeker:
    def __init__(
        self, upstream: Upstream, nodes: list[str], tables: Iterable[str], ask: Wanted, only: Only,
        bytes_max: int = limits.ADMIN_TRACE_BYTES,
    ) -> None:  # fmt: skip
        """`bytes_max`: of one node's log."""
        self._upstream = upstream
        self._bytes_max = bytes_max
        self.failures: list[str] = []  # of nodes; they are among the notes
        self._nodes = nodes
        self.tables = tuple(tables)
        self._ask = ask
        self._only = only
        self._is_alone = len(self._nodes) == 1 and len(self.tables) <= 1
        self._searches: dict[str, Search] = {}
        self._tabled: list[Event] = []
        self.notes: list[str] = []  # what is missing, or may be

    def found(self) -> list[TracedEvent]:
        positions = positions_of(self._tabled) if self._is_alone else set()
        logged = [(node, event) for node, search in self._searches.items()
                  for event in search.events(positions)]  # fmt: skip
        tabled = [one for one in self._tabled if self._only.takes(one)]
        return merged(logged, tabled)

    async def look_in_log(self) -> None:
        await asyncio.gather(*(self._noting(node, self._of_node(node)) for node in self._nodes))
        if not self._nodes:
            self.notes.append("no nsqd answers")

    async def _noting(self, node: str, work: Awaitable[None]) -> None:
        try:
            await work
        except PenstockError as error:
            self.failures.append(f"the log of {node} can't be read: {error}")
            self.notes.append(self.failures[-1])

    async def _of_node(self, node: str) -> None:
        log_, at_ms = Log(self._upstream, node, TOPIC), self._ask.from_ms
        try:
            call = calls.offset_at(TOPIC, at_ms, committed=True)
            offset = await self._upstream.call(node, call)
        except FetchFailed as error:
            if error.status != 404 or isinstance(error, NotOffered):
                raise
            self.notes.append(f"{node} has not traced anything")
            return
        extent = await log_.extent()
        if 0 < extent.earliest == offset:
            self.notes.append(f"the log of {node} may no longer hold the beginning")
        search = self._searches[node] = Search(self._ask.message_id, self._ask.trace_id, self._only)
        left = self._bytes_max
        async for some in log_.walk(extent, offset, extent.end):
            if left <= 0:
                read = self._bytes_max // limits.MIB
                self.notes.append(f"of the log of {node} the first {read} MiB were read, not all")
                break
            search.feed([one.body for one in some])
            left -= sum(len(one.body) for one in some)
        first = max(offset, extent.end, extent.committed - _NEWEST_MAX)
        await self._newest(node, first, extent.committed, search)

    async def _newest(self, node: str, from_offset: int, to_offset: int, search: Search) -> None:
        """Committed messages that are not in the log's files yet."""
        for number in range(from_offset, to_offset):
            message = await self._upstream.call(node, calls.message(TOPIC, "offset", number))
            search.feed([base64.b64decode(message["body_base64"])])

    async def look_in_tables(self) -> None:
        """After the log, which may know the position of the message in its topic."""
        if not self.tables:
            return
        names = {f"trace_{number}": path for number, path in enumerate(self.tables)}
        searches = self._searches.values() if self._is_alone else ()
        positions = {one for search in searches for one in positions_of(search.events())}
        sql = statement(tuple(names), self._ask, positions)
        rows_max = limits.ADMIN_TRACE_EVENTS
        async with _asking:
            reply = await console.ask(Question(sql, [], [], rows_max, tables=names))
        if reply.error:
            self.notes.append(f"the table can't be read: {reply.error}")
            return
        try:
            self._tabled = [event_of(row) for row in reply.rows]
        except QueryRefused as error:
            self.notes.append(str(error))
        if reply.is_cut:
            self.notes.append(f"the table has more events than the {rows_max:,} shown")

    @property
    def nothing(self) -> str:
        """The searched places, when nothing was found."""
        since = f", from {first_day(self._ask)} on" if self._ask.is_bounded else ""
        if not self.tables:
            return (
                "The log has nothing of it. Was it traced, and does _trace still hold that time?"
                " Older events are in the table of the pipeline trace: name it with -trace-table."
            )
        return (
            f"Neither the log nor the table{since} has anything of it. Was it traced, and has the"
            " pipeline trace come so far?"
        )


async def contexts(
    upstream: Upstream, found: Iterable[TracedEvent], hidden: Iterable[str]
) -> dict[int, str]:
    """By message id. None for a message that is gone, or masked."""
    wanted = copies((one.node, one.event) for one in found)
    hidden = tuple(hidden)
    values = await asyncio.gather(*(_context(upstream, copy, hidden) for copy in wanted))
    return {
        copy.event.message_id: value
        for copy, value in zip(wanted, values, strict=True)
        if value is not None
    }


async def _context(upstream: Upstream, copy: Copy, hidden: tuple[str, ...]) -> str | None:
    event = copy.event
    log = Log(upstream, copy.node, event.topic, hidden, event.partition)
    try:
        message = await log.message(event.offset)
    except (FetchFailed, RangeCorrupt):
        return None
    return None if message is None else context_of(event, int(message.id, 16), message.headers)
