"""Who writes which record of a channel journal, and when the set has it."""

from __future__ import annotations

import pytest

from cases import each
from penstock.log.fold import Position, generation_of
from penstock.replication.effects import Leave, Stop
from penstock.replication.journal import (
    NOTHING,
    AcknowledgePlace,
    Answer,
    AskSnapshot,
    DropBelow,
    HelloJournal,
    JournalFollower,
    JournalLeader,
    SendRecord,
    SyncJournal,
    TakeRecord,
    TakeSnapshot,
)

REPLICA = 77
MEMBERS = {(0, 70), (1, 71), (2, 72)}


def at(epoch: int, number: int, sequence: int) -> Position:
    return Position(generation_of(epoch, number), sequence)


def taken(machine: JournalFollower | JournalLeader) -> list[object]:
    out, machine.out = machine.out, []
    return out


# --- a follower ---


HERE = at(6, 0, 3)


def follower(place: Position = HERE, start: int = 0) -> JournalFollower:
    """In session 1 of epoch 6, and all of it is synced."""
    line = JournalFollower(REPLICA, 5, place, start)
    line.hello(1, 6)
    line.synced(place)
    taken(line)
    return line


@each(
    ("session", "epoch", "place", "effect"),
    [
        (1, 6, at(6, 0, 4), TakeRecord("r")),
        (1, 6, at(6, 1, 0), TakeSnapshot("r")),
        (1, 6, at(6, 0, 5), AskSnapshot(1, 6)),  # a gap
        (1, 6, at(6, 0, 3), AskSnapshot(1, 6)),  # once more
        (1, 6, at(6, 1, 1), AskSnapshot(1, 6)),  # of a generation whose beginning was missed
        (1, 6, at(5, 9, 0), AskSnapshot(1, 6)),  # an older snapshot
        (1, 6, at(6, 0, 0), AskSnapshot(1, 6)),  # this generation's
        (0, 6, at(6, 0, 4), None),  # of an older session
        (1, 5, at(6, 0, 4), None),
        (1, 7, at(7, 0, 0), None),  # a leader that has not said hello
    ],
)
def test_what_a_follower_does_with_a_frame(
    session: int, epoch: int, place: Position, effect: object
) -> None:
    line = follower()
    line.record(session, epoch, place, "r", NOTHING)
    assert taken(line) == ([effect] if effect is not None else [])


def write(line: JournalFollower, place: Position) -> list[object]:
    line.record(1, 6, place, "r", NOTHING)
    taken(line)
    line.wrote(place, 0)
    return [one for one in taken(line) if not isinstance(one, AcknowledgePlace)]


def test_what_was_asked_for_is_synced_when_it_comes() -> None:
    line = follower()
    line.ask_sync(1, 6, at(6, 0, 5))
    assert taken(line) == []
    assert write(line, at(6, 0, 4)) == [SyncJournal()]  # it is on the way there
    assert write(line, at(6, 0, 5)) == [SyncJournal()]
    line.synced(at(6, 0, 4))  # the sync that began before it was written
    assert SyncJournal() in taken(line)
    line.synced(at(6, 0, 5))
    assert SyncJournal() not in taken(line)
    assert write(line, at(6, 0, 6)) == []


def test_housekeeping_syncs_what_was_not_asked_for() -> None:
    line = follower()
    line.sync_all()
    assert taken(line) == []
    write(line, at(6, 0, 4))
    line.sync_all()
    assert taken(line) == [SyncJournal()]


def test_a_snapshot_is_asked_for_once_and_nothing_else_is_taken_until_it_comes() -> None:
    line = follower()
    for sequence in (5, 6, 4):
        line.record(1, 6, at(6, 0, sequence), "r", NOTHING)
    assert taken(line) == [AskSnapshot(1, 6)]
    line.record(1, 6, at(6, 1, 0), "snapshot", NOTHING)
    assert taken(line) == [TakeSnapshot("snapshot")]
    line.wrote(at(6, 1, 0), 0)
    taken(line)
    line.record(1, 6, at(6, 1, 1), "r", NOTHING)
    assert taken(line) == [TakeRecord("r")]


def test_after_a_failed_write_only_a_snapshot_is_taken() -> None:
    line = follower()
    line.record(1, 6, at(6, 0, 4), "r", NOTHING)
    line.write_failed()
    taken(line)
    line.record(1, 6, at(6, 0, 5), "r", NOTHING)
    assert taken(line) == []  # a full disk does not have the leader write snapshots all the time
    line.try_again()
    line.try_again()
    assert taken(line) == [AskSnapshot(1, 6)]
    line.record(1, 6, at(6, 1, 0), "snapshot", NOTHING)
    assert taken(line) == [TakeSnapshot("snapshot")]


