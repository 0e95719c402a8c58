"""A document of the metadata that a client of this node changes: a pause, a setting, a deletion.

| the coordinator says | then |
|---|---|
| done | the client is answered when this node's view has it, and it has come true here |
| refused: it was changed meanwhile | the same with what stands there; no change left: done |
| unknown | the same again after a while; whether it was done shows in the next answer |
| nothing for CHANNEL_CONFIRM_NS | the client hears that it is not known |

A change is a function of the document, so that two nodes that are asked for different changes at
once both get theirs. It raises NotFound when the document is another thing by now: a topic or
channel that was deleted and made again has another identity or number.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from penstock.broker.ports import MetadataDone
from penstock.cluster.coordinator import Coordinator, Entry, Put, RevisionIs, Settled, Transaction
from penstock.cluster.jsonform import Form
from penstock.cluster.view import View
from penstock.errors import ChangeUnknown, DocumentBroken, NotFound, PenstockError
from penstock.limits import CHANNEL_CONFIRM_NS, COORDINATOR_RETRY_NS
from penstock.replica.leading import Outcome


class Wanted(NamedTuple):
    key: str
    form: Form[Any]
    change: Callable[[Any], Any]  # of the document, or of None; raises NotFound
    is_here: Callable[[], bool]  # has it come true?


class _Change:
    """On its way. `revision`: at which it is in force; 0: it is not known to be."""

    __slots__ = ("again", "again_ns", "deadline_ns", "done", "revision", "wanted")

    def __init__(self, wanted: Wanted, deadline_ns: int, done: MetadataDone) -> None:
        self.wanted = wanted
        self.deadline_ns = deadline_ns
        self.done = done
        self.revision = 0
        self.again: Callable[[], None] | None = None
        self.again_ns = 0


class MetadataChanges:
    def __init__(self, view: View, coordinator: Coordinator, now_ns: int) -> None:
        self._view = view
        self._coordinator = coordinator
        self._now_ns = now_ns
        self._changes: list[_Change] = []

    def change(self, wanted: Wanted, document: Any, revision: int, done: MetadataDone) -> None:
        """`document`: as the view has it, at that revision."""
        change = _Change(wanted, self._now_ns + CHANNEL_CONFIRM_NS, done)
        self._changes.append(change)
        self._put(change, document, revision)

    def _put(self, change: _Change, document: Any, revision: int) -> None:
        key, form, act, _ = change.wanted
        try:
            wanted = act(document)
        except (NotFound, DocumentBroken) as error:
            self._end(change, error)
            return
        if wanted == document:
            change.revision = revision
            return
        transaction = Transaction((RevisionIs(key, revision),), (Put(key, form.encode(wanted)),))
        again = partial(self._put, change, document, revision)
        self._coordinator.transact(transaction, partial(self._settled, change, again))

    def _settled(self, change: _Change, again: Callable[[], None], settled: Settled) -> None:
        if settled.outcome is Outcome.DONE:
            change.revision = settled.revision
        elif settled.outcome is Outcome.UNKNOWN:
            change.again, change.again_ns = again, self._now_ns + COORDINATOR_RETRY_NS
        else:
            self._found(change, settled.found)

    def _found(self, change: _Change, found: tuple[Entry, ...]) -> None:
        key, form, *_ = change.wanted
        document, revision = None, 0
        if found:
            try:
                document, revision = form.decode(key, found[0].value), found[0].revision
            except DocumentBroken as error:
                self._end(change, error)
                return
        self._put(change, document, revision)

    def tick(self, now_ns: int) -> None:
        """After what the view shows has come true here."""
        self._now_ns = now_ns
        for change in tuple(self._changes):
            self._look(change)

    def _look(self, change: _Change) -> None:
        is_seen = 0 < change.revision <= self._view.revision
        if is_seen and change.wanted.is_here():
            self._end(change, None)
        elif self._now_ns >= change.deadline_ns:
            reason = "it may be changed or not, ask again"
            self._end(change, ChangeUnknown(change.wanted.key, reason))
        elif change.again is not None and change.again_ns <= self._now_ns:
            again, change.again = change.again, None
            again()

    def _end(self, change: _Change, error: PenstockError | None) -> None:
        if change in self._changes:
            self._changes.remove(change)
            change.done(error)
