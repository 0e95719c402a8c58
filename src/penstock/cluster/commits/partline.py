"""The parts of commits in one partition, at its leader, in one office.

| a transaction is | on | to | effects |
|---|---|---|---|
| unknown | `prepare` | PINNING | KeepPin |
| PINNING | `pinned`: the set has the record | PREPARED | Prepared |
| PREPARED | `prepare` again | PREPARED | Prepared |
| PINNING, PREPARED | `seen`: no prepare key, and no decision | RELEASING | DropPin |
| PINNING, PREPARED | `seen`: decided; all earlier ones are stored | STORING | Store |
| any | the log ends inside its part | STORING | Store, what is missing |
| STORING | `stored`: the last batch is in the log | STORED | |
| PINNING, PREPARED | the log has the whole part | STORED | |
| STORED | `committed` beyond its end | RELEASING | Done, DropPin |
| RELEASING | `unpinned`: the set has the record | unknown | DropStages, if they were stored |

A new leader makes the machine from its journal and its log. Its pins are PINNING, until the
snapshot with which each leader begins is with the set.

What is pinned stays: its stages do not expire (`is_pinned`). Retention can't remove a part that a
later leader would store again for lack of it: the log's start is decided as a record of the same
journal, at most at the visible end, and when that has passed a part, DropPin stands before it.

**Decided in order.** A view has all decisions up to its revision, so the one with the lowest
revision that is not in the log yet is the next. A leader with an older view than the one before it
finds in its log what that one has stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.cluster.commits.marks import Found, Mark, Marked, found_parts, found_with, visible_end
from penstock.cluster.commits.values import Pin

NONE = -1


class State(IntEnum):
    PINNING = 1
    PREPARED = 2
    STORING = 3
    STORED = 4
    RELEASING = 5


class Decided(NamedTuple):
    """A decision that names this partition, and is not closed."""

    revision: int
    transaction: int


class CommitsView(NamedTuple):
    """All that matters here, as of one revision: a key that was deleted, and what was put in the
    same transaction, are seen together."""

    revision: int
    decided: tuple[Decided, ...]
    prepares: frozenset[int]


# --- effects ---


class KeepPin(NamedTuple):
    """A record for the journal; call `pinned` when the set has synced it."""

    pin: Pin


class DropPin(NamedTuple):
    """The same, and `unpinned`."""

    transaction: int


class Prepared(NamedTuple):
    transaction: int


class Store(NamedTuple):
    """Write the messages of these stages from `place` on as batches with marks, and nothing else
    between; call `stored` for each. Take no other publishes while `is_storing`."""

    transaction: int
    stages: tuple[str, ...]
    messages: int
    place: int


class Done(NamedTuple):
    transaction: int


class DropStages(NamedTuple):
    """They are messages now. Those of a commit that came to nothing stay: it may be tried again."""

    stages: tuple[str, ...]


class PartLine:
    __slots__ = (
        "_decided",
        "_found",
        "_states",
        "_view",
        "committed_end",
        "out",
        "pins",
        "storing",
    )

    def __init__(
        self,
        pins: Iterable[Pin],
        batches: Iterable[Marked],
        committed: int,
    ) -> None:
        """`batches`: those with a mark, from the lowest `end` of a pin on, and of the part that
        reaches the committed end."""
        self.pins = {pin.transaction: pin for pin in pins}
        self.committed_end = committed
        self._view = CommitsView(0, (), frozenset())
        self.storing = NONE
        self.out: list[Any] = []
        self._states = dict.fromkeys(self.pins, State.PINNING)
        self._found: dict[int, Found] = found_parts(batches)
        self._decided: dict[int, int] = {}  # to the revision
        for transaction, found in self._found.items():
            if found.whole and transaction in self.pins:
                self._states[transaction] = State.STORED
        self._go_on()

    # --- what others ask ---

    @property
    def is_storing(self) -> bool:
        """The end of the log belongs to a part."""
        return self.storing != NONE

    def is_pinned(self, stage: str) -> bool:
        return any(stage in pin.stages for pin in self.pins.values())

    @property
    def visible(self) -> int:
        return visible_end(self.committed_end, self._found.values())

    def asked(self, transaction: int) -> None:
        """Is the part of this decided transaction done? A pin was with the set before the decision,
        and goes when the part is done."""
        if transaction not in self.pins:
            self.out.append(Done(transaction))

    # --- prepare ---

    def prepare(self, pin: Pin) -> None:
        """The shell has looked at the stages: they are there, and sound."""
        state = self._states.get(pin.transaction)
        if state is None:
            self.pins[pin.transaction] = pin
            self._states[pin.transaction] = State.PINNING
            self.out.append(KeepPin(pin))
        elif state is State.PREPARED:
            self.out.append(Prepared(pin.transaction))

    def pinned(self, transaction: int) -> None:
        if self._states.get(transaction) is State.PINNING:
            self._states[transaction] = State.PREPARED
            self.out.append(Prepared(transaction))
            self.seen(self._view)  # whose key may have gone since

    def unpinned(self, transaction: int) -> None:
        if self._states.get(transaction) is State.RELEASING:
            pin = self.pins.pop(transaction)
            del self._states[transaction]
            if transaction in self._found:
                self._forget(transaction)
                self.out.append(DropStages(pin.stages))

    def _release(self, transaction: int) -> None:
        self._states[transaction] = State.RELEASING
        self.out.append(DropPin(transaction))

    # --- decided ---

    def seen(self, view: CommitsView) -> None:
        if view.revision < self._view.revision:
            return
        self._view = view
        self._decided = {one.transaction: one.revision for one in view.decided}
        for pin in list(self.pins.values()):
            if self._is_over(pin, view):
                self._release(pin.transaction)
        self._go_on()

    def _is_over(self, pin: Pin, view: CommitsView) -> bool:
        if self._states[pin.transaction] not in (State.PINNING, State.PREPARED):
            return False
        if pin.transaction in self._decided or pin.transaction in view.prepares:
            return False
        return view.revision >= pin.revision

    def _go_on(self) -> None:
        if self.storing == NONE:
            self.storing = self._next()
            if self.storing != NONE:
                self._states[self.storing] = State.STORING
                self._store()
        self._finish()

    def _next(self) -> int:
        for transaction, found in self._found.items():
            if not found.whole and transaction in self.pins:
                return transaction
        waiting = [
            (revision, transaction)
            for transaction, revision in self._decided.items()
            if self._states.get(transaction) in (State.PINNING, State.PREPARED)
        ]
        if not waiting:
            return NONE
        return min(waiting)[1]

    def _store(self) -> None:
        pin = self.pins[self.storing]
        found = self._found.get(self.storing)
        place = found.messages if found is not None else 0
        self.out.append(Store(pin.transaction, pin.stages, pin.messages, place))

    def stored(self, mark: Mark, base: int, end: int) -> None:
        """A batch of the part is in the log."""
        transaction = mark.transaction
        found = found_with(self._found.get(transaction), Marked(mark, base, end))
        self._found[transaction] = found
        if found.whole:
            self._states[transaction] = State.STORED
            self.storing = NONE
            self._go_on()
        else:
            self._store()

    # --- done ---

    def committed(self, end: int) -> None:
        self.committed_end = max(self.committed_end, end)
        self._finish()

    def _finish(self) -> None:
        for transaction, found in list(self._found.items()):
            if not (found.whole and found.end <= self.committed_end):
                continue
            if self._states.get(transaction) is State.STORED:
                self.out.append(Done(transaction))
                self._release(transaction)
            self._forget(transaction)

    def _forget(self, transaction: int) -> None:
        """Of a part that all have, nothing is to be known, once its pin goes, too."""
        found = self._found[transaction]
        if transaction not in self.pins and found.whole and found.end <= self.committed_end:
            del self._found[transaction]

    # --- for tests ---

    def validate(self) -> None:
        if set(self.pins) != set(self._states):
            raise RuntimeError("a pin without a state, or a state without a pin")
        storing = [one for one, state in self._states.items() if state is State.STORING]
        if storing != ([] if self.storing == NONE else [self.storing]):
            raise RuntimeError(f"{storing} are being stored, where {self.storing} should be")
