"""One node's way to the coordinator: it takes a step of the clock, and it can be cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from penstock.cluster.coordinator import (
    UNKNOWN,
    Changes,
    Compacted,
    Failed,
    Granted,
    LeaseGone,
    Page,
    Reading,
    Settled,
    Transaction,
)
from penstock.cluster.memory import MemoryWatch
from penstock.cluster.store import Store
from penstock.limits import SECOND

ANSWER_NS = 2 * SECOND  # then the caller hears that it failed


class _Call(NamedTuple):
    sent_ns: int
    run: Callable[[], Any]
    done: Callable[[Any], None]
    failed: Any


class Port:
    def __init__(self, store: Store) -> None:
        self.store = store
        self.now_ns = 0
        self.is_cut = False
        self._calls: list[_Call] = []
        self._watch: tuple[MemoryWatch, Callable[[Any], None]] | None = None

    def _call(self, run: Callable[[], Any], done: Callable[[Any], None], failed: Any) -> None:
        self._calls.append(_Call(self.now_ns, run, done, failed))

    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        self._call(lambda: self.store.transact(transaction), done, UNKNOWN)

    def read(self, key: str, done: Callable[[Reading | Failed], None]) -> None:
        self._call(
            lambda: Reading(self.store.revision, self.store.entries.get(key)),
            done,
            Failed("no answer"),
        )

    def list(self, prefix: str, done: Callable[[Page | Failed], None]) -> None:
        self._call(
            lambda: Page(self.store.revision, tuple(self.store.entries_of(prefix)), True),
            done,
            Failed("no answer"),
        )

    def watch(
        self, prefix: str, since: int, changed: Callable[[Changes | Compacted | Failed], None]
    ) -> MemoryWatch:
        """A node has one."""
        watch = MemoryWatch(self.store, prefix, since, changed)
        self._watch = watch, changed
        return watch

    def grant(self, ttl_ns: int, done: Callable[[Granted | Failed], None]) -> None:
        self._call(
            lambda: Granted(self.store.grant(ttl_ns, self.now_ns), ttl_ns),
            done,
            Failed("no answer"),
        )

    def keep(self, lease: int, done: Callable[[Granted | LeaseGone | Failed], None]) -> None:
        def run() -> Granted | LeaseGone:
            if self.store.keep(lease, self.now_ns):
                return Granted(lease, self.store.leases[lease])
            return LeaseGone(lease)

        self._call(run, done, Failed("no answer"))

    def revoke(self, lease: int) -> None:
        self._call(lambda: self.store.revoke(lease), lambda answer: None, None)

    def run(self, now_ns: int) -> None:
        """A step of the clock."""
        self.now_ns = now_ns
        calls, self._calls = self._calls, []
        for call in calls:
            if not self.is_cut:
                call.done(call.run())
            elif now_ns - call.sent_ns >= ANSWER_NS:
                call.done(call.failed)
            else:
                self._calls.append(call)
        if self._watch is None:
            return
        watch, changed = self._watch
        if self.is_cut and not watch.is_over:
            watch.is_over = True
            changed(Failed("the connection broke"))
        elif not self.is_cut:
            watch.run()
