"""One node's way to the coordinator: it takes time, it loses answers, and it can be cut.

A call arrives at the coordinator, and its answer comes back, each at a time of its own: calls
overtake one another. Who waits for longer than ANSWER_NS hears that there was no answer; what was
asked for may arrive all the same, though its process has ended meanwhile.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from penstock.clock import NEVER_NS
from penstock.cluster.coordinator import (
    UNKNOWN,
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
from penstock.limits import LIST_PAGE_KEYS, SECOND
from sim.store import Store

ANSWER_NS = 2 * SECOND  # then the caller hears that it failed


class PortWatch:
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


class Passage(NamedTuple):
    """Of one call: how long it takes there, and its answer back. NEVER_NS: it is lost."""

    there_ns: int = 0
    back_ns: int = 0


AT_ONCE = Passage()


class _Call:
    __slots__ = ("answer", "arrives_ns", "back_ns", "done", "failed", "run", "sent_ns", "what")

    def __init__(
        self,
        what: Transaction | None,
        run: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Any,
        sent_ns: int,
        passage: Passage,
    ) -> None:
        self.what = what
        self.run: Callable[[], Any] | None = run  # None: it has arrived
        self.done: Callable[[Any], None] | None = done  # None: it was answered, or given up
        self.failed = failed
        self.sent_ns = sent_ns
        self.arrives_ns = sent_ns + passage.there_ns
        self.back_ns = passage.back_ns
        self.answer: Any = None


class Port:
    """Answers, and changes, come by `run`. `pass_` says how long each call takes."""

    def __init__(self, store: Store, pass_: Callable[[], Passage] = lambda: AT_ONCE) -> None:
        self.store = store
        self.now_ns = 0
        self.is_cut = False
        self._pass = pass_
        self._calls: list[_Call] = []
        self._watch: tuple[PortWatch, Callable[[Any], None]] | None = None

    def _call(
        self,
        run: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Any,
        what: Transaction | None = None,
    ) -> None:
        self._calls.append(_Call(what, run, done, failed, self.now_ns, self._pass()))

    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        transaction.check()
        self._call(lambda: self.store.transact(transaction), done, UNKNOWN, transaction)

    def read(self, key: str, done: Callable[[Reading | Failed], None]) -> None:
        self._call(
            lambda: Reading(self.store.revision, self.store.entries.get(key)),
            done,
            Failed("no answer"),
        )

    def list(self, prefix: str, done: Callable[[KeyPage | Failed], None]) -> None:
        def each(found: Iterable[KeyPage | Failed]) -> None:
            for page in found:
                done(page)

        self._call(lambda: self._pages(prefix), each, (Failed("no answer"),))

    def _pages(self, prefix: str) -> Iterable[KeyPage]:
        revision, entries = self.store.revision, tuple(self.store.entries_of(prefix))
        starts = range(0, max(len(entries), 1), LIST_PAGE_KEYS)
        pages = [entries[start : start + LIST_PAGE_KEYS] for start in starts]
        return tuple(KeyPage(revision, page, page is pages[-1]) for page in pages)

    def watch(
        self, prefix: str, since: int, changed: Callable[[Changes | Compacted | Failed], None]
    ) -> PortWatch:
        """A node has one."""
        watch = PortWatch(self.store, prefix, since, changed)
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

    # --- time ---

    def pending(self) -> Iterator[Transaction]:
        """What may still arrive."""
        return (one.what for one in self._calls if one.what is not None and one.run is not None)

    def close(self) -> None:
        """Its process has ended: what is on its way arrives, and is answered to nobody."""
        self._watch = None
        for call in self._calls:
            call.done = None
        self._drop()

    def run(self, now_ns: int) -> None:
        """A step of the clock."""
        self.now_ns = now_ns
        for call in tuple(self._calls):
            if call.run is not None and now_ns >= call.arrives_ns and not self.is_cut:
                call.answer, call.run = call.run(), None
            self._answer(call, now_ns)
        self._drop()
        self._run_watch()

    def _answer(self, call: _Call, now_ns: int) -> None:
        done = call.done
        if done is None:
            return
        is_here = call.run is None and now_ns >= call.arrives_ns + call.back_ns
        if is_here and not self.is_cut:
            call.done = None
            done(call.answer)
        elif now_ns - call.sent_ns >= ANSWER_NS:
            call.done = None
            done(call.failed)

    def _drop(self) -> None:
        """What is over. What was given up at a cut was never sent, unless it is on its way."""
        self._calls = [
            call
            for call in self._calls
            if call.done is not None
            or (call.run is not None and call.sent_ns < call.arrives_ns < NEVER_NS)
        ]

    def break_watch(self) -> None:
        """The process of the coordinator has ended, say to be restored."""
        if self._watch is not None and not self._watch[0].is_over:
            watch, changed = self._watch
            watch.is_over = True
            changed(Failed("the connection broke"))

    def _run_watch(self) -> None:
        if self._watch is None:
            return
        if self.is_cut:
            self.break_watch()
        else:
            self._watch[0].run()
