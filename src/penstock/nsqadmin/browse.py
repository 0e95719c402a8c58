"""A topic's stored messages over all nodes that have it: a page of them from any place, onward or
back, merged by time; and searches, which go on until a page is full or they have looked at enough.

A page is a window of each node's log, [first, following). The next page begins where the window
ends and the one before ends where it begins, so nothing is left out and nothing comes twice,
however the nodes' clocks differ. Inside a node the order is the log's.

What is kept of a message is a line; who opens one reads it again (`Log.message`). So a page of
large messages costs no more memory than one of small ones.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from penstock import limits
from penstock.errors import FetchFailed, PenstockError
from penstock.nsqadmin.criteria import EVERYTHING, Criteria
from penstock.nsqadmin.messages import NEWEST, Extent, Log, Message, PlaceInvalid
from penstock.nsqadmin.upstream import Upstream

T = TypeVar("T")


class Line(NamedTuple):
    """A message of a page, its body cut to what a line shows."""

    node: str
    message: Message
    body_bytes: int


class Span(NamedTuple):
    first: int
    following: int


@dataclass
class Hunt:
    """One look into the logs: for how many, for which, and how far it has come."""

    criteria: Criteria = EVERYTHING
    count: int = limits.ADMIN_MESSAGES_SHOWN
    searched_max: int = limits.ADMIN_SEARCHED_MAX
    searched: int = 0
    reached_ns: int = 0  # the time of the last message looked at
    is_stopped: bool = False  # by hand
    on_progress: Callable[[Hunt], None] | None = None

    def looked_at(self, count: int, reached_ns: int) -> None:
        self.searched += count
        self.reached_ns = reached_ns or self.reached_ns
        if self.on_progress is not None:
            self.on_progress(self)


@dataclass(frozen=True)
class Page:
    lines: tuple[Line, ...] = ()  # the oldest first
    spans: Mapping[str, Span] = field(default_factory=dict)
    is_end: bool = True  # nothing is left in that direction
    errors: tuple[str, ...] = ()  # of nodes that could not tell


class _Part(NamedTuple):
    """One node's part of a page: in the order it was met, and where looking has ended."""

    lines: list[Line]
    reached: int
    is_end: bool


