"""A topic's stored messages over all its nodes and partitions: a page of them from any position,
onward or back, merged by time; and searches, which continue until a page is full or they have read
enough.

A page is a window of each log, [first, following). The next page begins where the window ends and
the one before ends where it begins, so nothing is left out and nothing comes twice, however the
nodes' clocks differ. Within a log the order is its own.

What is kept of a message is a line; who opens one reads it again (`Log.message`). So a page of
large messages costs no more memory than one of small ones.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from penstock import limits
from penstock.errors import FetchFailed
from penstock.nsqadmin.criteria import EVERYTHING, Criteria
from penstock.nsqadmin.messages import (
    NEWEST,
    Extent,
    InputInvalid,
    Log,
    LogAddress,
    Message,
    named_message,
)
from penstock.nsqadmin.upstream import Upstream, gathered, reason

T = TypeVar("T")


class Line(NamedTuple):
    """A message of a page, its body cut to the length of a line."""

    address: str  # of its log
    message: Message
    body_bytes: int


class OffsetSpan(NamedTuple):
    first: int
    following: int


@dataclass
class Search:
    criteria: Criteria = EVERYTHING
    count: int = limits.ADMIN_MESSAGES_SHOWN
    searched_max: int = limits.ADMIN_SEARCHED_MAX
    searched: int = 0
    reached_ns: int = 0  # the time of the last message looked at
    is_stopped: bool = False  # by hand
    on_progress: Callable[[Search], None] | None = None

    def looked_at(self, count: int, reached_ns: int) -> None:
        self.searched += count
        self.reached_ns = reached_ns or self.reached_ns
        if self.on_progress is not None:
            self.on_progress(self)


@dataclass(frozen=True)
class Page:
    lines: tuple[Line, ...] = ()  # the oldest first
    spans: Mapping[str, OffsetSpan] = field(default_factory=dict)
    is_end: bool = True  # nothing is left in that direction
    errors: tuple[str, ...] = ()  # of nodes that could not tell


class _Part(NamedTuple):
    """One log's part of a page: in the order of reading, with its end."""

    lines: list[Line]
    reached: int
    is_end: bool


