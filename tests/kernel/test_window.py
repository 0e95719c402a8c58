"""One channel on one partition: RDY, FIN, REQ, TOUCH, timeouts and ticks."""

from typing import Any

import pytest

from penstock import kernel
from penstock.kernel import Held, Section, Source, Stray
from penstock.limits import ALLOWANCE_ALL

from .turns import SECOND, Side, fin, finished, gone, stray

TIMEOUT_NS = 60 * SECOND


# --- the end of the window's span ---


def test_one_message_held_for_long_does_not_hold_the_others(side: Side) -> None:
    tail = side.tail(memory=1 << 30)
    window = side.window(tail)
    conn = side.consumer(window, rdy=40_000)
    first_id = 0
    for _ in range(4):
        id = side.publish(tail, *[b"x"] * 20_000)
        first_id = first_id or id
        got = side.received(conn)
        assert len(got) == 20_000
        conn.feed(fin(*[message.id for message in got if message.id != first_id]))
        assert side.settle() == []
        assert window.next - window.low <= 65_536
    assert (window.in_flight, conn.in_flight) == (1, 1)
    assert (window.low, window.next, window.floor) == (80_000, 80_000, 0)
    assert stray(0, first_id, 1, Stray.IN_FLIGHT) in side.journal(window)
    assert window.finish(conn.serial, first_id) == Held.DONE
    assert window.floor == 80_000


def test_a_read_does_not_change_the_order_of_turns(side: Side) -> None:
    """With one place a time, new messages and strays take turns: new ones first."""
    tail = side.tail(memory=0)
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    side.publish(tail, b"again")
    (first,) = side.received(conn)
    conn.rdy = 0
    window.requeue(conn.serial, first.id, 0, side.wall_ns)
    for body in (b"new", b"newest"):
        side.publish(tail, body)
    conn.rdy = 1
    assert {which for which, _ in side.serve_needs(side.turn())} == {Source.FORWARD, Source.STRAY}
    seen = []
    for _ in range(3):
        (message,) = side.received(conn)
        seen.append(message.body)
        conn.feed(fin(message.id))
    assert seen == [b"new", b"again", b"newest"]


# --- messages that have become too old: what goes at once, what goes when it comes back ---


@pytest.mark.parametrize("how", ["timeout", "requeue", "delayed requeue", "touch and timeout"])
def test_a_skipped_message_in_flight_is_dropped_when_it_returns(
    side: Side, how: str, tail: Any, window: Any
) -> None:
    conn = side.consumer(window, rdy=1)
    conn.timeout_ns = TIMEOUT_NS
    id = side.publish(tail, b"0")
    side.received(conn)
    window.outdate(1)
    if how.endswith("requeue"):
        delay_ns = SECOND if how.startswith("delayed") else 0
        assert window.requeue(conn.serial, id, delay_ns, side.wall_ns) == Held.DONE
    else:
        if how.startswith("touch"):
            assert window.touch(conn.serial, id, side.mono_ns) == Held.DONE
        side.pass_time(TIMEOUT_NS + 1)
        side.tick()
        assert window.timeout_count == 1
    side.validate()
    assert side.received(conn) == []
    assert (window.depth, window.in_flight, window.delayed) == (0, 0, 0)
    assert (window.expired_count, window.floor) == (1, 1)
    assert gone(0, id) in side.journal(window)


def test_a_message_above_the_handed_range_waits_for_the_cursor(side: Side) -> None:
    tail = side.tail(handing=False)
    window = side.window(tail)
    side.publish(tail, b"0", b"1", b"2")
    assert window.outdate(2) == 0
    assert window.depth == 0
    tail.hand()
    side.settle()
    conn = side.consumer(window, rdy=10)
    assert [message.body for message in side.received(conn)] == [b"2"]
    assert finished(0, 2) not in side.journal(window)


# --- messages that were sent too often and are too old: done, instead of being sent again ---


AGE_NS = 600 * SECOND


def test_both_bounds_must_be_passed(side: Side, window: Any) -> None:
    window.auto_ack_attempts, window.auto_ack_age_ns = 2, AGE_NS
    conn = side.consumer(window, rdy=1)
    id = side.publish(window.tail, b"x")
    for attempts in range(1, 10):  # often, and young
        assert [message.attempts for message in side.received(conn)] == [attempts]
        window.requeue(conn.serial, id, 0, side.wall_ns)
    assert len(side.received(conn)) == 1
    side.pass_time(AGE_NS)
    window.requeue(conn.serial, id, 0, side.wall_ns)
    assert len(side.received(conn)) == 1  # as old as that, and not older
    side.pass_time(1)
    window.requeue(conn.serial, id, 0, side.wall_ns)
    conn.rdy = 2
    side.publish(window.tail, b"behind it")
    assert [message.body for message in side.received(conn)] == [b"behind it"]
    assert (window.auto_ack_count, window.finish_count, window.expired_count) == (1, 0, 0)
    assert (window.depth, window.in_flight, conn.in_flight, window.floor) == (0, 1, 1, 1)
    assert gone(0, id) in side.journal(window)


def test_the_age_is_that_of_the_message(side: Side, tail: Any, window: Any) -> None:
    """One that brought its time along."""
    window.auto_ack_attempts, window.auto_ack_age_ns = 1, AGE_NS
    conn = side.consumer(window, rdy=1)
    sections = {Section.TIMESTAMP: {0: side.wall_ns - AGE_NS - 1}}
    batch = kernel.encode_batch([b"old"], 0, side.next_id, side.wall_ns, sections=sections)
    tail.seal_batch(batch)
    tail.commit_to(tail.written_end)
    tail.handing = True
    tail.hand()
    (first,) = side.received(conn)
    window.requeue(conn.serial, first.id, 0, side.wall_ns)
    (second,) = side.received(conn)
    assert second.attempts == 2
    window.requeue(conn.serial, first.id, 0, side.wall_ns)
    assert side.received(conn) == []


# --- bounds that an operator sets: bytes that a window may send, and how far RDY counts ---


BODY = b"x" * 66  # a frame of 100 bytes


def test_sent_bytes_reduce_the_allowance(side: Side, window: Any) -> None:
    assert window.allowance == ALLOWANCE_ALL
    conn = side.consumer(window, rdy=100)
    side.publish(window.tail, *[BODY] * 50)
    assert len(side.received(conn)) == 50
    assert window.allowance == ALLOWANCE_ALL - 5_000
    window.allowance = 0
    side.publish(window.tail, BODY)
    assert (side.received(conn), window.depth) == ([], 1)
    window.allowance = 1
    assert len(side.received(conn)) == 1  # the piece in hand may be more, and is paid back
    assert window.allowance == -99
    side.publish(window.tail, BODY)
    assert side.received(conn) == []


def test_rdy_counts_no_further(side: Side, window: Any) -> None:
    conn = side.consumer(window)
    conn.rdy_limit = 2
    side.fed(conn, b"RDY 100\n")
    assert (conn.rdy, conn.rdy_limit) == (2, 2)
    side.publish(window.tail, *[BODY] * 5)
    assert len(side.received(conn)) == 2
    conn.rdy_limit = 3
    assert (conn.rdy, len(side.received(conn))) == (3, 1)
    conn.rdy = 1
    assert conn.rdy == 1
    conn.rdy_limit = 0
    conn.rdy = 50
    assert (conn.rdy, len(side.received(conn))) == (50, 2)
