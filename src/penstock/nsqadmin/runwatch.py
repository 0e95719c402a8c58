"""Reads the topics `_pipelines` of all nsqds, each from where it was read last.

What is new is seen in the statistics that `Watch` has anyway: where the topic has no more messages
than before, nobody is asked anything. It is read with every look while somebody has a page open
that shows runs, and else a few times a minute, for what needs attention. After a start the newest
messages are read, a bounded number.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from penstock import limits
from penstock.broker.topics.settings import PIPELINES
from penstock.errors import BrokerRefused, FetchFailed, PenstockError, RangeCorrupt
from penstock.nsqadmin import messages
from penstock.nsqadmin.runs import Place, Runs
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import Upstream
from penstock.nsqadmin.watch import Listeners, Watch
from penstock.pipelines.runs import Part, RunMessageInvalid, decode

log = logging.getLogger("penstock.nsqadmin.runwatch")

_UNREADABLE = (410, 416, 422)  # gone, beyond the end, damaged: what lies there is passed over


@dataclass
class _Known:
    """Of one node's topic."""

    identity: str
    offset: int  # up to here it was read
    seen: tuple[int, int] = (0, -1)  # start of the node, count of messages: when it was read
    is_settled: bool = False  # all that was published then could be read


class RunWatch:
    def __init__(self, upstream: Upstream, watch: Watch) -> None:
        self.runs = Runs()
        self._upstream = upstream
        self._watch = watch
        self._known: dict[str, _Known] = {}
        self._listeners = Listeners[None]()
        self.ready = self._listeners.ready
        self._task: asyncio.Task[None] | None = None
        self._begun_s = -limits.ADMIN_RUNS_EVERY_S
        watch.listen(self._on_snapshot)

    # --- for pages ---

    def listen(self, listener: Callable[[None], None]) -> Callable[[], None]:
        """Called after every look. Returns what ends it."""
        end = self._listeners.add(listener)
        self._on_snapshot(self._watch.latest)
        return end

    async def page(self, id: str, form: str) -> str | None:
        """A page that a run has made."""
        places = self.runs.page(id, form)
        if not places:
            return None
        return "".join([await self._part(id, form, place) for place in places])

    async def _part(self, id: str, form: str, place: Place) -> str:
        found = await messages.Log(self._upstream, place.node, PIPELINES).message(place.offset)
        try:
            part = decode(found.body) if found is not None else None
        except RunMessageInvalid:
            part = None  # the topic was made again meanwhile
        if not isinstance(part, Part) or (part.run, part.form) != (id, form):
            raise FetchFailed(place.node, "a part of the report is gone", 410)
        return part.text

    # --- its life ---

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        now_s = time.monotonic()
        is_due = self._listeners or now_s - self._begun_s >= limits.ADMIN_RUNS_EVERY_S
        if is_due and (self._task is None or self._task.done()):
            self._begun_s = now_s
            self._task = asyncio.get_running_loop().create_task(self._look(snapshot))

    async def _look(self, snapshot: Snapshot) -> None:
        try:
            for node in snapshot.nodes.values():
                if node.is_up:
                    await self._look_at(node)
        except Exception:
            log.exception("reading the runs of pipelines failed")
        self._listeners.first.set()
        self._listeners.send(None)

    async def _look_at(self, node: NodeState) -> None:
        now_s, known = time.time(), self._known.get(node.address)
        row = node.row(PIPELINES)
        if row is None:
            self.runs.looked(node.address, now_s)
            return
        seen = (node.start_s, int(row.get("message_count", 0)))
        if known is None or not known.is_settled or known.seen != seen:
            try:
                await self._read(node.address, seen)
            except PenstockError as error:
                log.info("%s: runs can't be read: %s", node.address, error)
                return
        self.runs.looked(node.address, now_s)

    async def _read(self, address: str, seen: tuple[int, int]) -> None:
        log_ = messages.Log(self._upstream, address, PIPELINES)
        try:
            extent = await log_.extent()
        except BrokerRefused:
            return  # the topic is not there any more
        known = self._known.get(address)
        is_first = known is None or known.identity != extent.identity
        if known is None or is_first:
            newest = extent.end - limits.ADMIN_RUNS_READ
            known = self._known[address] = _Known(extent.identity, max(newest, 0))
        known.offset = max(known.offset, extent.earliest)
        try:
            await self._take(log_, extent, known, is_first)
        except FetchFailed as error:
            if error.status not in _UNREADABLE:
                raise
            known.offset = extent.end
        except RangeCorrupt:
            raise  # it is not passed over: the next look asks for it again
        except ValueError:
            log.warning(
                "%s: messages of %s can't be read: they are passed over", address, PIPELINES
            )
            known.offset = extent.end
        known.seen, known.is_settled = seen, extent.end == extent.committed

    async def _take(
        self, log_: messages.Log, extent: messages.Extent, known: _Known, is_first: bool
    ) -> None:  # fmt: skip
        async for found in log_.walk(extent, known.offset, extent.end):
            now_s = time.time()
            for message in found:
                known.offset = message.offset + 1
                # What comes while we look was said now, whatever the node's clock says.
                stored_s = min(message.timestamp_ns / limits.SECOND, now_s)
                place = Place(log_.node, message.offset)
                self.runs.take(place, message.body, stored_s if is_first else now_s)
            await asyncio.sleep(0)  # a thousand messages at a time: others have their turn
        known.offset = extent.end