class TopicLogs:
    def __init__(
        self, upstream: Upstream, addresses: Iterable[LogAddress], topic: str, hidden: Sequence[str]
    ) -> None:
        """`by_address`: an address as text."""
        self.by_address = {
            str(address): Log(upstream, address.node, topic, hidden, address.partition)
            for address in addresses
        }

    async def find(self, text: str) -> dict[str, int]:
        """The offset in each log that a typed position means; a message's id is in one only."""
        text = text.strip()
        if len(self.by_address) > 1 and text.isascii() and text.isdigit():
            partitions = len({log.node for log in self.by_address.values()}) < len(self.by_address)
            what = "partition" if partitions else "node"
            rule = f"each {what} has its own: choose a {what} first"
            raise InputInvalid(f"{text!r} is an offset, and {rule}")
        named = named_message(text)
        if named is not None:
            return await self._where_is(*named)
        return await _gathered({at: log.find(text) for at, log in self.by_address.items()})

    async def _where_is(self, name: str, value: str) -> dict[str, int]:
        """Each node is asked once, however many partitions it has."""

        async def ask(node: str, logs: list[Log]) -> tuple[str, int]:
            only = logs[0].partition if len(logs) == 1 else None
            partition, offset = await logs[0].where_is(name, value, only)
            return str(LogAddress(node, partition)), offset

        found = await _gathered({node: ask(node, logs) for node, logs in self._by_node().items()})
        return dict(found.values())

    async def ends(self) -> dict[str, int]:
        by_node = self._by_node()
        found = await _gathered({node: logs[0].extents() for node, logs in by_node.items()})
        return {
            address: found[log.node][log.partition].end
            for address, log in self.by_address.items()
            if log.partition in found.get(log.node, ())
        }

    def _by_node(self) -> dict[str, list[Log]]:
        by_node: dict[str, list[Log]] = {}
        for log in self.by_address.values():
            by_node.setdefault(log.node, []).append(log)
        return by_node

    async def page(self, position: str, search: Search) -> Page:
        """From a position on; `newest` is the page that ends at the end."""
        if position.strip() in NEWEST:
            return await self.read(await self.ends(), search, is_back=True)
        return await self.read(await self.find(position), search)

    async def read(self, offsets: Mapping[str, int], search: Search, is_back: bool = False) -> Page:
        """On from these offsets, or back to what is before them."""
        parts, errors = await self._parts(offsets, search, is_back)
        lines = [part.lines for part in parts.values()]  # each keeps its order
        merged = heapq.merge(*lines, key=lambda one: one.message.timestamp_ns, reverse=is_back)
        taken = list(itertools.islice(merged, search.count))
        spans, is_end = {}, True
        for address, part in parts.items():
            mine = [one.message.offset for one in taken if one.address == address]
            is_all = len(mine) == len(part.lines)
            last = mine[-1] + (not is_back) if mine else offsets[address]
            reached = part.reached if is_all else last
            given = offsets[address]
            spans[address] = OffsetSpan(reached, given) if is_back else OffsetSpan(given, reached)
            is_end &= is_all and part.is_end
        return Page(tuple(reversed(taken) if is_back else taken), spans, is_end, errors)

    async def _parts(
        self, offsets: Mapping[str, int], search: Search, is_back: bool
    ) -> tuple[dict[str, _Part], tuple[str, ...]]:
        """Each node is asked once for the ends of its logs; a silent one is not asked for each of
        its partitions."""
        parts: dict[str, _Part] = {}
        extents: dict[str, dict[int, Extent]] = {}
        errors: dict[str, str] = {}
        for address, offset in offsets.items():
            log = self.by_address[address]
            if log.node in errors:
                continue
            try:
                if log.node not in extents:
                    extents[log.node] = await log.extents()
                extent = log.of(extents[log.node])
                parts[address] = await self._look(log, extent, offset, search, is_back)
            except FetchFailed as error:
                if len(offsets) == 1:
                    raise
                errors[log.node] = f"{log.node}: {reason(error)}"
        return parts, tuple(errors.values())

    async def _look(
        self, log: Log, extent: Extent, start: int, search: Search, is_back: bool
    ) -> _Part:
        """Window by window, until there are enough; each log has its share of the search."""
        position = min(max(start, extent.earliest), extent.end)
        end = extent.earliest if is_back else extent.end
        share = max(1, search.searched_max // max(1, len(self.by_address)))
        found: list[Line] = []
        while position != end and len(found) < search.count and share > 0 and not search.is_stopped:
            step = limits.ADMIN_BACKWARD_MESSAGES if search.criteria else search.count - len(found)
            step = min(step, share)
            reached = max(end, position - step) if is_back else min(end, position + step)
            span = OffsetSpan(*sorted((position, reached)))
            found += await self._window(log, extent, span, search, is_back)
            share -= step
            position = reached
        if len(found) >= search.count:
            found = found[: search.count]
            position = found[-1].message.offset + (not is_back)
        return _Part(found, position, position == end)

    async def _window(
        self, log: Log, extent: Extent, span: OffsetSpan, search: Search, is_back: bool
    ) -> list[Line]:
        """In the order of reading."""
        found: list[Line] = []
        count, times_ns = 0, (0, 0)  # of the oldest and the newest
        async for some in log.walk(extent, *span):
            found += [_line(str(log.address), one) for one in some if search.criteria.hold(one)]
            if some:
                times_ns = times_ns[0] or some[0].timestamp_ns, some[-1].timestamp_ns
                count += len(some)
        search.looked_at(count, times_ns[not is_back])
        return found[::-1] if is_back else found


async def _gathered(asked: Mapping[str, Awaitable[T]]) -> dict[str, T]:
    """The answers; raises the error of one when there is none."""
    found, failed = await gathered(asked)
    for error in failed.values() if not found else ():
        raise error
    return found


def _line(address: str, message: Message) -> Line:
    short = message.body[: limits.ADMIN_PREVIEW_BYTES + 1]
    return Line(address, replace(message, body=short), len(message.body))
