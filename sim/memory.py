"""The coordinator in memory: of a node that has no process beside it.

Each node of a test has one of its own over the same store. Calls wait until `run`, which answers
them, so that no answer comes from within its call: the callers meet the order that etcd shows them.
"""

from collections import deque
from collections.abc import Callable

from penstock.cluster.coordinator import (
    Changes,
    Compacted,
    Failed,
    Granted,
    KeyPage,
    LeaseGone,
    Reading,
    Settled,
    Transaction,
)
from penstock.limits import LIST_PAGE_KEYS
from sim.store import Store


class MemoryWatch:
    __slots__ = ("_asked", "_changed", "_prefix", "_since", "_store", "is_over")

    def __init__(
        self,
        store: Store,
        prefix: str,
        since: int,
        changed: Callable[[Changes | Compacted | Failed], None],
    ) -> None:
        self._store = store
        self._prefix = prefix
        self._since = since
        self._changed = changed
        self._asked = False
        self.is_over = False

    def request_progress(self) -> None:
        self._asked = True

    def cancel(self) -> None:
        self.is_over = True

    def run(self) -> bool:
        """Hand out what there is. True: there was something."""
        if self.is_over or not (self._asked or self._since <= self._store.revision):
            return False
        asked, self._asked = self._asked, False
        revision = self._store.revision
        events = self._store.events(self._prefix, self._since) if self._since <= revision else []
        if isinstance(events, Compacted):
            self.is_over = True
            self._changed(events)
            return True
        self._since = max(self._since, revision + 1)
        if events or asked:
            self._changed(Changes(revision, tuple(events)))
        return bool(events or asked)


class MemoryCoordinator:
    def __init__(self, store: Store, mono_ns: Callable[[], int]) -> None:
        self.store = store
        self._mono_ns = mono_ns
        self._calls: deque[Callable[[], None]] = deque()
        self._watches: list[MemoryWatch] = []

    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        transaction.check()
        self._calls.append(lambda: done(self.store.transact(transaction)))

    def read(self, key: str, done: Callable[[Reading | Failed], None]) -> None:
        self._calls.append(lambda: done(Reading(self.store.revision, self.store.entries.get(key))))

    def list(self, prefix: str, done: Callable[[KeyPage | Failed], None]) -> None:
        self._calls.append(lambda: self._list(prefix, done))

    def _list(self, prefix: str, done: Callable[[KeyPage | Failed], None]) -> None:
        entries = tuple(self.store.entries_of(prefix))
        revision = self.store.revision
        for start in range(0, max(len(entries), 1), LIST_PAGE_KEYS):
            page = entries[start : start + LIST_PAGE_KEYS]
            done(KeyPage(revision, page, start + LIST_PAGE_KEYS >= len(entries)))

    def watch(
        self, prefix: str, since: int, changed: Callable[[Changes | Compacted | Failed], None]
    ) -> MemoryWatch:
        watch = MemoryWatch(self.store, prefix, since, changed)
        self._watches.append(watch)
        return watch

    def grant(self, ttl_ns: int, done: Callable[[Granted | Failed], None]) -> None:
        self._calls.append(lambda: done(Granted(self.store.grant(ttl_ns, self._mono_ns()), ttl_ns)))

    def keep(self, lease: int, done: Callable[[Granted | LeaseGone | Failed], None]) -> None:
        self._calls.append(lambda: done(self._kept(lease)))

    def _kept(self, lease: int) -> Granted | LeaseGone:
        if self.store.keep(lease, self._mono_ns()):
            return Granted(lease, self.store.leases[lease])
        return LeaseGone(lease)

    def run(self) -> bool:
        """Answer what was asked until now, and hand out changes. True: there was something."""
        self.store.run_out(self._mono_ns())
        calls, self._calls = self._calls, deque()
        for call in calls:
            call()
        self._watches = [watch for watch in self._watches if not watch.is_over]
        moved = [watch.run() for watch in tuple(self._watches)]
        return bool(calls) or any(moved)
