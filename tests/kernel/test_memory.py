"""What of a tail stays in memory, to the byte."""

import gc
import resource
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock import kernel, limits
from penstock.kernel import Source
from penstock.kernel.layout import LENGTH_FIELD_BYTES, SHORT_HEADER_BYTES

from .turns import Side, bodies

BODY = b"x" * 1_000


def batch_bytes() -> int:
    """What a batch of one `BODY` takes."""
    side = Side()
    tail = side.tail()
    side.publish(tail, BODY)
    side.close()
    written = len(side.written[tail.topic][-1]) - SHORT_HEADER_BYTES + LENGTH_FIELD_BYTES
    return written + limits.KEPT_BATCH_BYTES


def small(monkeypatch: pytest.MonkeyPatch, **batches: int) -> Side:
    """An engine with bounds of so many batches."""
    for name, count in batches.items():
        monkeypatch.setattr(limits, f"{name}_MEMORY_BYTES_MAX", count * batch_bytes())
    return Side()


@pytest.mark.parametrize("spare", [0, -1])
def test_a_tail_keeps_what_fits_to_the_byte(side: Side, spare: int) -> None:
    tail = side.tail(memory=3 * batch_bytes() + spare)
    for _ in range(5):
        side.publish(tail, BODY)
    assert tail.committed_end - tail.memory_start == 3 + spare
    tail.validate()


def test_all_tails_share_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    side = small(monkeypatch, SHARED=3)
    one, two = side.tail(b"1"), side.tail(b"2")
    for _ in range(3):
        side.publish(one, BODY)
    assert (one.memory_start, one.committed_end) == (0, 3)
    for _ in range(2):
        side.publish(two, BODY)
    assert (two.memory_start, two.committed_end) == (1, 2)  # the other had used it up
    for tail in (two, one):  # nobody writes to them: one gives way, and then there is room
        tail.rest()
    assert (two.memory_start, one.memory_start) == (2, 0)
    side.publish(one, BODY)
    assert one.memory_start == 1
    for tail in (one, two):
        tail.validate()
    side.close()


@pytest.mark.parametrize("owned", [False, True])
def test_a_tail_that_is_gone_shares_no_longer(monkeypatch: pytest.MonkeyPatch, owned: bool) -> None:
    """Whether it goes by itself, or in a cycle with its owner, which the collector finds."""
    side = small(monkeypatch, SHARED=3)
    gone, tail = side.tail(b"gone"), side.tail()
    if owned:
        gone.owner = SimpleNamespace(tail=gone)
    for _ in range(3):
        side.publish(gone, BODY)
    side.engine.forget_tail(b"gone")
    assert side.engine.dirty_tails() == []
    side.flush()
    del gone
    gc.collect()
    for _ in range(3):
        side.publish(tail, BODY)
    assert tail.memory_start == 0
    side.close()


def test_batches_that_all_have_read_are_dropped_but_the_latest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    side = small(monkeypatch, RECENT=2)
    tail = side.tail()
    fast, slow = (side.window(tail) for _ in range(2))
    reader, late = side.consumer(fast, 100), side.consumer(slow, 3)
    for _ in range(6):
        side.publish(tail, BODY)
    side.flush()
    assert (fast.next, slow.next) == (6, 3)
    assert tail.memory_start == 3  # what the slower one has still to read is there
    assert (len(bodies(reader.take_output())), len(bodies(late.take_output()))) == (6, 3)
    late.rdy = 100
    side.publish(tail, BODY)
    side.flush()
    assert (slow.next, tail.memory_start) == (7, 5)
    tail.validate()
    side.close()


# --- A topic with little traffic beside one with much ---


ROUNDS = 200
LARGE_BYTES = 700_000  # below what the pool keeps
GROWTH_BYTES_MAX = 40 << 20  # a buffer each round would be 140 MB


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_a_small_topic_does_not_hoard_large_buffers(side: Side) -> None:
    large, small = side.tail(b"large", memory=1 << 20), side.tail(b"small", memory=1 << 20)
    conn = side.consumer(side.window(small), rdy=2 * ROUNDS)
    body = b"x" * LARGE_BYTES

    def publish(number: int) -> None:
        side.publish(large, body)
        side.publish(small, b"%d" % number)
        for written in side.written.values():
            written.clear()

    for number in range(10):
        publish(number)
    before = resident_bytes()
    for number in range(10, ROUNDS):
        publish(number)
    assert resident_bytes() - before < GROWTH_BYTES_MAX
    received = [message.body for message in side.received(conn)]
    assert received == [b"%d" % number for number in range(ROUNDS)]


# --- A block read from a file and the buffer that it stands on ---


def test_a_window_in_a_cycle_gives_its_blocks_buffer_back() -> None:
    data = bytearray(kernel.encode_batch([b"a", b"b"], 0, 1 << 22, 1))
    view = memoryview(data)  # older than the window, so the collector would clear it first
    engine = kernel.Engine(1 << 20, 5 << 20, 2500)
    tail = engine.tail(b"t", 2, 0)
    window = engine.window(tail, 0)
    window.owner = [window]
    assert window.load(Source.FORWARD, view) == 1
    engine.forget_window(window)
    del window, tail, view
    engine.close()
    del engine
    gc.collect()
    data.clear()  # BufferError while somebody still looks at it
