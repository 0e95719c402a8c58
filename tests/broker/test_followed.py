"""A follower on real files: each effect of its machine is done, and nothing is sent too early."""

from __future__ import annotations

import errno
import random

import pytest

from penstock.broker.followed import Awaited
from penstock.broker.health import Trouble
from penstock.errors import PartitionStopped
from penstock.log.ledger import Ledger
from penstock.log.partition import PartitionLog
from penstock.log.replicafile import read_replica
from penstock.replica.effects import Acknowledge, Hello, Refuse, Tell
from sim.disk import Fault

from .following import KEY, LEADER, PATH, SESSION, Lab, LeaderLog, batch, put


def kinds(frames: list[object]) -> list[str]:
    return [type(frame).__name__ for frame in frames]


def content(log: PartitionLog) -> bytes:
    return b"".join(bytes(data) for _, data in log.batches(log.start_offset))


def test_an_epoch_is_on_the_disk_before_it_is_answered() -> None:
    lab = Lab()
    lab.followed.receive(LEADER, Hello(LEADER, SESSION, 6))
    assert lab.followed.awaited is Awaited.EPOCH
    assert lab.wire.take() == []
    lab.promises.flush()
    assert lab.wire.take() == []  # the sync has ended, and nobody has looked
    lab.syncs.settle()
    (tell,) = lab.wire.take()
    assert isinstance(tell, Tell)
    assert (tell.epoch, tell.replica, tell.generation) == (6, 99, 4)
    lab.disk.crash(random.Random(1))
    lab.open()
    assert lab.promises.epoch(KEY) == 6
    assert lab.hello(epoch=5) == [Refuse(SESSION, 6)]


def test_a_row_is_acknowledged_when_it_is_synced() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one", b"two")
    answers = lab.match(leader, 0)
    assert kinds(answers) == ["Matched", "Acknowledge"]
    lab.threads.held = True
    assert lab.send(leader.row(0)) == []
    assert lab.log.written_end == 2
    lab.threads.held = False
    lab.threads.run()
    assert lab.turn() == [Acknowledge(SESSION, 1, 99, 2, 2)]
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
    lab.threads.held = False
    lab.threads.run()
    assert kinds(lab.turn()) == ["Matched", "Acknowledge"]
    assert [one.from_offset for one in lab.followed.cuts] == [1]
    lab.disk.crash(random.Random(2))
    lab.open()
    assert lab.log.written_end == 1
    lab.hello(epoch=3, session=SESSION + 1)
    lab.send(leader.match_at(1, SESSION + 1))
    assert lab.send(leader.row(1, 3, 0, SESSION + 1)) == [Acknowledge(SESSION + 1, 3, 99, 2, 2)]
    assert content(lab.log) == content(leader.log)


def test_a_full_disk_acknowledges_nothing_until_there_is_room() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one")
    lab.match(leader, 0)
    fault = lab.disk.inject(Fault("write", errno.ENOSPC, ".log", times=0))
    assert lab.send(leader.row(0)) == []
    assert lab.followed.awaited is Awaited.ROOM
    assert "No space" in lab.health.reason("orders", Trouble.WRITE)
    lab.followed.settle()
    assert lab.turn() == []
    lab.disk.faults.remove(fault)
    lab.followed.settle()
    assert lab.turn() == [Acknowledge(SESSION, 1, 99, 1, 1)]
    assert lab.health.reason("orders", Trouble.WRITE) == ""


def test_rows_that_came_while_there_was_no_room_are_asked_for_again() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one")
    lab.match(leader, 0)
    fault = lab.disk.inject(Fault("write", errno.ENOSPC, ".log", times=0))
    assert lab.send(leader.row(0)) == []
    leader.write(b"two")
    assert lab.send(leader.row(1)) == []  # dropped, and the leader takes it for sent
    lab.disk.faults.remove(fault)
    lab.followed.settle()
    assert lab.turn() == [Refuse(SESSION, 1)]
    (tell,) = lab.hello(session=SESSION + 1)
    assert tell.extent.end == 1


