"""What a leader's cursors say to other replicas, and where channels begin that nobody knew."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import kernel
from penstock.broker.cursors import Cursors
from penstock.broker.health import Health
from penstock.broker.journal import Journal
from penstock.log.fold import Position, generation_of
from penstock.log.followedjournal import FollowedJournal
from penstock.log.partition import PartitionLog
from sim.disk import Fault, SimDisk

from .following import OWNER, PATH, SETTINGS, batch, new_disk, put

EPOCH = 6
BYTES_MAX = 1 << 20


class Leader:
    """A log with five messages, a journal of epoch 6 and its cursors."""

    def __init__(self, disk: SimDisk) -> None:
        self.disk = disk
        self.log = PartitionLog.create(new_disk(), PATH, SETTINGS, OWNER)
        put(self.log, batch(0, 1, [b"x"] * 5), 5, 1)
        self.engine = kernel.Engine(1 << 20, 5 << 20, 2500)
        self.tail = self.engine.tail(b"orders", self.log.written_end, 1 << 20, 0)
        self.sent: list[bytes] = []
        followed = FollowedJournal.open(disk, "data")
        self.journal = Journal(followed.files, BYTES_MAX, EPOCH, followed.folding.handed_end)
        self.health = Health()
        context: Any = SimpleNamespace(health=self.health, killed=False)
        self.cursors = Cursors(context, "orders", self.journal, followed.folded())
        self.cursors.on_record = self.sent.append

    def begin(self) -> None:
        self.cursors.begin(self.tail)

    def add(self, number: int, offset: int) -> Position:
        """A channel; and the place that has to be held before it is confirmed."""
        self.cursors.add(number, self.engine.window(self.tail, offset), offset)
        return self.cursors.written


@pytest.fixture
def leader() -> Leader:
    return Leader(new_disk())


def follower_of(leader: Leader) -> FollowedJournal:
    """Another replica that takes what was sent."""
    followed = FollowedJournal.open(new_disk(), "data")
    for record in leader.sent:
        is_first = followed.position.generation == 0
        followed.replace(record) if is_first else followed.append(record)
    return followed


def test_the_start_of_a_channel_is_a_record_for_all_replicas(leader: Leader) -> None:
    leader.begin()
    assert leader.add(1, 3) == (generation_of(EPOCH, 0), 0)
    assert leader.add(2, 5) == (generation_of(EPOCH, 0), 1)
    folded = follower_of(leader).folded()
    assert folded is not None
    assert {number: state.low for number, state in folded.channels.items()} == {1: 3, 2: 5}


def test_the_start_of_the_log_is_decided_once_and_only_rises(leader: Leader) -> None:
    leader.begin()
    leader.add(1, 0)
    for offset in (3, 3, 2):
        leader.cursors.decide_start(offset)
    assert (len(leader.sent), leader.cursors.start_offset) == (2, 3)
    followed = follower_of(leader)
    assert followed.start_offset == 3
    leader.cursors.begin_generation()
    followed.replace(leader.sent[-1])
    assert followed.start_offset == 3


def test_a_channel_that_a_sound_journal_does_not_know_begins_as_the_view_says(
    leader: Leader,
) -> None:
    leader.begin()
    leader.add(1, 2)
    other = Leader(leader.disk)
    assert other.cursors.state(1, "known", other.log, unknown_start=4).low == 2
    assert other.cursors.state(2, "unknown", other.log, unknown_start=4).low == 4
    assert other.cursors.state(2, "unknown", other.log).low == 0  # a node by itself


def test_what_the_disk_does_not_take_is_not_sent(leader: Leader) -> None:
    leader.begin()
    leader.add(1, 0)
    sent = len(leader.sent)
    leader.disk.inject(Fault("write", times=2))
    leader.cursors.decide_start(3)
    leader.cursors.begin_generation()
    assert len(leader.sent) == sent
    assert "the state of the channels cannot be stored" in leader.health.text
    leader.cursors.append([])
    assert len(leader.sent) == sent + 1
    followed = FollowedJournal.open(new_disk(), "data")
    followed.replace(leader.sent[-1])
    assert followed.start_offset == 3