class Shelf:
    """The logs of one topic on some nodes."""

    def __init__(
        self, upstream: Upstream, nodes: Iterable[str], topic: str, hidden: Iterable[str]
    ) -> None:
        hidden = tuple(hidden)
        self.logs = {node: Log(upstream, node, topic, hidden) for node in nodes}

    # --- places ---

    async def find(self, text: str) -> dict[str, int]:
        """The offset on each node that a place means, as people type it. A message's id is on one
        node only."""
        text = text.strip()
        if len(self.logs) > 1 and text.isascii() and text.isdigit():
            raise PlaceInvalid(text, "is an offset, and each node has its own: choose a node first")
        found, errors = await self._each(lambda log: log.find(text))
        if not found:
            raise errors[0]
        return found

    async def ends(self) -> dict[str, int]:
        found, errors = await self._each(lambda log: log.extent())
        if not found:
            raise errors[0]
        return {node: extent.end for node, extent in found.items()}

    async def _each(
        self, ask: Callable[[Log], Awaitable[T]]
    ) -> tuple[dict[str, T], list[PenstockError]]:
        results = await asyncio.gather(*map(ask, self.logs.values()), return_exceptions=True)
        found: dict[str, T] = {}
        errors: list[PenstockError] = []
        for node, result in zip(self.logs, results, strict=True):
            if isinstance(result, PenstockError):
                errors.append(result)
            elif isinstance(result, BaseException):
                raise result
            else:
                found[node] = result
        return found, errors

    # --- pages ---

    async def page(self, place: str, hunt: Hunt) -> Page:
        """From a place on; `newest` is the page that ends at the end."""
        if place.strip() in NEWEST:
            return await self.back(await self.ends(), hunt)
        return await self.onward(await self.find(place), hunt)

    async def onward(self, offsets: Mapping[str, int], hunt: Hunt) -> Page:
        parts, errors = await self._parts(offsets, hunt, self._ahead)
        taken = _first(hunt.count, {node: part.lines for node, part in parts.items()})
        spans = {}
        for node, part in parts.items():
            mine = [one.message.offset for one in taken if one.node == node]
            is_all = len(mine) == len(part.lines)
            after = mine[-1] + 1 if mine else offsets[node]
            spans[node] = Span(offsets[node], part.reached if is_all else after)
        is_end = all(part.is_end for part in parts.values()) and _is_all(taken, parts)
        return Page(tuple(taken), spans, is_end, errors)

    async def back(self, ends: Mapping[str, int], hunt: Hunt) -> Page:
        parts, errors = await self._parts(ends, hunt, self._behind)
        taken = _first(hunt.count, {node: part.lines for node, part in parts.items()}, newest=True)
        spans = {}
        for node, part in parts.items():
            mine = [one.message.offset for one in taken if one.node == node]
            is_all = len(mine) == len(part.lines)
            before = mine[-1] if mine else ends[node]
            spans[node] = Span(part.reached if is_all else before, ends[node])
        is_end = all(part.is_end for part in parts.values()) and _is_all(taken, parts)
        return Page(tuple(reversed(taken)), spans, is_end, errors)

    async def _parts(
        self, offsets: Mapping[str, int], hunt: Hunt,
        look: Callable[[Log, int, Hunt], Awaitable[_Part]],
    ) -> tuple[dict[str, _Part], tuple[str, ...]]:  # fmt: skip
        parts: dict[str, _Part] = {}
        errors: list[str] = []
        for node, offset in offsets.items():
            try:
                parts[node] = await look(self.logs[node], offset, hunt)
            except FetchFailed as error:
                if len(offsets) == 1:
                    raise
                errors.append(f"{node}: {error.reason}")
        return parts, tuple(errors)

    async def _ahead(self, log: Log, offset: int, hunt: Hunt) -> _Part:
        """Each node has its share of what is searched."""
        extent = await log.extent()
        position = min(max(offset, extent.earliest), extent.end)
        share = _share(hunt, len(self.logs))
        found: list[Line] = []
        stop = extent.end if hunt.criteria else position + hunt.count
        async for some in log.walk(extent, position, stop):
            for one in some:
                position = one.offset + 1
                if hunt.criteria.hold(one):
                    found.append(_line(log.node, one))
                    if len(found) == hunt.count:
                        break
            hunt.looked_at(len(some), some[-1].timestamp_ns if some else 0)
            share -= len(some)
            if len(found) == hunt.count or share <= 0 or hunt.is_stopped:
                break
        else:
            position = max(position, min(stop, extent.end))
        return _Part(found, position, position >= extent.end)

    async def _behind(self, log: Log, end: int, hunt: Hunt) -> _Part:
        extent = await log.extent()
        position = max(min(end, extent.end), extent.earliest)
        share = _share(hunt, len(self.logs))
        found: list[Line] = []
        while position > extent.earliest and len(found) < hunt.count:
            step = limits.ADMIN_BACKWARD_MESSAGES if hunt.criteria else hunt.count - len(found)
            first = max(extent.earliest, position - step)
            some = await self._step_back(log, extent, Span(first, position), hunt)
            found += some
            share -= position - first
            position = first
            if len(found) >= hunt.count or share <= 0 or hunt.is_stopped:
                break
        if len(found) >= hunt.count:
            found = found[: hunt.count]
            position = found[-1].message.offset
        return _Part(found, position, position <= extent.earliest)

    async def _step_back(
        self, log: Log, extent: Extent, span: Span, hunt: Hunt
    ) -> list[Line]:  # fmt: skip
        """The newest first."""
        found: deque[Line] = deque(maxlen=hunt.count)
        oldest_ns = count = 0
        async for some in log.walk(extent, *span):
            found.extendleft(_line(log.node, one) for one in some if hunt.criteria.hold(one))
            if some:
                oldest_ns = oldest_ns or some[0].timestamp_ns
                count += len(some)
        hunt.looked_at(count, oldest_ns)
        return list(found)


def _share(hunt: Hunt, nodes: int) -> int:
    return max(1, hunt.searched_max // max(1, nodes))


def _line(node: str, message: Message) -> Line:
    short = message.body[: limits.ADMIN_PREVIEW_BYTES + 1]
    return Line(node, replace(message, body=short), len(message.body))


def _first(count: int, lists: Mapping[str, list[Line]], newest: bool = False) -> list[Line]:
    """The first of all lists together; each keeps its order."""
    merged = heapq.merge(
        *lists.values(), key=lambda one: one.message.timestamp_ns, reverse=newest
    )  # fmt: skip
    return [line for line, _ in zip(merged, range(count), strict=False)]


def _is_all(taken: Sequence[Line], parts: Mapping[str, _Part]) -> bool:
    return len(taken) == sum(len(part.lines) for part in parts.values())
