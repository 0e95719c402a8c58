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
