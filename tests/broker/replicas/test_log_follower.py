"""A follower on real files: each effect of its machine is done, and nothing is sent too early."""

import errno
import random
from typing import Any

import pytest

from penstock.broker.health import Trouble
from penstock.broker.replicas.log_follower import Awaited
from penstock.broker.replicas.replicated_journal import JournalReceiver
from penstock.errors import PartitionStopped
from penstock.log.fold import (
    FLAG_SNAPSHOT,
    PARTITION,
    EntryKind,
    Group,
    Position,
    cursor_entry,
    encode_record,
    generation_of,
    start_entry,
)
from penstock.log.follower_journal import NOTHING, FollowedJournal
from penstock.log.ledger import Ledger
from penstock.log.replica_file import read_replica
from penstock.replication.effects import Acknowledge, Hello, Refuse, ReportExtent
from penstock.replication.journal import HelloJournal, RequestSnapshot, RequestSync, SendRecord
from sim.disk import Fault

from ..following import KEY, LEADER, PATH, SESSION, Lab, LeaderLog, batch, content, put


def kinds(frames: list[object]) -> list[str]:
    return [type(frame).__name__ for frame in frames]


@pytest.fixture
def leader() -> LeaderLog:
    """It has one message."""
    leader = LeaderLog()
    leader.write(b"one")
    return leader


@pytest.fixture
def lab(leader: LeaderLog) -> Lab:
    """A follower that has nothing yet, and is matched."""
    lab = Lab()
    lab.match(leader, 0)
    return lab


def test_an_epoch_is_durable_before_it_is_answered() -> None:
    lab = Lab()
    lab.followed.receive(LEADER, Hello(LEADER, SESSION, 6))
    assert lab.followed.awaited is Awaited.EPOCH
    assert lab.wire.take() == []
    lab.epoch_ledger.flush()
    assert lab.wire.take() == []  # the sync has ended, and nobody has looked
    lab.syncs.settle()
    (report,) = lab.wire.take()
    assert isinstance(report, ReportExtent)
    assert (report.epoch, report.replica, report.generation) == (6, 99, 4)
    lab.disk.crash(random.Random(1))
    lab.open()
    assert lab.epoch_ledger.epoch(KEY) == 6
    assert lab.hello(epoch=5) == [Refuse(SESSION, 6)]


def test_an_append_is_acknowledged_when_it_is_synced() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one", b"two")
    answers = lab.match(leader, 0)
    assert kinds(answers) == ["Matched", "Acknowledge"]
    lab.threads.held = True
    assert lab.send(leader.append(0)) == []
    assert lab.log.written_end == 2
    assert lab.release() == [Acknowledge(SESSION, 1, 99, 2, 2)]
    lab.disk.crash(random.Random(1))
    lab.open()
    assert content(lab.log) == content(leader.log)


def test_a_tail_that_the_leader_lacks_is_cut_durably_and_after_a_sync_that_runs() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one")
    put(lab.log, batch(0, 1, [b"one"]), 1, 1)
    put(lab.log, batch(1, 2, [b"mine"]), 1, 2)
    leader.write(b"other", epoch=3)
    lab.hello(epoch=3)
    lab.threads.held = True
    lab.followed.sync()
    lab.followed.receive(LEADER, leader.match_at(1))
    assert lab.followed.awaited is Awaited.SYNC
    assert lab.wire.take() == []
    assert kinds(lab.release()) == ["Matched", "Acknowledge"]
    lab.disk.crash(random.Random(2))
    lab.open()
    assert lab.log.written_end == 1
    lab.hello(epoch=3, session=SESSION + 1)
    lab.send(leader.match_at(1, SESSION + 1))
    assert lab.send(leader.append(1, 3, 0, SESSION + 1)) == [Acknowledge(SESSION + 1, 3, 99, 2, 2)]
    assert content(lab.log) == content(leader.log)


@pytest.mark.parametrize("more", [False, True])
def test_a_full_disk_acknowledges_nothing_until_there_is_room(
    lab: Lab, leader: LeaderLog, more: bool
) -> None:
    fault = lab.disk.inject(Fault("write", errno.ENOSPC, ".log", times=0))
    assert lab.send(leader.append(0)) == []
    assert lab.followed.awaited is Awaited.ROOM
    assert "No space" in lab.health.reason("orders", Trouble.WRITE)
    lab.followed.settle()
    assert lab.turn() == []
    if more:
        leader.write(b"two")
        assert lab.send(leader.append(1)) == []  # dropped, and the leader takes it for sent
    lab.disk.faults.remove(fault)
    lab.followed.settle()
    assert lab.turn() == [Refuse(SESSION, 1) if more else Acknowledge(SESSION, 1, 99, 1, 1)]
    assert lab.health.reason("orders", Trouble.WRITE) == ""
    (report,) = lab.hello(session=SESSION + 1)
    assert report.extent.end == 1


