"""Messages that have become too old: what goes at once, what goes when it comes back."""

from __future__ import annotations

import pytest

from penstock.kernel import Held, Stray, StrayRecord

from .turns import SECOND, Side, bodies, cursor, finished, gone

TIMEOUT_NS = 60 * SECOND


def test_what_was_not_delivered_is_stepped_over(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    side.publish(tail, b"0", b"1", b"2")
    assert window.outdate(2) == 2
    assert (window.depth, window.low, window.next, window.expired_count) == (1, 2, 2, 2)
    side.validate()
    conn = side.consumer(window, rdy=10)
    assert [message.body for message in side.received(conn)] == [b"2"]


def test_the_bound_only_rises(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    side.publish(tail, b"0", b"1", b"2")
    assert [window.outdate(offset) for offset in (2, 1, 2, 3)] == [2, 0, 0, 1]
    assert window.expired_count == 3


def test_it_is_in_the_journal(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    side.publish(tail, b"0", b"1", b"2")
    side.journal(window)
    window.outdate(2)
    assert side.journal(window) == [cursor(2, 2)]


def test_one_in_flight_may_still_be_finished(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    id = side.publish(tail, b"0")
    side.received(conn)
    assert window.outdate(1) == 0
    assert window.in_flight == 1
    assert window.finish(conn.serial, id) == Held.DONE
    assert (window.finish_count, window.expired_count, window.low) == (1, 0, 1)


@pytest.mark.parametrize("how", ["timeout", "requeue", "delayed requeue", "touch and timeout"])
def test_one_in_flight_is_dropped_when_it_comes_back(side: Side, how: str) -> None:
    tail = side.tail()
    window = side.window(tail)
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


def test_strays_of_a_restart_go_too(side: Side) -> None:
    tail = side.tail()
    side.publish(tail, b"0", b"1", b"2", b"3")
    window = side.window(tail, 0)
    strays = [
        StrayRecord(0, 7, 1, Stray.WAITING, 0),
        StrayRecord(2, 8, 1, Stray.DELAYED, side.wall_ns + SECOND),
        StrayRecord(3, 9, 1, Stray.DELAYED, side.wall_ns + SECOND),
    ]
    window.restore(1, 4, [], strays)
    assert (window.depth, window.delayed) == (2, 2)
    assert window.outdate(3) == 3
    assert (window.depth, window.delayed, window.floor) == (0, 1, 3)
    assert gone(0, 7) in side.journal(window)


def test_above_what_is_handed_it_waits_for_the_cursor(side: Side) -> None:
    tail = side.tail(handing=False)
    window = side.window(tail)
    side.publish(tail, b"0", b"1", b"2")
    assert window.outdate(2) == 0
    assert window.depth == 0
    tail.hand()
    side.settle()
    conn = side.consumer(window, rdy=10)
    assert bodies(_output(side, conn)) == [b"2"]
    assert finished(0, 2) not in side.journal(window)


def _output(side: Side, conn: object) -> bytes:
    side.settle()
    data: bytes = conn.take_output()  # type: ignore[attr-defined]
    return data
