"""What is said of a channel journal that is corrupt, or that the disk does not take."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import kernel, limits
from penstock.broker.channels.cursors import Cursors
from penstock.broker.health import Health
from penstock.broker.partition.journal import Journal
from penstock.broker.ports import Syncs
from penstock.log.disk import OsDisk
from penstock.log.fold import (
    PARTITION,
    EntryKind,
    Group,
    Position,
    cursor_entry,
    decode_record,
    encode_record,
    generation_of,
    start_entry,
)
from penstock.log.follower_journal import FollowedJournal
from penstock.log.inspect import find
from penstock.log.partition import PartitionLog
from penstock.log.verify import verify
from sim.disk import Fault, SimDisk
from sim.threads import Threads

from ..following import OWNER, PATH, SETTINGS, batch, new_disk, put
from ..world import Start, bodies


def records(data: bytes) -> list[int]:
    """Where they begin."""
    found, position = [], 0
    while (record := decode_record(data, position)) is not None:
        found.append(position)
        position += record.length
    return found


def test_a_corrupt_record_before_intact_ones_is_reported(start: Start) -> None:
    world = start(journal_bytes_max=600)
    consumer = world.consumer("news", "a")
    for number in range(4):
        world.publish("news", b"%d" % number)
        consumer.finish(*consumer.take())
    world.close()
    path = world.path / "topics" / "news" / "0" / "channels.0"
    data = bytearray(path.read_bytes())
    third = records(data)[2]
    data[third + 50] ^= 1
    path.write_bytes(data)
    found = verify(OsDisk(), find(OsDisk(), str(world.path))).findings
    assert [(finding.path, finding.position) for finding in found] == [(str(path), third)]
    world = world.restart()
    message = f"{path}: the record at byte {third} is corrupt"
    assert world.broker.health.startswith(f"OK - warning: topic news: {message}")
    consumer = world.consumer("news", "a")
    again = consumer.take()
    assert bodies(again)[-1:] == [b"3"]  # what was said behind it is lost
    consumer.finish(*again)
    for number in range(20):  # until the file is begun anew
        world.publish("news", b"%d" % number)
        consumer.finish(*consumer.take())
        world.pass_ns(2 * limits.SECOND)
    assert world.broker.health == "OK"
    assert verify(OsDisk(), find(OsDisk(), str(world.path))).findings == []


def test_a_journal_that_cannot_be_opened_for_its_sync_is_shown(simulate: Start) -> None:
    world = simulate(durability="os")
    world.consumer("news", "a")
    world.publish("news", b"1")
    journal = world.broker.find_topic("news").leader().cursors
    assert journal is not None
    journal._journal.close()
    world.fail("open", "channels.")
    world.pass_seconds(3)
    assert "the state of the channels cannot be stored" in world.broker.health
    world.disk.faults.clear()
    world.pass_seconds(6)
    assert world.broker.health == "OK"


# --- what a leader's cursors say to other replicas, and where channels begin that nobody knew ---


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
        self.syncs = Syncs(Threads())
        context: Any = SimpleNamespace(health=self.health, killed=False, syncs=self.syncs)
        self.cursors = Cursors(context, "orders", self.journal, followed.folded())
        self.cursors.on_record = self.sent.append

    def begin(self) -> None:
        self.cursors.begin(self.tail)

    def add(self, number: int, offset: int) -> Position:
        """A channel; and the position that has to be held before it is confirmed."""
        self.cursors.add(number, self.engine.window(self.tail, offset), offset)
        return self.cursors.files.written


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


def test_a_channel_missing_in_the_journal_begins_as_the_view_says(leader: Leader) -> None:
    leader.begin()
    leader.add(1, 2)
    other = Leader(leader.disk)
    assert other.cursors.state(1, "known", other.log, unknown_start=4).low == 2
    assert other.cursors.state(2, "unknown", other.log, unknown_start=4).low == 4
    assert other.cursors.state(2, "unknown", other.log).low == 0  # a node by itself


def test_a_record_is_not_sent_when_its_write_fails(leader: Leader) -> None:
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


@pytest.mark.parametrize("serves_at_once", [False, True])
def test_an_elected_replica_reports_inherited_state_once_it_is_written(
    serves_at_once: bool,
) -> None:
    disk = new_disk()
    groups = [Group(PARTITION, start_entry(4)), Group(1, cursor_entry(EntryKind.CURSOR, 5, 9))]
    inherited = encode_record(1, generation_of(3, 0), 0, 12, groups)
    FollowedJournal.open(disk, "data").replace(inherited)
    leader = Leader(disk)
    fault = disk.inject(Fault("write", path_part="channels", times=0))
    leader.cursors.begin_generation()
    assert (leader.sent, leader.cursors.is_behind) == ([], True)
    assert "the state of the channels cannot be stored" in leader.health.text
    disk.faults.remove(fault)
    leader.cursors.begin_generation()
    assert not leader.cursors.is_behind
    (record,) = leader.sent
    message = decode_record(record, 0)
    assert message is not None
    assert (message.handed_end, message.groups) == (12, groups)
    if serves_at_once:
        leader.cursors.discard()
    else:
        synced: list[OSError | None] = []
        leader.cursors.on_synced = synced.append
        leader.cursors.sync()
        leader.syncs.settle()
        assert synced == [None]
    assert leader.health.text == "OK"


def test_a_failing_write_of_the_mark_is_shown_until_it_succeeds(simulate: Start) -> None:
    world = simulate()
    world.publish("news", b"1")
    world.fail("write", "/mark")
    world.pass_seconds(5)
    assert "NOK - topic news: the write failed" in world.broker.health
    assert world.publish("news", b"2").stored  # this heals nothing
    assert "NOK - topic news: the write failed" in world.broker.health
    world.disk.faults.clear()
    world.pass_seconds(5)
    assert world.broker.health == "OK"
