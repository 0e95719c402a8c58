"""A topic with little traffic beside one with much: what it keeps in memory is what it holds, and
not the large buffers that both take from one pool."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from .turns import Side

ROUNDS = 200
LARGE_BYTES = 700_000  # below what the pool keeps
GROWTH_BYTES_MAX = 40 << 20  # a buffer each round would be 140 MB


@pytest.fixture
def side(kernel: ModuleType) -> Iterator[Side]:
    side = Side(kernel)
    yield side
    side.validate()
    side.close()


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
