"""What the queues of a partition have not finished, by its files alone."""

import pytest

from penstock.kernel import StrayRecord
from penstock.log.fold import (
    FLAG_SNAPSHOT,
    ChannelState,
    EntryKind,
    Group,
    cursor_entry,
    encode_record,
)
from penstock.log.inspect import Queue, read_owner, read_queues
from penstock.log.seal import seal
from sim.disk import SimDisk

from .helpers import DIRECTORY, PATH, put

TOPIC = "data/topics/orders/topic.json"


def snapshot(generation: int, low: int) -> bytes:
    return encode_record(
        FLAG_SNAPSHOT, generation, 0, 50, [Group(1, cursor_entry(EntryKind.CURSOR, low, low))]
    )


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir(PATH)
    put(disk, f"{PATH}/channels.0", snapshot(1, 10))
    put(disk, f"{PATH}/channels.1", snapshot(2, 20))
    topic(disk, b'{"name":"orders","identity":"abc","channels":[{"name":"ch","number":1}]}')
    return disk


def topic(disk: SimDisk, document: bytes) -> None:
    put(disk, TOPIC, seal(document))


def lowest(disk: SimDisk) -> list[tuple[str, int]]:
    return [(queue.name, queue.lowest) for queue in read_queues(disk, DIRECTORY)]


def test_the_newest_journal_counts(disk: SimDisk) -> None:
    assert lowest(disk) == [("channel ch", 20)]
    put(disk, f"{PATH}/channels.0", snapshot(3, 30))
    assert lowest(disk) == [("channel ch", 30)]


def test_a_channel_missing_in_the_journal(disk: SimDisk) -> None:
    channels = b'{"name":"ch","number":1},{"name":"new","number":2}'
    topic(disk, b'{"name":"orders","channels":[%s]}' % channels)
    assert lowest(disk) == [("channel ch", 20)]


@pytest.mark.parametrize(
    "document",
    [
        b'{"channels":[{"name":"ch"}]}',
        b'{"channels":[{"name":"ch","number":"x"}]}',
        b'{"channels":[1]}',
        b'{"channels":7}',
    ],
)
def test_an_unreadable_topic_file(disk: SimDisk, document: bytes) -> None:
    topic(disk, document)
    assert read_queues(disk, DIRECTORY) == []
    assert read_owner(disk, DIRECTORY) is None


def test_missing_and_corrupt_files_are_ignored(disk: SimDisk) -> None:
    disk.flip(TOPIC, 3, 1)
    assert (read_queues(disk, DIRECTORY), read_owner(disk, DIRECTORY)) == ([], None)
    disk.unlink(TOPIC)
    assert (read_queues(disk, DIRECTORY), read_owner(disk, DIRECTORY)) == ([], None)
    topic(disk, b'{"name":"orders","channels":[{"name":"ch","number":1}]}')
    assert lowest(disk) == [("channel ch", 20)]
    for name in ("channels.0", "channels.1"):
        disk.unlink(f"{PATH}/{name}")
    assert read_queues(disk, DIRECTORY) == []


def test_ranges_that_a_queue_needs() -> None:
    stray = StrayRecord(offset=3, id=1, attempts=1, state=1, due_ns=0)
    queue = Queue("channel ch", ChannelState(10, 40, ((15, 20), (20, 25)), (stray,)))
    assert queue.lowest == 3
    wanted = {(0, 3): False, (3, 4): True, (4, 10): False, (4, 11): True}
    wanted |= {(15, 25): False, (15, 26): True, (14, 20): True, (18, 20): False, (50, 60): True}
    assert {asked: queue.wants(*asked) for asked in wanted} == wanted
