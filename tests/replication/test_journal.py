"""Who writes which record of a channel journal, and when the set has it."""

from cases import each
from penstock.log.fold import Position, generation_of
from penstock.replication.effects import Leave, Stop
from penstock.replication.journal import (
    NOTHING,
    AcknowledgePosition,
    HelloJournal,
    JournalFollower,
    JournalLeader,
    ReportHeld,
    RequestSnapshot,
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


def follower() -> JournalFollower:
    """In session 1 of epoch 6, and all of it is synced."""
    machine = JournalFollower(REPLICA, 5, HERE, 0)
    machine.hello(1, 6)
    machine.synced(HERE)
    taken(machine)
    return machine


@each(
    ("session", "epoch", "position", "effect"),
    [
        (1, 6, at(6, 0, 4), TakeRecord("r")),
        (1, 6, at(6, 1, 0), TakeSnapshot("r")),
        (1, 6, at(6, 0, 5), RequestSnapshot(1, 6)),  # a gap
        (1, 6, at(6, 0, 3), RequestSnapshot(1, 6)),  # once more
        (1, 6, at(6, 1, 1), RequestSnapshot(1, 6)),  # of a generation whose beginning was missed
        (1, 6, at(5, 9, 0), RequestSnapshot(1, 6)),  # an older snapshot
        (1, 6, at(6, 0, 0), RequestSnapshot(1, 6)),  # this generation's
        (0, 6, at(6, 0, 4), None),  # of an older session
        (1, 5, at(6, 0, 4), None),
        (1, 7, at(7, 0, 0), None),  # a leader that has not said hello
    ],
)
def test_effects_of_a_record_on_a_follower(
    session: int, epoch: int, position: Position, effect: object
) -> None:
    machine = follower()
    machine.record(session, epoch, position, "r", NOTHING)
    assert taken(machine) == ([effect] if effect is not None else [])


def write(machine: JournalFollower, position: Position) -> list[object]:
    machine.record(1, 6, position, "r", NOTHING)
    taken(machine)
    machine.wrote(position, 0)
    return [one for one in taken(machine) if not isinstance(one, AcknowledgePosition)]


def test_a_requested_position_is_synced_when_it_arrives() -> None:
    machine = follower()
    machine.sync_requested(1, 6, at(6, 0, 5))
    assert taken(machine) == []
    assert write(machine, at(6, 0, 4)) == [SyncJournal()]  # it is on the way there
    assert write(machine, at(6, 0, 5)) == [SyncJournal()]
    machine.synced(at(6, 0, 4))  # the sync that began before it was written
    assert SyncJournal() in taken(machine)
    machine.synced(at(6, 0, 5))
    assert SyncJournal() not in taken(machine)
    assert write(machine, at(6, 0, 6)) == []


def test_housekeeping_syncs_what_was_not_asked_for() -> None:
    machine = follower()
    machine.sync_all()
    assert taken(machine) == []
    write(machine, at(6, 0, 4))
    machine.sync_all()
    assert taken(machine) == [SyncJournal()]


def test_a_snapshot_is_asked_for_once_and_nothing_else_is_taken_until_it_comes() -> None:
    machine = follower()
    for sequence in (5, 6, 4):
        machine.record(1, 6, at(6, 0, sequence), "r", NOTHING)
    assert taken(machine) == [RequestSnapshot(1, 6)]
    machine.record(1, 6, at(6, 1, 0), "snapshot", NOTHING)
    assert taken(machine) == [TakeSnapshot("snapshot")]
    machine.wrote(at(6, 1, 0), 0)
    taken(machine)
    machine.record(1, 6, at(6, 1, 1), "r", NOTHING)
    assert taken(machine) == [TakeRecord("r")]


def test_after_a_failed_write_only_a_snapshot_is_taken() -> None:
    machine = follower()
    machine.record(1, 6, at(6, 0, 4), "r", NOTHING)
    machine.write_failed()
    taken(machine)
    machine.record(1, 6, at(6, 0, 5), "r", NOTHING)
    assert taken(machine) == []  # a full disk does not have the leader write snapshots all the time
    machine.try_again()
    machine.try_again()
    assert taken(machine) == [RequestSnapshot(1, 6)]
    machine.record(1, 6, at(6, 1, 0), "snapshot", NOTHING)
    assert taken(machine) == [TakeSnapshot("snapshot")]


def test_a_failed_sync_ends_the_replica() -> None:
    machine = follower()
    machine.sync_failed()
    assert taken(machine) == [Stop("a sync of the channel journal failed")]
    machine.record(1, 6, at(6, 0, 4), "r", NOTHING)
    machine.held(1, 6, at(6, 0, 4))
    machine.hello(2, 7)
    assert taken(machine) == []


# --- a leader ---


def leader(begun: bool = True) -> JournalLeader:
    """Of node 0 in epoch 6; nodes 1 and 2 stand where it does."""
    machine = JournalLeader(0, 6, at(5, 2, 9), 0)
    machine.needs(MEMBERS)
    if begun:
        machine.wrote(at(6, 0, 0), "snapshot", 0)
        for node in (1, 2):
            machine.linked(node, 10 + node)
            machine.position_reported(node, 10 + node, 70 + node, at(6, 0, 0))
        taken(machine)
    return machine


def acknowledge(machine: JournalLeader, node: int, position: Position) -> None:
    machine.acknowledged(node, 10 + node, 70 + node, position, position)


def test_a_leadership_begins_with_a_snapshot_whatever_others_have() -> None:
    machine = leader(begun=False)
    assert machine.must_begin
    machine.linked(1, 11)
    assert taken(machine) == [HelloJournal(1, 11, 6)]
    machine.position_reported(1, 11, 71, at(5, 2, 9))
    machine.wrote(at(6, 0, 0), "snapshot", 0)
    assert taken(machine) == [SendRecord(1, 11, 6, at(6, 0, 0), "snapshot", NOTHING)]
    assert not machine.must_begin


def test_a_failed_sync_ends_the_leadership() -> None:
    machine = leader()
    machine.sync_failed()
    assert taken(machine) == [Leave("a sync of the channel journal failed")]
    machine.when_held(at(6, 0, 1), "seek")
    machine.snapshot_requested(1, 11)
    assert not machine.must_begin
    machine.wrote(at(6, 0, 1), "seek", 0)
    machine.synced(at(6, 0, 1))
    for node in (1, 2):
        acknowledge(machine, node, at(6, 0, 1))
    assert (taken(machine), machine.leave()) == ([], ["seek"])


def test_a_durable_record_is_answered_once_every_member_has_synced_it() -> None:
    machine = leader()
    machine.wrote(at(6, 0, 1), "seek", 0)
    machine.when_held(at(6, 0, 1), "seek")
    taken(machine)
    machine.synced(at(6, 0, 1))
    acknowledge(machine, 1, at(6, 0, 1))
    machine.acknowledged(2, 12, 72, at(6, 0, 1), at(6, 0, 0))  # written only
    assert (taken(machine), machine.held) == ([], at(6, 0, 0))
    acknowledge(machine, 2, at(6, 0, 1))
    assert (taken(machine), machine.held) == ([ReportHeld("seek")], at(6, 0, 1))
    machine.when_held(at(6, 0, 1), "late")
    assert taken(machine) == [ReportHeld("late")]


def test_waiting_changes_end_unknown_with_the_leadership() -> None:
    machine = leader()
    machine.wrote(at(6, 0, 1), "seek", 0)
    machine.when_held(at(6, 0, 1), "seek")
    assert (machine.leave(), machine.leave()) == (["seek"], [])
