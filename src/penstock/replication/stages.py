"""The stages of a partition on several nodes, at its leader, in one leadership.

A stage is a file that is the same on every replica. Its number names it for the partition's whole
life: the epoch of the leadership in which it came, and a count. The leader's journal lists it with
length and crc when all who need it have it, and it is answered when that record is held.

| a stage is | on | to | effects |
|---|---|---|---|
| unknown | `wrote`: the leader's disk has its file | SENT | Send, to each needed member |
| SENT | a needed member is linked, or another becomes one | SENT | Send |
| SENT | every needed member has stored it | LISTED | List |
| SENT | one of them can't store it | unknown | Unlist, Refuse |
| listed in the journal, and not here | the leadership begins | LACKING | Ask, each that is linked |
| LISTED | `damaged`: its file is corrupt here | LACKING | Ask, each that is linked |
| LACKING | `wrote`: another replica had it | LISTED | Send, to those that asked for it |
| LACKING | every needed member asks for it, too | unknown | Unlist |
| any | `drop` | unknown | Unlist |

A follower that finds one listed that it lacks asks for it (`journal` says why the set waits for
that). So who is not needed yet, a learner above all, is sent nothing here, and what was sent over a
link that broke comes in one way or the other.

**Lacking** is a stage whose record never was held, so that it was never answered; or one whose file
is corrupt on the leader's disk. A member that has it tells these two apart: so all are asked.

The stages that a follower's journal lists, and whose files it does not have.

From the first record on that lists one of them, no place is shown as synced. A snapshot that lists
it once more changes nothing about that: the journal may be synced up to a place between the two. At
a start it is not known which record was the first, nor does it matter for a file that turns out to
be corrupt: then no place is shown at all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import Any, NamedTuple

from penstock.log.fold import Position


class State(IntEnum):
    SENT = 1
    LISTED = 2
    LACKING = 3


# --- effects ---


class Send(NamedTuple):
    node: int
    stage: int


class Ask(NamedTuple):
    node: int
    stage: int


class List(NamedTuple):
    """In the journal; answer when that is held."""

    stage: int


class Unlist(NamedTuple):
    """In the journal, and the file goes."""

    stage: int


class Refuse(NamedTuple):
    stage: int
    reason: str


class StageReplication:
    """`listed`: by the journal that the leadership took over; `here`: those of them whose files
    are."""

    __slots__ = ("_linked", "_needed", "_node", "_stored", "_without", "out", "states")

    def __init__(self, node: int, listed: Iterable[int], here: Collection[int]) -> None:
        self.out: list[Any] = []
        self.states = {one: State.LISTED if one in here else State.LACKING for one in listed}
        self._node = node
        self._needed: frozenset[tuple[int, int]] = frozenset()
        self._linked: set[int] = set()
        self._stored: dict[int, set[tuple[int, int]]] = {}  # of those that are SENT
        # Of those that are LACKING: nodes that asked for them, and their replicas; 0: not known.
        self._without: dict[int, dict[int, int]] = {}

    @property
    def lacking(self) -> list[int]:
        return [stage for stage, state in self.states.items() if state is State.LACKING]

    # --- who there is ---

    def needs(self, members: Collection[tuple[int, int]]) -> None:
        """Node and replica of each member of each possible set, and of who is about to be one."""
        before = self._needed
        self._needed = frozenset(one for one in members if one[0] != self._node)
        for node, replica in sorted(self._needed - before):
            self._send_to(node, replica)
        self._look_at_all()

    def linked(self, node: int) -> None:
        """Its log is level in this session."""
        self._linked.add(node)
        for member in sorted(self._needed):
            if member[0] == node:
                self._send_to(*member)
        self.out += [Ask(node, stage) for stage in self.lacking]

    def unlinked(self, node: int) -> None:
        self._linked.discard(node)

    def _send_to(self, node: int, replica: int) -> None:
        if node in self._linked:
            self.out += [
                Send(node, stage)
                for stage, stored in self._stored.items()
                if (node, replica) not in stored
            ]

    # --- stages ---

    def wrote(self, stage: int) -> None:
        """Its file is here, durably: a new one, or one that was lacking."""
        if self.states.get(stage) is State.LACKING:
            self.states[stage] = State.LISTED
            asked = sorted(self._without.pop(stage, ()))
            self.out += [Send(node, stage) for node in asked if node in self._linked]
        elif stage not in self.states:
            self.states[stage] = State.SENT
            self._stored[stage] = set()
            for node in sorted(node for node, _ in self._needed if node in self._linked):
                self.out.append(Send(node, stage))
            self._look(stage)

    def damaged(self, stage: int, node: int) -> None:
        """It was to be sent to this node."""
        if self.states.get(stage) is State.LISTED:
            self.states[stage] = State.LACKING
            self.ask_again(stage)
        if self.states.get(stage) is State.LACKING:
            self._without.setdefault(stage, {}).setdefault(node, 0)

    def ask_again(self, stage: int) -> None:
        """It came, and could not be stored."""
        if self.states.get(stage) is State.LACKING:
            self.out += [Ask(node, stage) for node in sorted(self._linked)]

    def stored(self, node: int, replica: int, stage: int) -> None:
        if stage in self._stored:
            self._stored[stage].add((node, replica))
            self._look(stage)

    def refused(self, node: int, replica: int, stage: int, reason: str) -> None:
        if stage in self._stored and (node, replica) in self._needed:
            self.drop(stage)
            self.out.append(Refuse(stage, reason))

    def asked(self, node: int, replica: int, stage: int) -> None:
        """By a replica that finds it listed, and lacks it."""
        state = self.states.get(stage)
        if state is State.LACKING:
            self._without.setdefault(stage, {})[node] = replica
            self._look(stage)
        elif state is not None:
            self.out.append(Send(node, stage))

    def drop(self, stage: int) -> None:
        """It was given up, or its messages are in the log."""
        if self.states.pop(stage, None) is not None:
            self._stored.pop(stage, None)
            self._without.pop(stage, None)
            self.out.append(Unlist(stage))

    def _look_at_all(self) -> None:
        for stage in [*self._stored, *self.lacking]:
            self._look(stage)

    def _look(self, stage: int) -> None:
        state = self.states.get(stage)
        if state is State.SENT and self._stored[stage] >= self._needed:
            self.states[stage] = State.LISTED
            del self._stored[stage]
            self.out.append(List(stage))
        elif state is State.LACKING:
            without = self._without.get(stage, {})
            if all(without.get(node) == replica for node, replica in self._needed):
                self.drop(stage)

    # --- for tests ---

    def validate(self) -> None:
        sent = {stage for stage, state in self.states.items() if state is State.SENT}
        if sent != self._stored.keys() or not self._without.keys() <= set(self.lacking):
            raise RuntimeError("a stage whose state is not what is waited for")


NOTHING = Position(0, 0)


class Lacking:
    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, Position] = {}  # of the records that list them

    @property
    def stages(self) -> list[int]:
        return list(self._places)

    def now(self, stages: Collection[int], place: Position) -> None:
        """All of them, after the record of this place."""
        known = self._places if place != NOTHING else {}
        self._places = {stage: known.get(stage, place) for stage in stages}

    def found(self, stage: int) -> bool:
        return self._places.pop(stage, None) is not None

    def lost(self, stage: int) -> None:
        self._places[stage] = NOTHING

    def shown(self, synced: Position) -> Position:
        """The place that counts as synced, where the journal itself is synced up to this one."""
        if not self._places:
            return synced
        first = min(self._places.values())
        if synced < first:
            return synced
        return first._replace(sequence=first.sequence - 1) if first.sequence else NOTHING