def test_a_failed_sync_stops_the_replica_across_restarts(lab: Lab, leader: LeaderLog) -> None:
    lab.disk.inject(Fault("sync", path_part=".log"))
    assert lab.send(leader.append(0)) == []
    assert len(lab.stops) == 1
    assert "a sync failed" in lab.stops[0]
    assert lab.hello(epoch=9, session=SESSION << 1) == []
    lab.disk.kill()
    lab.open()
    assert lab.own.state == "stopped"
    assert isinstance(lab.log.stopped, PartitionStopped)


def test_a_synced_replica_is_marked_when_the_record_lists_it(lab: Lab, leader: LeaderLog) -> None:
    lab.threads.held = True
    lab.send(leader.append(0))
    lab.followed.record_seen(listed=True, unclean_epoch=0)
    assert lab.own.state == "copying"
    lab.release()
    assert lab.own.state == "in_sync"
    assert state_on_disk(lab) == "in_sync"


def test_the_in_sync_mark_is_cleared_before_a_higher_synced_end_is_written(
    lab: Lab, leader: LeaderLog
) -> None:
    lab.followed.record_seen(listed=True, unclean_epoch=0)
    lab.send(leader.append(0))
    leader.write(b"two")
    assert lab.own.state == "in_sync"
    lab.threads.held = True
    lab.send(leader.append(1))
    leader.write(b"three", synced_end=2)  # this disk has one
    lab.disk.inject(Fault("write", errno.ENOSPC, "replica.json"))
    lab.send(leader.append(2))
    assert lab.followed.awaited is Awaited.STATE
    write_state(lab)
    assert lab.log.written_end == 2  # the mark could not be taken back
    assert lab.followed.awaited is Awaited.ROOM
    lab.followed.settle()
    write_state(lab)
    assert lab.log.written_end == 3
    assert lab.own.state == "copying"
    lab.disk.crash(random.Random(5))
    lab.open()
    assert lab.log.damaged == []
    assert lab.followed.machine.committed == 0


def state_on_disk(lab: Lab) -> str:
    file = read_replica(lab.disk, PATH)
    return file.state if file is not None else "none"


def write_state(lab: Lab) -> None:
    """And not sync the log."""
    sync, state = lab.threads.waiting
    lab.threads.held, lab.threads.waiting = False, [state]
    lab.threads.run()
    lab.threads.held, lab.threads.waiting = True, [sync]
    lab.turn()


def test_an_urgent_state_replaces_one_being_written(lab: Lab, leader: LeaderLog) -> None:
    lab.send(leader.append(0))
    lab.threads.held = True
    lab.followed.record_seen(listed=True, unclean_epoch=0)
    assert lab.own.busy
    lab.followed.stop("a sync failed")
    lab.release()
    assert not lab.own.busy
    assert lab.own.state == "stopped"
    assert state_on_disk(lab) == "stopped"


def test_a_hello_waits_for_a_mark_that_is_being_written(lab: Lab, leader: LeaderLog) -> None:
    """The record lists the replica no more, so appends may come that do not count it."""
    lab.send(leader.append(0))
    lab.threads.held = True
    lab.followed.record_seen(listed=True, unclean_epoch=0)
    lab.followed.record_seen(listed=False, unclean_epoch=0)
    assert lab.hello(session=SESSION + 1) == []
    (report,) = lab.release()
    assert isinstance(report, ReportExtent)
    assert lab.own.state == "copying"


def test_a_tail_that_every_member_has_synced_is_never_cut() -> None:
    lab, leader = Lab(state="in_sync"), LeaderLog()
    leader.write(b"one")
    put(lab.log, batch(0, 1, [b"one"]), 1, 1)
    put(lab.log, batch(1, 1, [b"two"]), 1, 1)
    put(lab.log, batch(2, 1, [b"three"], 2), 1, 1, 2)
    lab.log.sync()
    lab.log.close()
    lab.open()
    assert lab.followed.machine.committed == 2
    leader.write(b"four", epoch=2)
    lab.hello(epoch=2)
    assert lab.send(leader.match_at(1)) == []
    assert lab.followed.stopped
    assert lab.own.state == "stopped"
    assert lab.log.written_end == 3


def test_a_stop_waits_for_a_running_sync_of_the_epoch_ledger() -> None:
    lab = Lab()
    lab.threads.held = True
    lab.epoch_ledger.save(KEY, 9, lambda: None)
    lab.epoch_ledger.flush()
    lab.epoch_ledger.close()
    lab.epoch_ledger.ledger.close()
    assert Ledger.open(lab.disk, "data").replicas[KEY].epoch == 9


