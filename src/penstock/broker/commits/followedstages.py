"""The stages of a replica that follows: which of those that its journal lists are here.

| | then |
|---|---|
| a record lists one that is not here | the leader is asked for it (`replica/lacking.py`) |
| the leader sends one | it is stored, and the leader hears so; most come before they are listed |
| a record unlists one | its file goes |
| a snapshot of a higher epoch does not list one | the same: it never was answered |

What could not be stored is asked for again at housekeeping.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.commits.stagestore import staged_of
from penstock.broker.ports import Lane
from penstock.broker.station import Station
from penstock.limits import STAGES_GIVEN_UP_MAX
from penstock.log.fold import Position, epoch_of
from penstock.log.followedjournal import FollowedJournal
from penstock.replica.frames import Target, encode
from penstock.replica.lacking import NOTHING
from penstock.replica.stageframes import AskStage, SendStage, StageStored

if TYPE_CHECKING:
    from penstock.broker.commits.stagestore import StageStore
    from penstock.replica.journalline import JournalFollower

NO_NODE = -1


class FollowedStages:
    """`moved`: the machine has something to say to the leader."""

    def __init__(
        self,
        station: Station,
        target: Target,
        replica: int,
        store: StageStore,
        journal: FollowedJournal,
        line: JournalFollower,
        moved: Callable[[], None],
    ) -> None:
        self._station = station
        self._target = target
        self._replica = replica
        self._store = store
        self._journal = journal
        self._line = line
        self._moved = moved
        self._leader = NO_NODE
        self._asked: set[int] = set()  # of this leader, in this session
        self._given_up: deque[int] = deque(maxlen=STAGES_GIVEN_UP_MAX)
        self._said = -1  # by the journal, of stages, when it was last looked at
        self._look(NOTHING)

    # --- the journal ---

    def applied(self, place: Position) -> None:
        """A record is in the journal, and the machine does not know yet."""
        if place.sequence == 0 or self._said != self._journal.folding.stages_said:
            self._look(place)
            self._ask()

    def _look(self, place: Position) -> None:
        folding, here = self._journal.folding, self._store.stages
        self._said = folding.stages_said
        unlisted = {number for number in folding.unstaged if number not in folding.stages}
        folding.unstaged.clear()
        if place.sequence == 0:
            epoch = epoch_of(place.generation)
            unlisted |= {one for one in here if one not in folding.stages and one >> 32 < epoch}
        self._given_up.extend(unlisted)
        self._store.remove(unlisted)
        self._line.lacks([one for one in folding.stages if one not in here], place)
        self._asked &= set(self._line.lacking)

    # --- the leader ---

    def greeted(self, node: int) -> None:
        """It begins a session."""
        self._leader = node
        self._asked.clear()
        self._ask()

    def settle(self) -> None:
        """Housekeeping."""
        self._ask()

    def _ask(self) -> None:
        if self._leader == NO_NODE:
            return
        for number in self._line.lacking:
            if number not in self._asked:
                self._asked.add(number)
                question = AskStage(self._station.life, self._replica, number)
                self._send(self._leader, question)

    def came(self, node: int, frame: SendStage) -> None:
        staged = self._journal.folding.stages.get(frame.number)
        if staged is not None and staged_of(frame.file, staged.created_ns) != staged:
            self._asked.discard(frame.number)  # its sender notices that, too
            return

        def stored(reason: str) -> None:
            if self._is_given_up(frame.number):
                self._store.remove([frame.number])
                return
            answer = StageStored(self._station.life, self._replica, frame.number, reason)
            self._send(node, answer)
            if reason:
                self._asked.discard(frame.number)
            else:
                self._line.has(frame.number)
                self._moved()

        if not self._is_given_up(frame.number):
            self._store.write(frame.number, frame.file, stored)

    def _is_given_up(self, number: int) -> bool:
        """While it was on its way. A later leader that does not know of that lists it again."""
        return number in self._given_up and number not in self._journal.folding.stages

    def lost(self, number: int) -> None:
        """Its file was read, and is corrupt."""
        if number in self._journal.folding.stages:
            self._line.lost(number)
            self._moved()
            self._ask()

    def _send(self, node: int, frame: AskStage | StageStored) -> None:
        self._station.peers.send(node, Lane.LIVE, encode(self._target, frame))
