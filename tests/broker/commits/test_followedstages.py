"""A follower's stages: what it asks for, stores, and does not store any more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from penstock.broker.commits.followedstages import FollowedStages
from penstock.broker.commits.stagestore import staged_of
from penstock.log.fold import Folding, Group, Position, staged_entry
from penstock.replica.frames import Target
from penstock.replica.journalline import JournalFollower
from penstock.replica.stageframes import AskStage, SendStage, StageStored
from sim.disk import Fault

from ..following import Wire
from .test_stagestore import NUMBER, Lab, file_of

LEADER, REPLICA, LIFE = 7, 99, 5
STAGED = staged_of(file_of(), 5)


class Follower(Lab):
    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.folding = Folding()
        self.line = JournalFollower(REPLICA, 3, Position(3 << 32, 0), 0)
        self.moves = 0
        self.place = Position(3 << 32, 0)
        station: Any = SimpleNamespace(life=LIFE, peers=self.wire)
        journal: Any = SimpleNamespace(folding=self.folding)
        self.stages = FollowedStages(
            station, Target(1, 0), REPLICA, self.store, journal, self.line, self._moved
        )
        self.stages.greeted(LEADER)

    def _moved(self) -> None:
        self.moves += 1

    def say(self, entries: bytes) -> list[Any]:
        """A record of the leader."""
        self.place = self.place._replace(sequence=self.place.sequence + 1)
        self.folding.apply(0, [Group(0, entries)])
        self.stages.applied(self.place)
        return self.take()

    def come(self, number: int = NUMBER, file: bytes | None = None) -> list[Any]:
        self.stages.came(LEADER, SendStage(LIFE, number, file or file_of()))
        return self.take()

    def take(self) -> list[Any]:
        self.turn()
        return self.wire.take()


def test_a_listed_one_that_lacks_is_asked_for_once_a_session() -> None:
    one = Follower()
    asked = AskStage(LIFE, REPLICA, NUMBER)
    assert one.say(staged_entry(NUMBER, STAGED)) == [asked]
    assert one.say(b"") == []
    one.stages.settle()
    assert one.take() == []
    one.stages.greeted(LEADER)
    assert one.take() == [asked]
    assert one.come() == [StageStored(LIFE, REPLICA, NUMBER)]
    assert (one.line.lacking, one.moves) == ([], 1)


def test_what_is_not_as_it_is_listed_is_not_stored() -> None:
    one = Follower()
    one.say(staged_entry(NUMBER, STAGED))
    assert one.come(file=file_of(body=b"y" * 64)) == []
    one.stages.settle()
    assert one.take() == [AskStage(LIFE, REPLICA, NUMBER)]


def test_what_cannot_be_stored_is_asked_for_again() -> None:
    one = Follower()
    one.say(staged_entry(NUMBER, STAGED))
    one.disk.inject(Fault("write", path_part=".stage"))
    (answer,) = one.come()
    assert "cannot be written" in answer.reason
    assert one.line.lacking == [NUMBER]
    one.stages.settle()
    assert one.take() == [AskStage(LIFE, REPLICA, NUMBER)]


def test_a_snapshot_of_a_higher_epoch_that_does_not_list_it_removes_it() -> None:
    one = Follower()
    one.come()
    one.stages.applied(Position(4 << 32, 0))
    one.turn()
    assert one.names == []


def test_one_that_rots_is_asked_for() -> None:
    one = Follower()
    one.come()
    one.stages.lost(NUMBER)  # it is not listed
    assert one.take() == []
    one.say(staged_entry(NUMBER, STAGED))
    one.stages.lost(NUMBER)
    assert one.take() == [AskStage(LIFE, REPLICA, NUMBER)]
    assert one.line.lacking == [NUMBER]
