"""The files of a replica's stages, through kills, full disks and rot."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.commits.apps import Place
from penstock.broker.commits.stage_file import StageHead, head_line
from penstock.broker.commits.stage_store import FollowerStages, StageStore, staged_of
from penstock.broker.commits.stages import JobRow
from penstock.broker.health import Health
from penstock.broker.ports import Syncs
from penstock.log.fold import Folding, Group, Position, staged_entry
from penstock.log.names import hosted_stage_name
from penstock.replication.frames import Target
from penstock.replication.journal import JournalFollower
from penstock.replication.side_frames import AskStage, SendStage, StageStored
from sim.disk import Fault, SimDisk
from sim.threads import Threads

from ..following import Wire, new_disk

PLACE = Place("orders", "ab", 0)
NUMBER = 3 << 32 | 1


def file_of(name: str = "one", topic: str = "orders", body: bytes = b"x" * 64) -> bytes:
    return head_line(StageHead(topic, "ab", name, 1, len(body), 5)) + body


class Lab:
    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or new_disk()
        self.threads, self.health = Threads(), Health()
        self.syncs = Syncs(self.threads)
        self.store = StageStore(self.disk, self.health, JobRow(self.syncs), "data", PLACE)
        self.turn()

    def turn(self) -> None:
        for _ in range(6):
            self.syncs.settle()

    def write(self, number: int = NUMBER, file: bytes | None = None) -> list[str]:
        heard: list[str] = []
        self.store.write(number, file or file_of(), heard.append)
        self.turn()
        return heard

    @property
    def names(self) -> list[str]:
        return [name for name in self.disk.listdir("data") if ".stage" in name]


def test_what_was_written_is_there_after_a_power_loss() -> None:
    lab = Lab()
    assert lab.write() == [""]
    assert lab.write() == [""]  # again: it is there
    lab.disk.crash(random.Random(1))
    later = Lab(lab.disk)
    assert later.store.stages[NUMBER].head.name == "one"
    assert not later.store.busy


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (b"no line", "its first line has no end"),
        (file_of()[:-1], "longer or shorter than it says"),
        (file_of(topic="other"), "it is of topic other"),
    ],
)
def test_what_is_no_stage_of_this_partition_is_refused(file: bytes, reason: str) -> None:
    lab = Lab()
    (heard,) = lab.write(file=file)
    assert reason in heard
    assert lab.names == []


def test_a_full_disk_is_reported_and_leaves_nothing() -> None:
    lab = Lab()
    lab.disk.inject(Fault("write", path_part=".stage"))
    (heard,) = lab.write()
    assert "cannot be written" in heard
    assert lab.names == []
    assert lab.health.failing
    assert lab.write() == [""]
    assert not lab.health.failing


def test_what_a_kill_left_half_written_is_removed_at_the_start() -> None:
    lab = Lab()
    lab.write()
    lab.disk.create("data/0000000300000002.stage.tmp").close()
    cut_short = lab.disk.create("data/0000000300000003.stage")
    cut_short.pwritev((b"half",), 0, 4)
    cut_short.close()
    later = Lab(lab.disk)
    assert list(later.store.stages) == [NUMBER]
    assert later.names == [hosted_stage_name(NUMBER)]


def test_one_that_cannot_be_read_at_the_start_stays_and_is_lacking() -> None:
    lab = Lab()
    lab.write()
    lab.disk.inject(Fault("read", path_part=".stage"))
    later = Lab(lab.disk)
    assert (later.store.stages, later.names) == ({}, [hosted_stage_name(NUMBER)])
    assert later.write() == [""]


def test_a_file_is_loaded_if_it_is_as_it_is_listed() -> None:
    lab = Lab()
    lab.write()
    staged = staged_of(file_of(), 5)
    loaded: list[bytearray | None] = []
    lab.store.load(NUMBER, staged, loaded.append)
    lab.store.load(NUMBER + 1, None, loaded.append)
    lab.turn()
    assert loaded == [None, bytearray(file_of())]
    lab.disk.flip(lab.store.path(NUMBER), len(file_of()) - 1, 0)
    lab.store.load(NUMBER, staged, loaded.append)
    lab.turn()
    assert loaded[-1] is None
    assert (lab.store.stages, lab.names) == ({}, [])


def test_one_that_cannot_be_read_just_now_stays() -> None:
    lab = Lab()
    lab.write()
    lab.disk.inject(Fault("read", path_part=".stage"))
    loaded: list[bytearray | None] = []
    lab.store.load(NUMBER, staged_of(file_of(), 5), loaded.append)
    lab.turn()
    assert loaded == [None]
    lab.store.load(NUMBER, staged_of(file_of(), 5), loaded.append)
    lab.turn()
    assert loaded[-1] == bytearray(file_of())


def test_what_cannot_be_removed_is_removed_later() -> None:
    lab = Lab()
    lab.write()
    lab.disk.inject(Fault("unlink", path_part=".stage"))
    lab.store.remove([NUMBER])
    lab.turn()
    assert lab.names
    assert lab.health.failing
    lab.store.settle()
    lab.turn()
    assert lab.names == []
    assert not lab.health.failing


# --- A follower's stages: what it asks for, stores, and does not store any more ---


LEADER, REPLICA, LIFE = 7, 99, 5
STAGED = staged_of(file_of(), 5)


class Follower(Lab):
    def __init__(self) -> None:
        super().__init__()
        self.wire = Wire()
        self.folding = Folding()
        self.machine = JournalFollower(REPLICA, 3, Position(3 << 32, 0), 0)
        self.moves = 0
        self.place = Position(3 << 32, 0)
        replication: Any = SimpleNamespace(incarnation=LIFE, peers=self.wire)
        journal: Any = SimpleNamespace(folding=self.folding)
        self.stages = FollowerStages(
            replication, Target(1, 0), REPLICA, self.store, journal, self.machine, self._moved
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
    assert (one.machine.lacking, one.moves) == ([], 1)


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
    assert one.machine.lacking == [NUMBER]
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
    assert one.machine.lacking == [NUMBER]