def test_epochs_of_a_turn_share_a_sync_and_a_failed_one_keeps_none() -> None:
    lab = Lab()
    done: list[str] = []
    syncs = lab.disk.syncs
    lab.epoch_ledger.save(KEY, 3, lambda: done.append("three"))
    lab.epoch_ledger.save(KEY._replace(partition=1), 8, lambda: done.append("eight"))
    lab.epoch_ledger.flush()
    lab.syncs.settle()
    assert done == ["three", "eight"]
    assert lab.disk.syncs == syncs + 1
    lab.epoch_ledger.save(KEY, 3, lambda: done.append("again"))
    assert done[-1] == "again"
    with pytest.raises(ValueError, match="epoch 2"):
        lab.epoch_ledger.save(KEY, 2, lambda: done.append("never"))
    lab.disk.inject(Fault("sync", path_part="ledger"))
    lab.epoch_ledger.save(KEY, 4, lambda: done.append("never"))
    lab.epoch_ledger.flush()
    lab.syncs.settle()
    assert done[-1] == "again"
    assert "a sync failed" in lab.epoch_ledger.trouble


# --- A follower's journal at the end of a link ---


EPOCH = 6


def at(sequence: int, number: int = 0) -> Position:
    return Position(generation_of(EPOCH, number), sequence)


def record(position: Position, cursor: int, start: int = 0) -> bytes:
    flags = FLAG_SNAPSHOT if position.sequence == 0 else 0
    groups = [Group(1, cursor_entry(EntryKind.CURSOR, cursor, cursor))]
    if start:
        groups.append(Group(PARTITION, start_entry(start)))
    return encode_record(flags, *position, cursor, groups)


class ChannelsLab(Lab):
    """With a journal, and the epoch promised."""

    def __init__(self) -> None:
        super().__init__()
        self.epoch_ledger.save(KEY, EPOCH, lambda: None)
        self.turn()
        self.channels = JournalReceiver(self.owner, FollowedJournal.open(self.disk, "data"))

    def tell(self, frame: Any) -> list[Any]:
        self.channels.receive(LEADER, frame)
        self.channels.validate()
        return self.turn()

    def record(
        self, position: Position, cursor: int, start: int = 0, held: Position = NOTHING
    ) -> list[Any]:
        data = record(position, cursor, start)
        return self.tell(SendRecord(3, SESSION, EPOCH, position, data, held))

    def ask(self, position: Position) -> list[Any]:
        return self.tell(RequestSync(3, SESSION, EPOCH, position))

    @property
    def cursor(self) -> int:
        return self.channels.journal.folding.channels()[1].next


@pytest.fixture
def channels() -> ChannelsLab:
    """With a snapshot and a record."""
    lab = ChannelsLab()
    lab.tell(HelloJournal(3, SESSION, EPOCH))
    lab.record(at(0), 5)
    lab.record(at(1), 6)
    return lab


def test_housekeeping_requests_a_snapshot_after_a_failed_write(channels: ChannelsLab) -> None:
    channels.disk.inject(Fault("write"))
    assert channels.record(at(2), 7) == []
    assert "the leader's channel journal cannot be stored" in channels.health.text
    channels.channels.settle(sync=True)
    assert channels.turn() == [RequestSnapshot(SESSION, EPOCH)]
    channels.record(at(0, number=1), 7)
    assert (channels.cursor, channels.health.text) == (7, "OK")


def test_a_full_disk_requests_nothing_until_it_has_room(channels: ChannelsLab) -> None:
    channels.disk.inject(Fault("write"))
    channels.record(at(2), 7)
    channels.health.report("", Trouble.DISK_LOW, "disk almost full")
    for _ in range(3):
        channels.channels.settle(sync=True)
        assert channels.turn() == []
    channels.health.clear("", Trouble.DISK_LOW)
    channels.channels.settle(sync=True)
    assert channels.turn() == [RequestSnapshot(SESSION, EPOCH)]


def test_a_corrupt_or_misplaced_record_is_refused(channels: ChannelsLab) -> None:
    for data in (record(at(2), 7)[:-1], record(at(3), 7)):
        channels.tell(SendRecord(3, SESSION, EPOCH, at(2), data, NOTHING))
        assert channels.cursor == 6
        assert channels.channels.machine.position == NOTHING
        assert "the channel journal is not continued" in channels.health.text
    channels.record(at(0, number=1), 7)
    assert (channels.cursor, channels.health.text) == (7, "OK")


def test_a_failed_sync_of_the_journal_stops_the_replica(channels: ChannelsLab) -> None:
    channels.disk.inject(Fault("sync"))
    channels.record(at(2), 7)
    channels.ask(at(2))
    assert channels.stops == ["a sync of the channel journal failed"]
    assert channels.record(at(3), 8) == []
