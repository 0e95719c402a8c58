"""A watch over one stream of one endpoint.

**How far a watch is** cannot be asked of every etcd: releases before 3.4.25 and 3.5.8 answer a
request for progress with a revision of which some events are still to come. A change of the
watched keys shows it in any release, since events come in the order of their revisions. So the
watch makes one: it writes the key `pulse`, and when that comes back, all before it has come. Nodes
that watch the same cluster see each other's pulses, so together they write about one in a period.

The answer to that write tells more: a revision below the one that the watch waits for means that
the coordinator was restored, and then nothing would come for a long time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.cluster.coordinator import (
    Changes,
    Compacted,
    Event,
    Failed,
    Put,
    Settled,
    Transaction,
)
from penstock.net.etcd.messages import PULSE, Keys
from penstock.replication.leader import Outcome

if TYPE_CHECKING:
    from penstock.net.etcd.session import EtcdCoordinator

_PULSE = Transaction((), (Put(PULSE, b""),))
Changed = Callable[[Changes | Compacted | Failed], None]


class EtcdWatch:
    def __init__(
        self, session: EtcdCoordinator, keys: Keys, prefix: str, since: int, changed: Changed
    ) -> None:
        self.endpoint = ""  # whose stream it is
        self.is_over = False
        self._session = session
        self._keys = keys
        self._prefix = prefix
        self._since = since  # all below it has been handed out
        self._changed = changed
        self._events: list[Event] = []  # of an answer that comes in fragments
        self._heard = False  # something, since the last question
        self._task: asyncio.Task[None] | None = None

    def begin(self, task: asyncio.Task[None]) -> None:
        self._task = task

    def ask_progress(self) -> None:
        if self.is_over:
            return
        if self._heard:
            self._heard = False
            self._changed(Changes(self._since - 1, ()))
            return
        self._session.transact(_PULSE, self._pulsed)

    def _pulsed(self, settled: Settled) -> None:
        done = settled.outcome is Outcome.DONE
        if done and not self.is_over and settled.revision < self._since:
            self._changed(Changes(settled.revision, ()))

    def cancel(self) -> None:
        self.is_over = True
        if self._task is not None:
            self._task.cancel()

    def fail(self, reason: str) -> None:
        """The endpoint has been given up."""
        self._end(Failed(reason))

    def _end(self, last: Compacted | Failed) -> None:
        if not self.is_over:
            self.cancel()
            self._changed(last)

    # --- the stream ---

    async def follow(self, stream: Any) -> None:
        await stream.write(self._keys.watch(self._prefix, self._since))
        async for response in stream:
            if self.is_over:
                return
            if response.canceled:
                self._end(_reason(response))
                return
            self._take(response)
        self._end(Failed("the stream of changes has ended"))

    def _take(self, response: Any) -> None:
        self._events.extend(map(self._keys.event, response.events))
        if response.fragment or not self._events:
            return
        events, self._events = self._events, []
        revision = events[-1].revision
        self._since, self._heard = revision + 1, True
        shown = tuple(event for event in events if event.key != PULSE)
        self._changed(Changes(revision, shown))


def _reason(response: Any) -> Compacted | Failed:
    if response.compact_revision:
        return Compacted(response.compact_revision)
    return Failed(response.cancel_reason or "etcd has ended the watch")
