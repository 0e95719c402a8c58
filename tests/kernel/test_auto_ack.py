"""Messages that were sent too often and are too old: done, instead of being sent again."""

from __future__ import annotations

from typing import Any

from penstock.kernel import Section

from .turns import SECOND, Side, gone

AGE_NS = 600 * SECOND


def window_of(side: Side, attempts: int = 2, age_ns: int = AGE_NS) -> Any:
    window = side.window(side.tail())
    window.auto_ack_attempts, window.auto_ack_age_ns = attempts, age_ns
    return window


def test_both_bounds_must_be_passed(side: Side) -> None:
    window = window_of(side)
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
    assert side.received(conn) == []
    assert (window.auto_ack_count, window.finish_count, window.expired_count) == (1, 0, 0)
    assert (window.depth, window.in_flight, conn.in_flight, window.floor) == (0, 0, 0, 1)
    assert gone(0, id) in side.journal(window)


def test_those_behind_it_are_sent(side: Side) -> None:
    window = window_of(side, attempts=1)
    conn = side.consumer(window, rdy=10)
    ids = [side.publish(window.tail, body) for body in (b"a", b"b")]
    for _ in range(2):
        assert len(side.received(conn)) == 2
        for id in ids:
            window.requeue(conn.serial, id, 0, side.wall_ns)
    side.pass_time(AGE_NS + 1)
    side.publish(window.tail, b"c")
    assert [message.body for message in side.received(conn)] == [b"c"]
    assert window.auto_ack_count == 2


def test_the_age_is_that_of_the_message(side: Side) -> None:
    """One that brought its time along."""
    tail = side.tail()
    window = side.window(tail)
    window.auto_ack_attempts, window.auto_ack_age_ns = 1, AGE_NS
    conn = side.consumer(window, rdy=1)
    sections = {Section.TIMESTAMP: {0: side.wall_ns - AGE_NS - 1}}
    batch = side.kernel.encode_batch([b"old"], 0, side.next_id, side.wall_ns, sections=sections)
    tail.seal_batch(batch)
    tail.commit()
    tail.handing = True
    tail.hand()
    (first,) = side.received(conn)
    window.requeue(conn.serial, first.id, 0, side.wall_ns)
    (second,) = side.received(conn)
    assert second.attempts == 2
    window.requeue(conn.serial, first.id, 0, side.wall_ns)
    assert side.received(conn) == []
