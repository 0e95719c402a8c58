"""Corrupt batches in the middle of a log, replaced by those of another replica."""

import random

import pytest

from cases import each, seeds
from penstock.errors import LogDamaged, PartitionStopped, RangeCorrupt, StorageError, WriteRefused
from penstock.kernel import encode_batch
from penstock.log.epochs import BatchName
from penstock.log.errors import AppendRefused, RestoreRefused
from penstock.log.partition import PartitionLog
from penstock.log.scan import end_of_range
from sim.disk import Fault, SimDisk

from .helpers import PATH, SMALL, Writer, bodies_from, body, durable_disk

BATCHES = 60  # of three messages each, in several segments
EPOCH_EVERY = 10


def filled(disk: SimDisk) -> PartitionLog:
    log = PartitionLog.create(disk, PATH, SMALL)
    writer = Writer(log)
    for number in range(BATCHES):
        end = log.written_end
        bodies = [body(end + n) for n in range(3)]
        writer.write(bodies, epoch=number // EPOCH_EVERY + 1)
        log.sync()
    return log


class Two:
    """A log with an intact twin."""

    def __init__(self) -> None:
        self.disk = durable_disk()
        self.log = filled(self.disk)
        self.intact = filled(durable_disk())

    def rot(self, *offsets: int) -> None:
        """A bit of each of these batches, which a reader then meets."""
        for offset in offsets:
            batch = self.intact.locate(offset)
            segment = self.log._segments[self.log._segments.holding(offset)]
            self.disk.flip(segment.path, batch.position + batch.length // 2, 3)
        self.log._positions.clear()
        for offset in offsets:
            with pytest.raises(LogDamaged):
                self.log.read(offset, 1)

    def before(self, offset: int) -> BatchName:
        name = self.intact.name_before(offset)
        assert name is not None
        return name

    def batches(self, offset: int, count: int) -> bytes:
        found = b""
        for _, data in self.intact.batches(offset):
            found += bytes(data)
            count -= 1
            if not count:
                break
        return found

    def restore(self, offset: int, count: int) -> int:
        sent, before = self.batches(offset, count), self.before(offset)
        return self.log.restore(offset, sent, before, self.log.written_end)

    def is_whole(self) -> bool:
        expected = [body(offset) for offset in range(3 * BATCHES)]
        return self.log.damaged == [] and bodies_from(self.log, 0) == expected


@pytest.fixture
def two() -> Two:
    return Two()


def test_batches_are_put_back_wherever_they_stand(two: Two) -> None:
    base = [one.from_offset for one in two.log.segments][2]
    for offset in (0, 30, base - 3, base, two.log.written_end - 3):
        two.rot(offset)
        assert two.restore(offset, 1) == offset + 3
    two.rot(base - 3, base)  # a range over two segments, in two parts
    assert two.restore(base - 3, 1) == base
    assert two.restore(base, 1) == base + 3
    assert two.is_whole()
    two.disk.kill()
    assert bodies_from(PartitionLog.open(two.disk, PATH, SMALL), 0) == bodies_from(two.intact, 0)


def test_uncommitted_batches_are_refused(two: Two) -> None:
    two.rot(30)
    with pytest.raises(RestoreRefused, match="all below 32 is committed"):
        two.log.restore(30, two.batches(30, 1), two.before(30), 32)
    assert not two.is_whole()


def test_batches_that_do_not_fill_the_gap_are_refused(two: Two) -> None:
    two.rot(30)
    other = Writer(two.intact)
    short, long = [body(n, 1) for n in (30, 31, 32)], [body(n, 90) for n in (30, 31, 32)]
    before = two.before(30)
    for bodies in (short, long):
        data = other.encode(bodies, 30, epoch=2, synced_end=0)
        with pytest.raises(RestoreRefused, match="there is room for"):
            two.log.restore(30, data, before, 60)
    with pytest.raises(RestoreRefused, match="the corrupt range ends at 33"):
        two.log.restore(30, two.batches(30, 2), before, 60)
    assert two.restore(30, 1) == 33


def test_batches_out_of_sequence_are_refused(two: Two) -> None:
    two.rot(30, 60)
    sent = two.batches(30, 1)
    with pytest.raises(AppendRefused, match="the append continues batch"):
        two.log.restore(30, sent, two.before(27), 60)
    with pytest.raises(AppendRefused):
        two.log.restore(60, sent, two.before(60), 90)
    with pytest.raises(AppendRefused, match="is not intact"):
        two.log.restore(30, sent[:-1] + bytes((sent[-1] ^ 1,)), two.before(30), 60)
    with pytest.raises(RestoreRefused, match="no corrupt range begins there"):
        two.log.restore(33, two.batches(33, 1), two.before(33), 60)
    late = Writer(two.intact).encode([body(n) for n in (30, 31, 32)], 30, epoch=9, synced_end=0)
    with pytest.raises(RestoreRefused, match="epoch 9, the batch behind has 2"):
        two.log.restore(30, late, two.before(30), 60)
    assert two.restore(30, 1) == 33
    assert two.restore(60, 1) == 63
    assert two.is_whole()


def test_a_refused_write_leaves_it_corrupt(two: Two) -> None:
    two.rot(30)
    two.disk.inject(Fault("write"))
    with pytest.raises(WriteRefused):
        two.restore(30, 1)
    assert [one[:2] for one in two.log.damaged] == [(30, 33)]
    assert two.restore(30, 1) == 33
    assert two.is_whole()


def test_a_failed_sync_stops_the_partition(two: Two) -> None:
    two.rot(30)
    two.disk.inject(Fault("sync"))
    with pytest.raises(PartitionStopped):
        two.restore(30, 1)
    with pytest.raises(PartitionStopped):
        two.restore(30, 1)


def test_the_first_batch_of_an_epoch_that_was_corrupt_begins_it_again(two: Two) -> None:
    two.rot(3 * EPOCH_EVERY)
    two.log = PartitionLog.open(two.disk, PATH, SMALL)
    assert two.log.epochs() != two.intact.epochs()
    with pytest.raises(LogDamaged):
        two.log.read(3 * EPOCH_EVERY, 1)
    assert two.restore(3 * EPOCH_EVERY, 1) == 3 * EPOCH_EVERY + 3
    assert two.log.epochs() == two.intact.epochs()


@each("seed", seeds(10, 60))
def test_a_power_loss_leaves_a_range_corrupt_or_intact(seed: int) -> None:
    dice, two = random.Random(seed), Two()
    offset = 3 * dice.randrange(BATCHES - 1)  # of the last one no header says that it was synced
    two.rot(offset)
    if dice.random() < 0.5:
        two.disk.inject(Fault("write" if dice.random() < 0.5 else "sync"))
    try:
        two.restore(offset, 1)
    except StorageError:
        is_restored = False
    else:
        is_restored = True
    two.disk.crash(dice)
    log = PartitionLog.open(two.disk, PATH, SMALL)
    assert log.refusal is None
    assert log.written_end == 3 * BATCHES
    for at in range(0, 3 * BATCHES, 3):
        if at == offset and not is_restored:
            continue
        assert bytes(log.read(at, 1)) == two.batches(at, 1)


# --- what a fetched range must be to be believed ---


def batch(first: int, count: int) -> bytes:
    return encode_batch([b"%d" % n for n in range(first, first + count)], first, 1 << 22, 0)


RANGE = batch(10, 5) + batch(15, 1) + batch(16, 4)


def test_whole_batches_one_after_the_other() -> None:
    for position in (10, 12, 14):
        assert end_of_range(RANGE, position) == end_of_range(RANGE, position, "20") == 20
    assert end_of_range(b"", 7, "7") == 7


@each(
    ("data", "position", "following", "reason"),
    [
        (RANGE[:200] + b"!" + RANGE[201:], 10, "20", "the batch at byte .* is corrupt"),
        (RANGE[:-1], 10, "20", "SHORT"),
        (RANGE, 9, "20", "byte 0 holds offsets 10 to 14, not offset 9"),
        (RANGE, 15, "20", "byte 0 holds offsets 10 to 14, not offset 15"),
        (batch(10, 5) + batch(16, 4), 10, "20", "holds offsets 16 to 19, not offset 15"),
        (batch(10, 5) + batch(10, 5), 10, "20", "holds offsets 10 to 14, not offset 15"),
        (batch(10, 5), 10, "20", "end at offset 15, not at 20"),
        (b"", 10, "20", "end at offset 10, not at 20"),
    ],
)
def test_all_else_is_corrupt(data: bytes, position: int, following: str, reason: str) -> None:
    with pytest.raises(RangeCorrupt, match=reason):
        end_of_range(data, position, following)