def test_a_failed_sync_ends_the_replica_in_this_life_and_in_the_next() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one")
    lab.match(leader, 0)
    lab.disk.inject(Fault("sync", path_part=".log"))
    assert lab.send(leader.row(0)) == []
    assert len(lab.stops) == 1
    assert "a sync failed" in lab.stops[0]
    assert lab.hello(epoch=9, session=SESSION << 1) == []
    lab.disk.kill()
    lab.open()
    assert lab.own.state == "stopped"
    assert isinstance(lab.log.stopped, PartitionStopped)


def test_in_sync_is_marked_when_the_record_lists_a_replica_that_is_synced() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one")
    lab.match(leader, 0)
    lab.threads.held = True
    lab.send(leader.row(0))
    lab.followed.record_seen(listed=True, unclean_epoch=0)
    assert lab.own.state == "copying"
    lab.threads.held = False
    lab.threads.run()
    lab.turn()
    assert lab.own.state == "in_sync"
    file = read_replica(lab.disk, PATH)
    assert file is not None
    assert file.state == "in_sync"


def test_the_mark_is_taken_back_before_a_header_that_promises_more_is_written() -> None:
    lab, leader = Lab(), LeaderLog()
    leader.write(b"one")
    lab.match(leader, 0)
    lab.followed.record_seen(listed=True, unclean_epoch=0)
    lab.send(leader.row(0))
    leader.write(b"two")
    assert lab.own.state == "in_sync"
    lab.threads.held = True
    lab.send(leader.row(1))
    leader.write(b"three", synced_end=2)  # this disk has one
    lab.disk.inject(Fault("write", errno.ENOSPC, "replica.json"))
    lab.send(leader.row(2))
    assert lab.log.written_end == 2  # the mark could not be taken back
    lab.followed.settle()
    assert lab.log.written_end == 3
    assert lab.own.state == "copying"
    lab.disk.crash(random.Random(5))
    lab.open()
    assert lab.log.damaged == []
    assert lab.followed.line.committed == 0


def test_what_every_member_has_synced_is_never_cut() -> None:
    lab, leader = Lab(state="in_sync"), LeaderLog()
    leader.write(b"one")
    put(lab.log, batch(0, 1, [b"one"]), 1, 1)
    put(lab.log, batch(1, 1, [b"two"]), 1, 1)
    put(lab.log, batch(2, 1, [b"three"], 2), 1, 1, 2)
    lab.log.sync()
    lab.log.close()
    lab.open()
    assert lab.followed.line.committed == 2
    leader.write(b"four", epoch=2)
    lab.hello(epoch=2)
    assert lab.send(leader.match_at(1)) == []
    assert lab.followed.stopped
    assert lab.own.state == "stopped"
    assert lab.log.written_end == 3


def test_a_stop_waits_for_the_sync_of_promises_that_is_under_way() -> None:
    lab = Lab()
    lab.threads.held = True
    lab.promises.save(KEY, 9, lambda: None)
    lab.promises.flush()
    lab.promises.close()
    lab.promises.ledger.close()
    assert Ledger.open(lab.disk, "data").replicas[KEY].epoch == 9


def test_promises_of_a_turn_share_a_sync_and_a_failed_one_keeps_none() -> None:
    lab = Lab()
    done: list[str] = []
    syncs = lab.disk.syncs
    lab.promises.save(KEY, 3, lambda: done.append("three"))
    lab.promises.save(KEY._replace(partition=1), 8, lambda: done.append("eight"))
    lab.promises.flush()
    lab.syncs.settle()
    assert done == ["three", "eight"]
    assert lab.disk.syncs == syncs + 1
    lab.promises.save(KEY, 3, lambda: done.append("again"))
    assert done[-1] == "again"
    with pytest.raises(ValueError, match="epoch 2"):
        lab.promises.save(KEY, 2, lambda: done.append("never"))
    lab.disk.inject(Fault("sync", path_part="ledger"))
    lab.promises.save(KEY, 4, lambda: done.append("never"))
    lab.promises.flush()
    lab.syncs.settle()
    assert done[-1] == "again"
    assert "a sync failed" in lab.promises.trouble
