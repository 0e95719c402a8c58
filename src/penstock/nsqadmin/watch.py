"""The one who asks: every nsqd's `/stats`, again and again, for all pages at once.

However many browsers look, an nsqd is asked once an interval. The interval grows with what an
answer costs: an nsqd that needs 50 ms for its answer is asked every 2.5 seconds, so that it spends
no more than a fiftieth of a core on us. What it costs is the quickest of the last answers: a slow
one among them has waited for others. After an action the next question comes at once.

Those who want to know register a callback, which gets every new snapshot in the event loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable

from penstock import limits
from penstock.errors import FetchFailed
from penstock.nsqadmin import snapshot
from penstock.nsqadmin.snapshot import NodeState, Snapshot
from penstock.nsqadmin.upstream import Producer, Upstream, UpstreamFailed

log = logging.getLogger("penstock.nsqadmin.watch")

Listener = Callable[[Snapshot], None]


class Watch:
    def __init__(self, upstream: Upstream, interval_ns: int) -> None:
        self._upstream = upstream
        self._interval_s = interval_ns / limits.SECOND
        self._listeners: list[Listener] = []
        self._task: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._looked = asyncio.Event()
        self._producers: list[Producer] = []
        self._names: list[str] = []
        self._errors: tuple[str, ...] = ()
        self._discovered_s = 0.0
        self.latest = Snapshot()

    # --- for pages ---

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Returns what ends it."""
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    async def ready(self) -> None:
        """Until the first look is done, as it is soon after the start; or a while, if it is not."""
        try:
            await asyncio.wait_for(self._looked.wait(), limits.ADMIN_READY_S)
        except TimeoutError:
            return

    def hurry(self) -> None:
        """Something was changed: look now."""
        self._discovered_s = 0.0
        self._hurry.set()

    # --- its life ---

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            self._hurry.clear()
            try:
                await self.look()
            except Exception:
                log.exception("looking at the installation failed")
            try:
                await asyncio.wait_for(self._hurry.wait(), self._pause_s())
            except TimeoutError:
                continue
            await asyncio.sleep(limits.ADMIN_HURRY_S)  # several actions in a row are one look

    def _pause_s(self) -> float:
        return pause_s(self._interval_s, self.latest.nodes.values())

    async def look(self) -> Snapshot:
        """Ask all, once."""
        now_s = time.monotonic()
        if not self._discovered_s or now_s - self._discovered_s > limits.ADMIN_DISCOVERY_S:
            await self._discover()
            self._discovered_s = now_s
        before = self.latest
        states = await asyncio.gather(
            *(self._ask(one, before.nodes.get(one.address)) for one in self._producers)
        )
        nodes = {state.address: state for state in states}
        self.latest = snapshot.make(time.time(), nodes, self._names, self._errors, before)
        self._looked.set()
        for listener in tuple(self._listeners):
            try:
                listener(self.latest)
            except Exception:
                log.exception("a page or chart did not take the last look")
        return self.latest

    async def _discover(self) -> None:
        """Who is there. When nobody says so, those who were there are asked on."""
        try:
            if self._upstream.lookupds:
                self._producers, missed = await self._upstream.producers()
                self._names, warning = await self._upstream.topics()
                self._errors = tuple(dict.fromkeys(one for one in (missed, warning) if one))
            else:
                self._producers = await self._given()
                self._errors = ()
        except UpstreamFailed as error:
            self._errors = (str(error),)

    async def _given(self) -> list[Producer]:
        """nsqds that were named: those that do not answer stand there too."""

        async def describe(address: str) -> Producer:
            known = next((one for one in self._producers if one.address == address), None)
            try:
                return await self._upstream.describe(address)
            except FetchFailed:
                return known or Producer("", address, 0, 0, "", given_address=address)

        return list(await asyncio.gather(*map(describe, self._upstream.nsqds)))

    async def _ask(self, producer: Producer, known: NodeState | None) -> NodeState:
        state = NodeState(producer.address, producer)
        if known is not None:
            state.document, state.answered_s = known.document, known.answered_s
            state.took_s = known.took_s
        begun_s = time.monotonic()
        try:
            state.document = snapshot.lean(await self._upstream.light_stats(producer.address))
        except FetchFailed as error:
            state.error = error.reason
        else:
            state.answered_s = time.monotonic()
            took_s = (*state.took_s, state.answered_s - begun_s)
            state.took_s = took_s[-limits.ADMIN_POLL_ANSWERS :]
        return state


def pause_s(interval_s: float, nodes: Iterable[NodeState]) -> float:
    """From one look to the next."""
    dearest_s = max((node.cost_s for node in nodes), default=0.0)
    return min(max(interval_s, dearest_s * limits.ADMIN_POLL_SHARE), limits.ADMIN_POLL_S_MAX)
