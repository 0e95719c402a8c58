"""Publishes that find the open batch full: so many bytes of them wait, and more are refused."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Event, Verb

from .turns import OK, Side, frames, mpub, mpub_ext, pub, pub_ext

BODY = b"x" * 100
HEADERS = b'{"key":"k"}'
# a command, its verb, and its bytes behind the size that it announces
COMMANDS = [
    (pub(b"t", BODY), Verb.PUB, 100),
    (mpub(b"t", [BODY, BODY]), Verb.MPUB, 4 + 2 * 104),
    (pub_ext(b"t", HEADERS, BODY), Verb.PUB_EXT, 2 + len(HEADERS) + 100),
    (mpub_ext(b"t", [(HEADERS, BODY), (b"", BODY)]), Verb.MPUB_EXT, 4 + 2 * 106 + len(HEADERS)),
]


def full(side: Side, bytes_max: int) -> Any:
    """A tail whose open batch takes no more, and cannot be written yet."""
    tail = side.tail()
    tail.append(b"x")
    tail.seal(side.next_id, side.wall_ns, 0)
    tail.sealed_max = 1
    tail.append(bytes(limits.BATCH_BYTES_MAX + 1))
    tail.waiting_bytes_max = bytes_max
    return tail


def say(side: Side, conn: Any, data: bytes) -> list[tuple[Any, ...]]:
    conn.feed(data)
    return side.poll()


def write(side: Side, tail: Any) -> None:
    """There is room again."""
    tail.commit()
    tail.sealed_max = limits.SEALED_BATCHES_MAX
    side.settle()


@pytest.mark.parametrize(("command", "verb", "length"), COMMANDS)
def test_one_may_wait_and_more_up_to_the_bound(
    side: Side, command: bytes, verb: Verb, length: int
) -> None:
    tail = full(side, 2 * length)
    first, second, third = (side.connect() for _ in range(3))
    assert say(side, first, command) == []
    assert tail.waiting_bytes == length
    assert say(side, second, command) == []
    assert tail.waiting_bytes == 2 * length
    assert say(side, third, command) == [(Event.CROWDED, third, verb, tail, length)]
    assert tail.waiting_bytes == 2 * length
    write(side, tail)
    assert tail.waiting_bytes == 0
    assert [frames(conn.take_output()) for conn in (first, second, third)] == [[OK], [OK], []]


def test_one_may_always_wait(side: Side) -> None:
    tail = full(side, 1)
    conn = side.connect()
    assert say(side, conn, pub(b"t", BODY)) == []
    assert tail.waiting_bytes == len(BODY)


def test_what_waits_elsewhere_counts(side: Side) -> None:
    tail = full(side, 150)
    tail.waiting_bytes += 51
    conn = side.connect()
    assert say(side, conn, pub(b"t", BODY)) == [(Event.CROWDED, conn, Verb.PUB, tail, 100)]
    write(side, tail)
    assert tail.waiting_bytes == 51  # who put it there takes it off


def test_an_answer_that_is_owed_comes_first(side: Side) -> None:
    """Nothing overtakes the answer to an earlier publish; by then there is room."""
    tail = full(side, 150)
    tail.waiting_bytes += 100
    other = side.tail(b"u")
    conn = side.connect()
    assert say(side, conn, pub(b"u", b"y") + pub(b"t", BODY)) == []
    assert other.open_count == 1
    assert tail.waiting_bytes == 100  # it does not wait for room, but for its answer
    write(side, tail)
    assert frames(conn.take_output()) == [OK, OK]


def test_a_batch_that_is_given_up_makes_room(side: Side) -> None:
    tail = full(side, 0)
    conn = side.connect()
    assert say(side, conn, pub(b"t", BODY)) == []
    tail.drop_open()
    assert tail.waiting_bytes == 0
    write(side, tail)
    assert frames(conn.take_output()) == [OK]
