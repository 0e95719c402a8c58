"""The writing end of a partition: open, sealed, committed, failed."""

from typing import Any

import pytest

from penstock import kernel
from penstock.kernel import Event, LogEnd, encode_batch

from .batches import short_batch
from .turns import Side, pub

LARGE = 5_000  # beyond what the kernel writes as one buffer


@pytest.mark.parametrize("body", [b"x", b"x" * 8, b"x" * LARGE])
@pytest.mark.parametrize(
    ("synced_end", "epoch", "may_be_short", "is_short"),
    [
        (70_000, 0, True, True),
        (70_000 - 0xFFFF, 0xFFFF, True, True),
        (70_000 - 0x10000, 0, True, False),
        (70_000, 0x10000, True, False),
        (70_001, 0, True, False),
        (70_000, 0, False, False),
    ],
)
def test_a_message_alone_has_the_short_form_where_that_can_say_it(
    side: Side, body: bytes, synced_end: int, epoch: int, may_be_short: bool, is_short: bool
) -> None:
    tail = side.tail(start=70_000)
    tail.append(body)
    sealed = b"".join(tail.seal(9 << 22, 1234, synced_end, epoch, may_be_short))
    if is_short:
        expected = short_batch(body, 70_000, 9 << 22, 1234, 70_000 - synced_end, epoch)
    else:
        expected = encode_batch([body], 70_000, 9 << 22, 1234, synced_end, epoch)
    assert sealed == expected
    header = kernel.decode_header(sealed, 0)
    assert (header.synced_end, header.leader_epoch, header.count) == (synced_end, epoch, 1)


class TornFile:
    """A file that takes so many bytes and then none."""

    def __init__(self, fd: int, error: bool = False) -> None:
        self.fd = fd
        self.error = error
        self.written: list[tuple[bytes, int]] = []

    def pwritev(self, buffers: list[bytes], position: int, length: int) -> None:
        if self.error:
            raise OSError("full")
        self.written.append((b"".join(buffers), position))
        assert len(self.written[-1][0]) == length


def log_end(file: TornFile, position: int, prepared: int, **more: int) -> LogEnd:
    end = LogEnd()
    end.file, end.position, end.prepared = file, position, prepared
    end.index_position = end.age_end_ns = 1 << 40
    for name, value in more.items():
        setattr(end, name, value)
    return end


def test_a_batch_that_cannot_be_stored_stays_open(side: Side, tail: Any) -> None:
    tail.append(b"abc")
    assert not tail.store(log_end(TornFile(-1), 0, 10), 1)  # beyond the prepared part
    assert not tail.store(log_end(TornFile(-1), 8, 1000, index_position=8), 1)
    assert not tail.store(log_end(TornFile(-1), 0, 1000, age_end_ns=9), 10)
    for descriptor in (-1, 1 << 20):  # the system refuses the latter
        end = log_end(TornFile(descriptor, error=True), 0, 1000)
        with pytest.raises(OSError, match="full"):
            tail.store(end, 1)
        assert (end.position, end.last_id) == (0, 0)
    assert (ends(tail), tail.open_count) == ((0, 0, 0), 1)
    tail.append(b"d")
    assert b"".join(tail.seal(1, 1, 0)) == encode_batch([b"abc", b"d"], 0, 1, 1)


# --- several sealed batches ---


def sealed_row(side: Side, *batches: list[bytes], sealed_max: int = 5) -> Any:
    """A tail with these batches sealed, none of them safe."""
    tail = side.tail()
    tail.sealed_max = sealed_max
    for batch in batches:
        for body in batch:
            tail.append(body)
        side.seal(tail)
    return tail


def ends(tail: Any) -> tuple[int, int, int]:
    tail.validate()
    return tail.committed_end, tail.written_end, tail.sealed_batches


