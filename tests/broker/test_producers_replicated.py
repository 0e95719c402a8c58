"""The table of producers of one replica of several, on real files."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.health import Health
from penstock.broker.producers import ProducerTable, decode_table, read_producers
from penstock.errors import StorageError
from penstock.kernel import encode_batch
from penstock.log.partition import PartitionLog
from penstock.replica.producerline import Known
from sim.clock import FakeClock
from sim.disk import Fault

from .following import NOW_NS, OWNER, PATH, SETTINGS, new_disk

PRODUCER = 7


class Replica:
    """A log with batches of one message each, and its table."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.log = PartitionLog.create(self.disk, PATH, SETTINGS, OWNER)
        self.table = self.opened(0)
        self.table.begin()

    def opened(self, committed_end: int) -> ProducerTable:
        syncs = SimpleNamespace(wait_for=lambda is_busy: None)  # no thread here writes the file
        clock = FakeClock()
        context: Any = SimpleNamespace(disk=self.disk, health=Health(), syncs=syncs, clock=clock)
        return ProducerTable(context, "orders", self.log, True, lambda: None, committed_end)

    def write(self, *sequences: int, producer: int = PRODUCER, epoch: int = 1) -> None:
        for sequence in sequences:
            offset = self.log.written_end
            base_id = (NOW_NS >> 10) + offset
            data = encode_batch([b"x"], offset, base_id, NOW_NS, 0, epoch, producer, 0, sequence)
            self.log.write([data], len(data), offset, 1, base_id, base_id, NOW_NS, (), epoch, 0)
        self.log.sync()

    @property
    def next_sequence(self) -> int:
        known = self.table.find(PRODUCER)
        return known.next_sequence if known is not None else 0


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_a_start_takes_what_is_above_the_committed_end_as_pending(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table = replica.opened(1)
    assert replica.next_sequence == 1
    assert [batch.next_sequence for batch in replica.table.take_tail()] == [2, 3]


def test_the_file_does_not_reach_above_the_committed_end(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table.learn(2)
    replica.table.close(2)
    file = read_producers(replica.disk, PATH)
    assert file is not None
    assert (file.end, [entry.next_sequence for entry in file.producers]) == (2, [2])


def test_what_was_corrupt_and_came_from_another_replica_is_known(replica: Replica) -> None:
    """Else a retry of it is stored again, or the next publish of its producer is a gap."""
    replica.write(0, 1)
    headers = [header for header, _ in replica.log.batches(0)]
    (segment,) = replica.log.segments
    corrupt = b"".join(bytes(data) for _, data in replica.log.batches(1))
    place = replica.disk.content(segment.path).find(corrupt)
    replica.disk.flip(segment.path, place + len(corrupt) - 1, 2)
    replica.write(0, producer=PRODUCER + 1)
    table = replica.opened(3)
    assert table.find(PRODUCER) == Known(0, 1, NOW_NS)
    table.restored(headers)
    assert table.find(PRODUCER) == Known(0, 2, NOW_NS)
    assert table.find(PRODUCER + 1) == Known(0, 1, NOW_NS)


def test_a_cut_forgets_what_was_cut_and_what_comes_in_its_place_counts(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table.learn(1)
    replica.log.cut(1)
    assert replica.table.cut(1)
    replica.write(1, epoch=2, producer=8)
    replica.table.learn(2)
    assert replica.next_sequence == 1
    assert replica.table.find(8) == Known(0, 2, NOW_NS)


def test_a_cut_below_what_was_committed_folds_again(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table.learn(3)
    replica.table.close(3)
    replica.log.cut(1, unclean=True)
    assert not replica.table.cut(1)
    assert replica.next_sequence == 1
    replica.table = replica.opened(1)
    assert replica.next_sequence == 1


def learner(start: int) -> Replica:
    replica = Replica()
    replica.log.reset(start)
    replica.table = replica.opened(start)
    return replica


def test_a_learner_is_given_what_retention_has_removed(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.write(0, producer=8)
    replica.table.learn(4)
    other = learner(3)  # the leader's log begins there now
    other.write(0, producer=8)
    other.table.learn(4)
    assert other.table.find(PRODUCER) is None
    other.table.install(replica.table.snapshot())
    assert other.next_sequence == 3
    other.write(3)
    other.table.learn(5)
    assert other.next_sequence == 4
    other.table = other.opened(5)
    assert other.next_sequence == 4


@pytest.mark.parametrize(
    ("start", "records", "reason"),
    [
        (3, 0, r"a table that ends at 2 was sent: the log here goes from 3 to 3, synced"),
        (0, 1, r"a table that ends at 2 was sent: the log here goes from 0 to 1, synced"),
    ],
)
def test_a_table_that_leaves_a_hole_or_knows_more_is_refused(
    replica: Replica, start: int, records: int, reason: str
) -> None:
    replica.write(0, 1)
    replica.table.learn(2)
    other = learner(start) if start else Replica()
    other.write(*range(records))
    with pytest.raises(StorageError, match=reason):
        other.table.install(replica.table.snapshot())
    assert other.next_sequence == 0


def test_a_table_that_was_damaged_on_its_way_is_refused(replica: Replica) -> None:
    replica.write(0)
    replica.table.learn(1)
    sent = replica.table.snapshot()
    assert decode_table(sent).end == 1
    for position in range(len(sent)):
        changed = bytearray(sent)
        changed[position] ^= 1
        with pytest.raises(StorageError, match="a table that was sent is corrupt"):
            replica.table.install(bytes(changed))
    assert replica.next_sequence == 1


def test_a_table_that_cannot_be_written_is_not_taken(replica: Replica) -> None:
    replica.write(0, 1)
    replica.table.learn(2)
    other = Replica()
    other.write(0, 1)
    other.disk.inject(Fault("write", path_part="producers"))
    with pytest.raises(StorageError, match="cannot be written"):
        other.table.install(replica.table.snapshot())
    assert other.next_sequence == 0
    other.table.install(replica.table.snapshot())
    assert other.next_sequence == 2
