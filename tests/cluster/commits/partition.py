"""A partition of the world of commits: three copies of a log and a journal, one of which leads.

Copies follow the leader as replication has it: prefixes of its log and its journal; what all have
is committed; a new leader has at least that, and the others are cut to it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from penstock.cluster.commits.marks import Mark, Marked, found_parts, visible_end
from penstock.cluster.commits.partline import (
    CommitsView,
    Done,
    DropPin,
    DropStages,
    KeepPin,
    PartLine,
    Prepared,
    Store,
)
from penstock.cluster.commits.values import Part, Pin


class Breach(Exception):
    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Batch(NamedTuple):
    base: int
    end: int
    mark: Mark | None
    stage: str = ""


class StartAt(NamedTuple):
    offset: int


class Copy:
    def __init__(self) -> None:
        self.log: list[Batch] = []
        self.journal: list[KeepPin | DropPin | StartAt] = []
        self.known = 0  # to be committed

    @property
    def end(self) -> int:
        return self.log[-1].end if self.log else 0

    def pins(self) -> dict[int, Pin]:
        pins: dict[int, Pin] = {}
        for record in self.journal:
            if isinstance(record, KeepPin):
                pins[record.pin.transaction] = record.pin
            elif isinstance(record, DropPin):
                pins.pop(record.transaction, None)
        return pins


class Partition:
    def __init__(self, part: Part, view: CommitsView) -> None:
        self.part = part
        self.copies = [Copy() for _ in range(3)]
        self.leader = 0
        self.start = 0  # of the log, as all copies have it
        self.stages: set[str] = set()
        self.messages: list[tuple[str, int]] = []  # for the committers: kind, transaction
        self.take_office(0, view)

    @property
    def own(self) -> Copy:
        return self.copies[self.leader]

    def take_office(self, leader: int, view: CommitsView) -> None:
        self.leader = leader
        own = self.own
        for copy in self.copies:
            while copy.end > own.end:
                copy.log.pop()
            del copy.journal[len(own.journal) :]
            copy.known = min(copy.known, own.end)
        self.journaled = 0  # records of it whose sync by all has been seen
        self.snapshot = len(own.journal)
        self.to_store: Store | None = None
        marked = [one for one in self.marked(own) if one.end > self.start]
        self.line = PartLine(own.pins().values(), marked, own.known)
        self.carry_out()
        self.see(view)

    @staticmethod
    def marked(copy: Copy) -> list[Marked]:
        return [Marked(one.mark, one.base, one.end) for one in copy.log if one.mark is not None]

    # --- the shell of the machine ---

    def carry_out(self) -> None:
        while self.line.out:
            effects, self.line.out = self.line.out, []
            for effect in effects:
                self._carry_out(effect)
        self.line.validate()

    def _carry_out(self, effect: Any) -> None:
        if isinstance(effect, KeepPin | DropPin):
            self.own.journal.append(effect)
        elif isinstance(effect, Prepared):
            self.messages.append(("prepared", effect.transaction))
        elif isinstance(effect, Done):
            self.messages.append(("done", effect.transaction))
        elif isinstance(effect, Store):
            self.to_store = effect
        elif isinstance(effect, DropStages):
            self.stages -= set(effect.stages)
        else:
            raise TypeError(effect)

    def see(self, view: CommitsView) -> None:
        self.line.seen(view)
        self.carry_out()

    def prepare(self, transaction: int, stage: str, messages: int, revision: int) -> None:
        if stage not in self.stages and transaction not in self.line.pins:
            self.messages.append(("refused", transaction))
            return
        self.line.prepare(Pin(transaction, (stage,), messages, self.own.end, revision))
        self.carry_out()

    def asked(self, transaction: int) -> None:
        self.line.asked(transaction)
        self.carry_out()

    def write(self, messages_max: int) -> None:
        """A batch of the part that is being stored."""
        store, self.to_store = self.to_store, None
        if store is None:
            return
        if store.stages[0] not in self.stages:
            raise Breach("I34", f"{store.stages[0]} is decided, and gone")
        count = min(messages_max, store.messages - store.place)
        more = store.place + count < store.messages
        mark = Mark(store.transaction, store.place, more)
        batch = Batch(self.own.end, self.own.end + count, mark, store.stages[0])
        self.own.log.append(batch)
        self.line.stored(mark, batch.base, batch.end)
        self.carry_out()

    def publish(self) -> None:
        if not self.line.is_storing:
            self.own.log.append(Batch(self.own.end, self.own.end + 1, None))

    # --- replication ---

    def replicate(self, place: int, log: bool) -> None:
        copy = self.copies[place]
        mine, theirs = (self.own.log, copy.log) if log else (self.own.journal, copy.journal)
        if len(theirs) < len(mine):
            theirs.append(mine[len(theirs)])  # type: ignore[arg-type]
        if log:
            copy.known = max(copy.known, min(self.own.known, copy.end))

    def replicate_all(self, place: int) -> None:
        copy = self.copies[place]
        for _ in range(len(self.own.log) - len(copy.log)):
            self.replicate(place, log=True)
        for _ in range(len(self.own.journal) - len(copy.journal)):
            self.replicate(place, log=False)

    def acknowledge(self) -> None:
        self.own.known = max(self.own.known, min(copy.end for copy in self.copies))
        self.line.committed(self.own.known)
        self.carry_out()
        synced = min(len(copy.journal) for copy in self.copies)
        if synced < self.snapshot:
            return
        records = self.own.journal[self.journaled : synced]
        self.journaled = synced
        for record in records:
            if isinstance(record, KeepPin):
                self.line.pinned(record.pin.transaction)
            elif isinstance(record, DropPin):
                self.line.unpinned(record.transaction)
            else:
                self.start = max(self.start, record.offset)
            self.carry_out()

    def retain(self) -> None:
        """Everything that may go goes."""
        self.own.journal.append(StartAt(self.line.visible))

    def expire(self) -> None:
        self.stages = {stage for stage in self.stages if self.line.is_pinned(stage)}

    # --- what readers see ---

    def visible(self, copy: Copy) -> int:
        if copy is self.own:
            return self.line.visible
        return visible_end(copy.known, found_parts(self.marked(copy)).values())