@pytest.mark.parametrize("sealed_max", [1, 2, 5])
def test_the_number_of_sealed_batches_is_bounded(side: Side, sealed_max: int) -> None:
    tail = sealed_row(side, *([b"a", b"b"] for _ in range(sealed_max)), sealed_max=sealed_max)
    assert (tail.sealed_batches, tail.sealed_count) == (sealed_max, 2 * sealed_max)
    tail.append(b"c")
    assert side.engine.dirty_tails() == []
    with pytest.raises(RuntimeError, match="already"):
        tail.seal(1, 1, 0)
    assert (tail.open_count, tail.sealed_batches) == (1, sealed_max)
    tail.seal_batch(encode_batch([b"x"], tail.written_end, 1, 1))  # of a row that is begun
    assert (tail.open_count, tail.sealed_batches) == (1, sealed_max + 1)
    tail.commit_to(2)
    assert side.engine.dirty_tails() == []
    tail.commit_to(tail.written_end)
    assert side.engine.dirty_tails() == [tail]


def test_no_part_of_a_batch_is_committed_or_fails(side: Side) -> None:
    tail = sealed_row(side, [b"a"], [b"b", b"c"], [b"d"])
    for offset in (2, 5):
        with pytest.raises(ValueError, match=f"ends or begins at {offset}"):
            tail.commit_to(offset)
        with pytest.raises(ValueError, match=f"ends or begins at {offset}"):
            tail.fail_from(offset)
    assert ends(tail) == (0, 4, 3)
    tail.commit_to(1)
    with pytest.raises(ValueError, match="begins at 0"):
        tail.fail_from(0)  # committed
    assert ends(tail) == (1, 4, 2)


def test_a_foreign_batch_keeps_its_position(side: Side) -> None:
    tail = sealed_row(side, [b"a"])
    tail.append(b"c")
    tail.seal_batch(encode_batch([b"b1", b"b2"], 1, 1, 1))
    side.seal(tail)
    assert (ends(tail), tail.sealed_count) == ((0, 4, 3), 4)
    with pytest.raises(RuntimeError, match="is sealed"):
        tail.adopt(1, 1)
    tail.commit_to(3)
    with pytest.raises(RuntimeError, match="is sealed"):
        tail.adopt(1, 1)
    tail.commit_to(4)
    tail.adopt(1, 1)
    assert ends(tail) == (5, 5, 0)


def test_a_deleted_topic_fails_all_its_batches(side: Side, tail: Any) -> None:
    tail.sealed_max = 5
    conns = [side.connect() for _ in range(3)]
    for number, conn in enumerate(conns):
        conn.feed(pub(b"t", b"a"))
        assert side.poll() == []
        if number < 2:
            side.seal(tail)
    side.engine.forget_tail(b"t")
    assert ends(tail) == (0, 0, 0)
    assert [event[:2] for event in side.flush()] == [(Event.PUB_FAILED, conn) for conn in conns]


# --- which tails are to be sealed ---


def test_invalid_batches_are_not_sealed(side: Side) -> None:
    tail = side.tail(start=3)
    whole = encode_batch([b"one", b"two"], 3, 1, 1)
    damaged = bytearray(whole)
    damaged[-1] ^= 1
    for data in (b"", whole[:-8], whole + bytes(8), bytes(damaged)):
        with pytest.raises(ValueError, match="no whole batch"):
            tail.seal_batch(data)
    with pytest.raises(ValueError, match="a batch at 4, the tail is at 3"):
        tail.seal_batch(encode_batch([b"one"], 4, 1, 1))
    assert (tail.written_end, tail.sealed_count) == (3, 0)


def test_adopted_batches_are_visible_and_not_in_memory(side: Side) -> None:
    tail = side.tail(start=3)
    tail.seal_batch(encode_batch([b"one", b"two"], 3, 1, 1))
    tail.commit_to(tail.written_end)
    tail.handing = True
    tail.append(b"open")
    tail.adopt(4, 100)
    tail.validate()
    assert (tail.committed_end, tail.written_end, tail.memory_start) == (9, 9, 9)
    assert (tail.open_count, tail.handed_end) == (1, 9)
    assert (tail.message_count, tail.message_bytes) == (7, 110)
    assert side.engine.dirty_tails() == [tail]
    for count, size in ((0, 1), (1, 0), (-1, 5)):
        with pytest.raises(ValueError, match="cannot be adopted"):
            tail.adopt(count, size)
