"""The head of a segment: whose log it is part of, and what is done with one that is not ours."""

import pytest

from penstock.errors import LogDamaged
from penstock.log.head import HEAD_BYTES, LogHead, LogOwner, decode_head, encode_head
from penstock.log.inspect import PartitionDirectory, find
from penstock.log.partition import PartitionLog
from penstock.log.repair import find_losses, give_up
from penstock.log.seal import seal
from penstock.log.verify import verify
from sim.disk import SimDisk

from .helpers import NOW_NS, SECOND, SMALL, Writer, bodies_from, body, first_offset, put, segments

ORDERS = LogOwner("orders", 0, "005-18a26f9ac7a69000")
BILLS = LogOwner("bills", 0, "005-18a26f9ac7a69001")


def path_of(owner: LogOwner) -> str:
    return f"data/topics/{owner.topic}/0"


def opened(disk: SimDisk, owner: LogOwner = ORDERS) -> PartitionLog:
    return PartitionLog.open(disk, path_of(owner), SMALL, owner=owner)


@pytest.fixture
def disk() -> SimDisk:
    """Two topics with logs alike in all but their owners."""
    disk = SimDisk()
    for owner in (ORDERS, BILLS):
        disk.mkdir(path_of(owner))
        log = PartitionLog.create(disk, path_of(owner), SMALL, owner)
        Writer(log).fill(40)
        log.close()
        document = b'{"name":"%s","identity":"%s"}' % (
            owner.topic.encode(),
            owner.identity.encode(),
        )
        path = f"data/topics/{owner.topic}/topic.json"
        put(disk, path, seal(document))
    return disk


def swap(disk: SimDisk, number: int) -> tuple[str, str]:
    mine, other = segments(disk)[number], segments(disk, path_of(BILLS))[number]
    contents = disk.content(mine), disk.content(other)
    disk.replace(mine, contents[1])
    disk.replace(other, contents[0])
    return mine, other


def findings(disk: SimDisk) -> list[str]:
    return [finding.path for finding in verify(disk, find(disk, "data")).findings]


def test_a_head_round_trips() -> None:
    data = encode_head(LogHead(ORDERS, 7))
    assert len(data) == HEAD_BYTES
    assert decode_head(data) == LogHead(ORDERS, 7)
    for position in range(HEAD_BYTES):
        wrong = bytearray(data)
        wrong[position] ^= 4
        assert decode_head(bytes(wrong)) is None
    assert decode_head(data[:-1]) is None
    with pytest.raises(ValueError, match="longer than the 64 bytes"):
        encode_head(LogHead(LogOwner("x" * 65, 0, ""), 0))


@pytest.mark.parametrize("number", [0, 1])
def test_a_sealed_segment_of_another_log_is_not_served(disk: SimDisk, number: int) -> None:
    mine, other = swap(disk, number)
    assert findings(disk) == sorted([mine, other])
    log = opened(disk)
    start, end = (log.segments[number].from_offset, log.segments[number].to_offset)
    for read in (lambda: log.read(start, 999), lambda: log.message(end - 1)):
        with pytest.raises(LogDamaged, match="belongs to another log"):
            read()
    with pytest.raises(LogDamaged):
        log.file_range(start)
    assert log.find_time(0) == (0 if start else end)
    assert log.find_id(log.message(end).id) == end
    assert log.find_time(NOW_NS + 1) == 120
    assert [known[:2] for known in log.damaged] == [(start, end)]
    assert bodies_from(log, end) == [body(n) for n in range(end, 120)]
    Writer(log).fill(1)


def test_a_newest_segment_of_another_log_is_neither_written_nor_cut(disk: SimDisk) -> None:
    mine, _ = swap(disk, -1)
    before = disk.content(mine)
    base = first_offset(mine)
    log = opened(disk)
    assert log.refusal is not None
    assert log.refusal[0] == base
    with pytest.raises(LogDamaged, match="belongs to another log"):
        Writer(log).fill(1)
    assert [log.message(n).body for n in range(base)] == [body(n) for n in range(base)]
    log.close()
    assert disk.content(mine) == before
    directory = PartitionDirectory("orders", 0, path_of(ORDERS))
    give_up(disk, "data", directory, find_losses(disk, directory), NOW_NS)
    log = opened(disk)
    assert log.refusal is None
    assert log.written_end == 120
    Writer(log).fill(1)
    log.close()
    assert disk.content(mine) == before


def test_a_log_without_heads_is_read_and_goes_on_with_heads() -> None:
    disk = SimDisk()
    disk.mkdir(path_of(ORDERS))
    log = PartitionLog.create(disk, path_of(ORDERS), SMALL)
    Writer(log).fill(40)
    log.close()
    old = segments(disk)
    log = opened(disk)
    Writer(log).fill(40)
    assert bodies_from(log, 0) == [body(n) for n in range(240)]
    log.close()
    begins = [disk.content(path)[:4] for path in segments(disk)]
    assert begins == [b"PSB1"] * len(old) + [b"PSH1"] * (len(begins) - len(old))
    assert findings(disk) == []


def test_a_recycled_file_is_taken_for_what_it_is_now(disk: SimDisk) -> None:
    """It has a head and batches of its former life until the first batch is written."""
    log = opened(disk)
    Writer(log).fill(40)
    log.sync()
    assert log.retain(240, NOW_NS + 10**6 * SECOND, 1, 0) > 1
    log._roll()  # and the power goes before anything is written there
    end = log.written_end
    assert decode_head(disk.content(segments(disk)[-1])[:HEAD_BYTES]) is not None
    log.sync()
    disk.kill()
    log = opened(disk)
    assert (log.refusal, log.written_end) == (None, end)
    Writer(log).fill(20)
    assert bodies_from(log, end) == [body(n) for n in range(end, end + 60)]
    log.close()
    assert findings(disk) == []


def test_a_corrupt_head_is_found_and_hides_no_message(disk: SimDisk) -> None:
    path = segments(disk)[1]
    for position in (1, 6, 40, 90):
        disk.flip(path, position, 2)
        assert findings(disk) == [path]
        log = opened(disk)
        assert bodies_from(log, 0) == [body(n) for n in range(120)]
        log.close()
        disk.flip(path, position, 2)


def test_behind_a_head_there_may_be_no_intact_batch() -> None:
    disk = SimDisk()
    disk.mkdir(path_of(ORDERS))
    log = PartitionLog.create(disk, path_of(ORDERS), SMALL, ORDERS)
    Writer(log).fill(1)
    log.close()
    disk.flip(segments(disk)[0], HEAD_BYTES + 90, 2)
    with pytest.raises(LogDamaged):
        opened(disk).read(0, 999)
