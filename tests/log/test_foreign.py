"""A leader's appends on a follower's log: what is taken, and what is refused without a byte."""

import random
import re
from collections.abc import Callable

import pytest

from cases import seeds
from penstock import limits
from penstock.errors import WriteRefused
from penstock.log.epochs import BatchName
from penstock.log.errors import AppendRefused
from penstock.log.partition import PartitionLog
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, SECOND, SMALL, Writer, bodies_from, body, contents

LEADER = "data/topics/orders/0"
FOLLOWER = "data/topics/orders/1"


class Pair:
    def __init__(self) -> None:
        self.disk = SimDisk()
        self.disk.mkdir("data/topics/orders")
        self.leader = PartitionLog.create(self.disk, LEADER, SMALL)
        self.follower = PartitionLog.create(self.disk, FOLLOWER, SMALL)
        self.writer = Writer(self.leader)

    def append(
        self, batches: int, epoch: int, wall_ns: int = NOW_NS
    ) -> tuple[BatchName, list[bytes]]:
        previous, append = self.leader.last(), []
        for _ in range(batches):
            end = self.leader.written_end
            append.append(self.writer.write([body(end), body(end + 1)], wall_ns, epoch=epoch))
        return previous, append

    def ship(self, batches: int, epoch: int, wall_ns: int = NOW_NS) -> None:
        previous, append = self.append(batches, epoch, wall_ns)
        self.follower.append_batches(append, previous)

    def assert_equal(self) -> None:
        leader, follower = self.leader, self.follower
        assert follower.written_end == leader.written_end
        assert bodies_from(follower, 0) == bodies_from(leader, 0)
        assert follower.epochs() == leader.epochs()
        assert follower.last() == leader.last() == follower._last_known()
        assert (follower.last_id, follower.last_timestamp_ns) == (
            leader.last_id,
            leader.last_timestamp_ns,
        )
        follower.validate()


@pytest.fixture
def pair() -> Pair:
    return Pair()


@pytest.mark.parametrize("seed", seeds(3, 20))
def test_a_follower_becomes_what_the_leader_is(pair: Pair, seed: int) -> None:
    rng = random.Random(seed)
    epoch, now_ns = 1, NOW_NS
    for _ in range(60):
        epoch += rng.choice((0, 0, 0, 1, 3))
        now_ns += rng.choice((0, 1, SECOND, 4000 * SECOND))
        pair.ship(rng.choice((1, 1, 2, 7)), epoch, now_ns)
    pair.assert_equal()
    for offset in rng.sample(range(pair.follower.written_end), 20):
        assert pair.follower.batch_at(offset) == pair.leader.batch_at(offset)
        assert pair.follower.message(offset) == pair.leader.message(offset)
        id = pair.leader.message(offset).id
        assert pair.follower.find_id(id) == offset
        written_ns = pair.leader.written_ns(offset)
        assert pair.follower.find_time(written_ns) == pair.leader.find_time(written_ns)
    pair.follower.close()
    pair.follower = PartitionLog.open(pair.disk, FOLLOWER, SMALL)
    assert pair.follower.removed_tail is None
    pair.assert_equal()


def refused(pair: Pair, text: str, append: list[bytes], previous: BatchName | None = None) -> None:
    log = pair.follower
    files = contents(pair.disk, FOLLOWER)
    before = (log.written_end, log.last_id, log.last(), log.epochs(), log.agreed_end)
    with pytest.raises(AppendRefused, match=re.escape(text)) as caught:
        log.append_batches(append, previous or log.last())
    assert caught.value.where == FOLLOWER
    assert before == (log.written_end, log.last_id, log.last(), log.epochs(), log.agreed_end)
    assert contents(pair.disk, FOLLOWER) == files


def test_an_append_behind_another_batch_is_refused(pair: Pair) -> None:
    pair.ship(2, 1)
    previous, append = pair.append(1, 1)
    for wrong in (
        previous._replace(crc=previous.crc ^ 1),
        previous._replace(epoch=2),
        previous._replace(offset=0),
        BatchName(0, 4, 0),
    ):
        text = f"the append continues batch {tuple(wrong)}, the last one is {tuple(previous)}"
        refused(pair, text, append, wrong)
    pair.follower.append_batches(append, previous)
    pair.assert_equal()


def test_a_gap_between_offsets_is_refused(pair: Pair) -> None:
    pair.ship(1, 1)
    _, append = pair.append(3, 1)
    refused(pair, "a batch at offset 6 where 4 must come", [append[0], append[2]])
    refused(pair, "a batch at offset 4 where 2 must come", append[1:])
    refused(pair, "a batch at offset 2 where 4 must come", [append[0], append[0]])


def test_epochs_do_not_fall_over_an_emptied_log(pair: Pair) -> None:
    pair.ship(1, 5)
    pair.follower.sync()
    pair.follower.retain(2, NOW_NS + 10**6 * SECOND, 0, 0)
    assert pair.follower.start_offset == 2
    refused(
        pair, "offset 2 has epoch 4, the one before it 5", [pair.writer.encode([b"x"], 2, epoch=4)]
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda batch: batch[:-1] + bytes([batch[-1] ^ 1]),
        lambda batch: batch[:60] + b"\x09" + batch[61:],  # its epoch
        lambda batch: batch[:-8],
        lambda batch: batch + bytes(8),
        lambda batch: bytes(len(batch)),
        lambda batch: batch[:20],
    ],
)
def test_a_corrupt_batch_is_refused(pair: Pair, spoil: Callable[[bytes], bytes]) -> None:
    pair.ship(1, 1)
    _, append = pair.append(2, 1)
    refused(pair, "is not intact", [append[0], spoil(append[1])])


def test_a_header_that_is_ahead_of_its_own_log_is_refused(pair: Pair) -> None:
    previous = pair.leader.last()
    append = [pair.writer.write([b"x"], synced_end=1)]
    refused(pair, "its synced end is ahead of it", append, previous)


def test_an_append_of_no_bytes_or_too_many_is_refused(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for none in ([], [b""]):
        refused(pair, "an append of 0 bytes: 1 to", none)
    _, append = pair.append(2, 1)
    length = sum(map(len, append))
    monkeypatch.setattr(limits, "APPEND_BYTES_MAX", length - 1)
    refused(pair, f"an append of {length} bytes: 1 to {length - 1} may be written", append)


def test_a_failed_append_leaves_the_log_unchanged(pair: Pair) -> None:
    pair.ship(1, 1)
    before = (pair.follower.written_end, pair.follower.last(), pair.follower.epochs())
    previous, append = pair.append(2, 2)
    pair.disk.inject(Fault("write", path_part=FOLLOWER, written=0.6))
    with pytest.raises(WriteRefused):
        pair.follower.append_batches(append, previous)
    assert before == (pair.follower.written_end, pair.follower.last(), pair.follower.epochs())
    pair.follower.append_batches(append, previous)
    pair.assert_equal()
