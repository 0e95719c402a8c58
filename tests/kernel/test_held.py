"""What connections keep of commands that are not whole has one bound for all of them."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType

import pytest

from penstock import limits
from penstock.kernel import Event

from .turns import OK, Side, frames, mpub, pub, size

BOUND, SMALL, MESSAGE = 3_000, 100, 1_000
REASON = "the unfinished commands of all clients take too much memory"


@pytest.fixture
def side(kernel: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    monkeypatch.setattr(limits, "INPUT_BYTES_MAX", BOUND)
    monkeypatch.setattr(limits, "INPUT_SMALL_BYTES", SMALL)
    side = Side(kernel, message_bytes_max=MESSAGE, body_bytes_max=1_200, rdy_count_max=2500)
    yield side
    side.validate()
    side.close()


WHOLE = {
    "PUB": pub(b"t", b"x" * MESSAGE),
    "MPUB": mpub(b"t", [b"x" * 100] * 10),
    "body": b"IDENTIFY\n" + size(MESSAGE) + b"{" * MESSAGE,
}


@pytest.mark.parametrize("verb", ["PUB", "MPUB"])
def test_who_grows_beyond_the_bound_is_hung_up_on(side: Side, verb: str) -> None:
    tail, whole = side.tail(), WHOLE[verb]
    begun = [side.connect() for _ in range(3)]
    for conn in begun:
        conn.feed(whole[:910])
        assert side.poll() == []
    over = side.connect()
    over.feed(whole[:500])
    assert side.poll() == [(Event.CLOSED, over, REASON)]
    small = side.connect()
    small.feed(pub(b"t", b"small"))
    begun[0].feed(whole[910:])
    assert side.poll() == []
    side.flush()
    side.seal(tail)
    tail.commit()
    side.flush()
    assert frames(small.take_output()) == frames(begun[0].take_output()) == [OK]
    again = side.connect()
    again.feed(whole[:910])  # there is room again
    assert side.poll() == []


def test_what_is_closed_gives_its_room_back(side: Side) -> None:
    for _ in range(10):
        conn = side.connect()
        conn.feed(WHOLE["PUB"][:910])
        assert side.poll() == []
        conn.close()
        assert [event[0] for event in side.poll()] == [Event.CLOSED]


def test_small_remainders_do_not_count(side: Side) -> None:
    for _ in range(2 * BOUND // SMALL):
        side.connect().feed(WHOLE["PUB"][:SMALL])
        assert side.poll() == []


def test_the_bound_has_room_for_two_bodies(
    kernel: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "INPUT_BYTES_MAX", 10)
    monkeypatch.setattr(limits, "INPUT_SMALL_BYTES", 10)
    side = Side(kernel, message_bytes_max=MESSAGE, body_bytes_max=MESSAGE, rdy_count_max=2500)
    for _ in range(2):
        side.connect().feed(WHOLE["PUB"][:900])
        assert side.poll() == []
    side.close()
