"""Bounds that an operator sets: bytes that a window may send, and how far RDY counts."""

from __future__ import annotations

from penstock.limits import ALLOWANCE_ALL

from .turns import Side

BODY = b"x" * 66  # a frame of 100 bytes


def test_what_is_sent_is_taken_off(side: Side) -> None:
    window = side.window(side.tail())
    before = window.allowance
    assert before == ALLOWANCE_ALL
    conn = side.consumer(window, rdy=100)
    side.publish(window.tail, *[BODY] * 50)
    assert len(side.received(conn)) == 50
    assert window.allowance == before - 5_000


def test_nothing_is_sent_without_an_allowance(side: Side) -> None:
    window = side.window(side.tail())
    window.allowance = 0
    conn = side.consumer(window, rdy=100)
    side.publish(window.tail, BODY)
    assert (side.received(conn), window.depth) == ([], 1)
    window.allowance = 1
    assert len(side.received(conn)) == 1  # the piece in hand may be more, and is paid back
    assert window.allowance == -99
    side.publish(window.tail, BODY)
    assert side.received(conn) == []


def test_strays_count_too(side: Side) -> None:
    window = side.window(side.tail())
    conn = side.consumer(window, rdy=1)
    id = side.publish(window.tail, BODY)
    assert len(side.received(conn)) == 1
    window.allowance = 150
    for left in (50, -50):
        window.requeue(conn.serial, id, 0, side.wall_ns)
        assert len(side.received(conn)) == 1
        assert window.allowance == left
    window.requeue(conn.serial, id, 0, side.wall_ns)
    assert side.received(conn) == []


def test_others_go_on(side: Side) -> None:
    tail = side.tail()
    one, two = side.window(tail), side.window(tail)
    one.allowance = 0
    held, served = side.consumer(one, rdy=10), side.consumer(two, rdy=10)
    side.publish(tail, BODY, BODY)
    assert (len(side.received(held)), len(side.received(served))) == (0, 2)


def test_rdy_counts_no_further(side: Side) -> None:
    window = side.window(side.tail())
    conn = side.consumer(window)
    conn.rdy_limit = 2
    side.said(conn, b"RDY 100\n")
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


def test_a_limit_that_goes_gives_back_what_was_asked_for(side: Side) -> None:
    window = side.window(side.tail())
    conn = side.consumer(window, rdy=100)
    conn.rdy_limit = 5
    assert conn.rdy == 5
    conn.rdy_limit = 0
    assert conn.rdy == 100