def test_a_failed_sync_ends_the_replica() -> None:
    line = follower()
    line.sync_failed()
    assert taken(line) == [Stop("a sync of the channel journal failed")]
    line.record(1, 6, at(6, 0, 4), "r", NOTHING)
    line.held(1, 6, at(6, 0, 4))
    line.hello(2, 7)
    assert taken(line) == []


# --- a follower, and the start of the log ---


def drops(line: JournalFollower | JournalLeader) -> list[int]:
    return [effect.start for effect in taken(line) if isinstance(effect, DropBelow)]


@pytest.mark.parametrize("place", [at(5, 2, 9), NOTHING])
def test_what_an_earlier_epoch_left_is_not_what_this_leader_calls_held(place: Position) -> None:
    """The frame that brings the snapshot says what is held before the snapshot is written."""
    line = follower(place, start=900)
    line.record(1, 6, at(6, 0, 0), "snapshot", at(6, 0, 0))
    assert drops(line) == []
    line.wrote(at(6, 0, 0), 500)
    line.synced(at(6, 0, 0))
    assert drops(line) == [500]


# --- a leader ---


def leader(begun: bool = True) -> JournalLeader:
    """Of node 0 in epoch 6; nodes 1 and 2 stand where it does."""
    line = JournalLeader(0, 6, at(5, 2, 9), 0)
    line.needs(MEMBERS)
    if begun:
        line.wrote(at(6, 0, 0), "snapshot", 0)
        for node in (1, 2):
            line.linked(node, 10 + node)
            line.told(node, 10 + node, 70 + node, at(6, 0, 0))
        taken(line)
    return line


def acknowledge(line: JournalLeader, node: int, place: Position) -> None:
    line.acknowledged(node, 10 + node, 70 + node, place, place)


def test_a_leadership_begins_with_a_snapshot_whatever_others_have() -> None:
    line = leader(begun=False)
    assert line.must_begin
    line.linked(1, 11)
    assert taken(line) == [HelloJournal(1, 11, 6)]
    line.told(1, 11, 71, at(5, 2, 9))
    line.wrote(at(6, 0, 0), "snapshot", 0)
    assert taken(line) == [SendRecord(1, 11, 6, at(6, 0, 0), "snapshot", NOTHING)]
    assert not line.must_begin


def test_a_failed_sync_ends_the_leadership() -> None:
    line = leader()
    line.sync_failed()
    assert taken(line) == [Leave("a sync of the channel journal failed")]
    line.when_held(at(6, 0, 1), "seek")
    line.asked(1, 11)
    assert not line.must_begin
    line.wrote(at(6, 0, 1), "seek", 0)
    line.synced(at(6, 0, 1))
    for node in (1, 2):
        acknowledge(line, node, at(6, 0, 1))
    assert (taken(line), line.leave()) == ([], ["seek"])


def test_what_must_survive_is_answered_when_every_member_has_synced_it() -> None:
    line = leader()
    line.wrote(at(6, 0, 1), "seek", 0)
    line.when_held(at(6, 0, 1), "seek")
    taken(line)
    line.synced(at(6, 0, 1))
    acknowledge(line, 1, at(6, 0, 1))
    line.acknowledged(2, 12, 72, at(6, 0, 1), at(6, 0, 0))  # written only
    assert (taken(line), line.held) == ([], at(6, 0, 0))
    acknowledge(line, 2, at(6, 0, 1))
    assert (taken(line), line.held) == ([Answer("seek")], at(6, 0, 1))
    line.when_held(at(6, 0, 1), "late")
    assert taken(line) == [Answer("late")]


def test_a_learner_is_level_when_it_has_synced_what_the_set_has() -> None:
    line = leader()
    line.needs({(0, 70), (1, 71)})
    line.synced(at(6, 0, 0))
    acknowledge(line, 1, at(6, 0, 0))
    assert not line.is_level(2, 72)
    acknowledge(line, 2, at(6, 0, 0))
    assert line.is_level(2, 72)
    assert not line.is_level(2, 99)
    line.asked(2, 12)
    assert not line.is_level(2, 72)


def test_what_waits_at_the_end_of_a_leadership_has_an_unknown_outcome() -> None:
    line = leader()
    line.wrote(at(6, 0, 1), "seek", 0)
    line.when_held(at(6, 0, 1), "seek")
    assert (line.leave(), line.leave()) == (["seek"], [])
