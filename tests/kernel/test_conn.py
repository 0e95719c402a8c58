"""One V2 connection without a socket: commands out of bytes, replies in order, the ways it ends."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Cut, Event, Verb
from penstock.limits import CLOSE_DRAIN_NS

from .turns import MS, OK, SECOND, Side, bodies, frames, mpub, pub, size

MESSAGE_MAX = 100
BODY_MAX = 1_000
LIMITS = {"message_bytes_max": MESSAGE_MAX, "body_bytes_max": BODY_MAX}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (b"RDY 5\n", 5),
        (b"RDY\n", 1),
        (b"RDY\r\n", 1),
        (b"RDY \n", 0),
        (b"RDY 0\n", 0),
        (b"RDY 2500\n", 2500),
        (b"RDY 0000000000000000000000007\n", 7),
        (b"RDY 12 and more\r\n", 12),
    ],
)
def test_rdy_is_taken_by_the_kernel(side: Side, text: bytes, count: int) -> None:
    conn = side.consumer(side.window(side.tail()), rdy=3)
    side.pass_time(SECOND)
    assert side.fed(conn, text) == []
    assert conn.rdy == count
    assert conn.last_command_ns == side.mono_ns


# --- output on hold ---


def held_consumer(side: Side, bytes_max: int = 16_384) -> tuple[Any, Any]:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=10)
    conn.output_every(bytes_max, 250 * MS)
    return tail, conn


def test_deliveries_are_held_for_a_while_or_up_to_a_size(side: Side) -> None:
    tail, conn = held_consumer(side, bytes_max=200)
    side.publish(tail, b"a")
    side.settle()
    side.pass_time(100 * MS)
    side.publish(tail, b"b")
    side.settle()
    assert conn.take_output() == b""
    assert side.engine.deadline_ns == side.mono_ns + 150 * MS
    side.pass_time(150 * MS)
    side.settle()
    assert bodies(conn.take_output()) == [b"a", b"b"]
    side.settle()
    assert side.engine.deadline_ns == 0
    side.publish(tail, b"x" * 90)
    side.settle()
    assert conn.take_output() == b""
    side.publish(tail, b"y" * 90)
    side.settle()
    assert len(bodies(conn.take_output())) == 2


def test_no_response_is_held(side: Side) -> None:
    tail, conn = held_consumer(side)
    conn.reply(0, b"_heartbeat_")
    side.publish(tail, b"a")  # delivered in the flush that sends the reply
    side.settle()
    assert [kind for kind, _ in frames(conn.take_output())][:1] == [0]
    side.fed(conn, pub(b"t", b"b"))
    assert OK in frames(conn.take_output())


def test_a_pause_lets_go_of_what_is_held(side: Side) -> None:
    tail, conn = held_consumer(side)
    side.publish(tail, b"a")
    side.settle()
    assert conn.take_output() == b""
    conn.window.paused = True
    side.pass_time(250 * MS)
    side.settle()
    assert bodies(conn.take_output()) == [b"a"]


# --- the end ---


def closed(events: list[tuple[Any, ...]]) -> list[Any]:
    return [event[1] for event in events if event[0] == Event.CLOSED]


def test_close_after_flush_sends_what_is_queued(side: Side, conn: Any) -> None:
    side.fed(conn, b"BAD\n")
    conn.reply(1, b"E_INVALID")
    conn.close_after_flush()
    events = side.fed(conn, b"MORE\n")
    assert frames(conn.take_output()) == [(1, b"E_INVALID")]
    conn.feed_eof()
    events += side.settle()
    side.pass_time(CLOSE_DRAIN_NS)
    events += side.settle()
    assert events == [(Event.CLOSED, conn, events[-1][2])]


def test_a_half_closed_client_gets_no_messages(side: Side, tail: Any, window: Any) -> None:
    """It would go with the messages, and they would have to time out."""
    conn = side.consumer(window, rdy=5)
    conn.feed(pub(b"t", b"x") + b"NOP\n")  # an answer is owed, so the end has to wait
    side.poll()
    conn.feed_eof()
    side.settle()
    side.publish(tail, b"y")
    side.settle()
    assert (window.in_flight, window.depth) == (0, 2)


@pytest.mark.parametrize(
    ("text", "verb", "part", "index"),
    [
        (b"PUB t\n", Verb.PUB, Cut.SIZE, 0),
        (pub(b"t", b"abc")[:-1], Verb.PUB, Cut.BODY, 0),
        (b"MPUB t\n\0\0\0", Verb.MPUB, Cut.SIZE, 0),
        (b"MPUB t\n" + size(9), Verb.MPUB, Cut.COUNT, 0),
        (b"MPUB t\n" + size(9) + size(2), Verb.MPUB, Cut.MESSAGE_SIZE, 0),
        (mpub(b"t", [b"a", b"b"])[:-1], Verb.MPUB, Cut.MESSAGE, 1),
    ],
)
def test_an_end_inside_a_publish_is_reported_and_not_appended(
    side: Side, text: bytes, verb: Verb, part: Cut, index: int, tail: Any, conn: Any
) -> None:
    conn.feed(text)
    conn.feed_eof()
    assert side.settle() == [(Event.CUT, conn, verb, part, index)]
    assert side.settle() == []  # once
    conn.reply(1, b"E_X")
    conn.close_after_flush()
    side.flush()
    assert conn.take_output().endswith(b"E_X")
    assert closed(side.settle()) == [conn]
    assert tail.message_count == 0


# --- what connections keep of commands that are not whole has one bound for all of them ---


BOUND, SMALL, MESSAGE = 3_000, 100, 1_000
REASON = "the unfinished commands of all clients take too much memory"


@pytest.fixture
def bounded(monkeypatch: pytest.MonkeyPatch) -> Iterator[Side]:
    monkeypatch.setattr(limits, "INPUT_BYTES_MAX", BOUND)
    monkeypatch.setattr(limits, "INPUT_SMALL_BYTES", SMALL)
    bounded = Side(message_bytes_max=MESSAGE, body_bytes_max=1_200)
    yield bounded
    bounded.validate()
    bounded.close()


WHOLE = {
    "PUB": pub(b"t", b"x" * MESSAGE),
    "MPUB": mpub(b"t", [b"x" * 100] * 10),
    "body": b"IDENTIFY\n" + size(MESSAGE) + b"{" * MESSAGE,
}


@pytest.mark.parametrize("verb", ["PUB", "MPUB"])
def test_a_client_beyond_the_memory_bound_is_disconnected(bounded: Side, verb: str) -> None:
    tail, whole = bounded.tail(), WHOLE[verb]
    begun = [bounded.connect() for _ in range(3)]
    for conn in begun:
        conn.feed(whole[:910])
        assert bounded.poll() == []
    over = bounded.connect()
    over.feed(whole[:500])
    assert bounded.poll() == [(Event.CLOSED, over, REASON)]
    small = bounded.connect()
    small.feed(pub(b"t", b"small"))
    begun[0].feed(whole[910:])
    assert bounded.poll() == []
    bounded.flush()
    bounded.store(tail)
    bounded.flush()
    assert frames(small.take_output()) == frames(begun[0].take_output()) == [OK]
    again = bounded.connect()
    again.feed(whole[:910])  # there is room again
    assert bounded.poll() == []


def test_small_remainders_do_not_count(bounded: Side) -> None:
    for _ in range(2 * BOUND // SMALL):
        bounded.connect().feed(WHOLE["PUB"][:SMALL])
        assert bounded.poll() == []


def test_the_bound_has_room_for_two_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "INPUT_BYTES_MAX", 10)
    monkeypatch.setattr(limits, "INPUT_SMALL_BYTES", 10)
    bounded = Side(message_bytes_max=MESSAGE, body_bytes_max=MESSAGE)
    for _ in range(2):
        bounded.connect().feed(WHOLE["PUB"][:900])
        assert bounded.poll() == []
    bounded.close()
