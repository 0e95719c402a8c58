"""A channel's cursor: moved by hand, written to the journal, restored from it."""

from typing import Any

from penstock.kernel import Held, Stray

from .turns import SECOND, Side, bodies, finished, gone, stray

# --- empty, seek, skip, lose ---


def test_skip_ahead_of_the_cursor(side: Side, tail: Any, window: Any) -> None:
    conn = side.consumer(window)
    side.publish(tail, *[b"%d" % number for number in range(10)])
    side.settle()
    window.skip(3, 6)
    assert (window.depth, window.next) == (7, 0)
    conn.rdy = 2
    assert len(side.received(conn)) == 2
    conn.rdy = 10
    assert [message.body for message in side.received(conn)] == [b"2", b"6", b"7", b"8", b"9"]
    assert (window.depth, window.in_flight, window.low, window.next) == (0, 7, 0, 10)
    assert finished(3, 6) in side.journal(window)


def test_skip_behind_the_cursor_leaves_messages_in_flight(
    side: Side, tail: Any, window: Any
) -> None:
    conn = side.consumer(window, rdy=3)
    id = side.publish(tail, *[b"%d" % number for number in range(10)])
    side.received(conn)
    window.skip(0, 6)
    side.settle()
    assert (window.low, window.next, window.depth, window.in_flight) == (0, 6, 4, 3)
    for index in range(3):
        assert window.finish(conn.serial, id + index) == Held.DONE
    assert window.low == 6
    assert [message.body for message in side.received(conn)] == [b"6", b"7", b"8"]


def test_lose_range_drops_the_strays_in_it(side: Side, tail: Any, window: Any) -> None:
    conn = side.consumer(window, rdy=6)
    id = side.publish(tail, *[b"%d" % number for number in range(10)])
    side.received(conn)
    conn.rdy = 0
    window.requeue(conn.serial, id + 4, 0, side.wall_ns)
    window.requeue(conn.serial, id + 5, SECOND, side.wall_ns)
    assert (window.in_flight, window.delayed, window.depth) == (4, 1, 5)
    side.journal(window)
    assert window.lose_range(4, 6) == 2
    assert (window.depth, window.delayed) == (4, 0)
    assert sorted(side.journal(window)) == [gone(4, id + 4), gone(5, id + 5)]
    assert window.lose_range(4, 6) == 0


# --- delayed messages that are in the log alone when they are handed to a channel ---


def backlog(side: Side, count: int) -> Any:
    """A message and a delayed one in turn, in a batch each; none of them is in memory."""
    tail = side.tail(memory=0, handing=False)
    window = side.window(tail)
    for number in range(count):
        side.publish(tail, b"n%d" % number)
        side.publish(tail, b"d%d" % number, due_ns=side.wall_ns + (number + 1) * SECOND)
    side.publish(tail, b"last")
    tail.hand()
    side.settle()
    return window


def counts(window: Any) -> tuple[int, int]:
    window.validate()
    return window.depth, window.delayed


def drain(side: Side, window: Any) -> list[bytes]:
    """All that comes to a new consumer at once."""
    conn = side.consumer(window, rdy=100)
    data = b""
    for _ in range(40):
        side.serve_needs(side.settle())
        data += conn.take_output()
    conn.close()
    side.settle()
    return bodies(data)


def test_a_backlog_in_the_log_is_searched(side: Side) -> None:
    window = backlog(side, 3)
    assert side.engine.take_searches() == [window]
    assert side.engine.take_searches() == []
    assert (window.search_start, window.search_end, counts(window)) == (0, 6, (7, 0))
    side.search(window, steps=2)
    assert (window.search_start, window.searched, counts(window)) == (2, 2, (6, 1))
    side.search(window)
    assert (window.searched, window.next, counts(window)) == (7, 0, (4, 3))
    id = window.stray_records(Stray.DELAYED, 1)[0].id
    assert stray(1, id, 0, Stray.DELAYED, side.wall_ns + SECOND) in side.journal(window)
    assert drain(side, window) == [b"n0", b"n1", b"n2", b"last"]
    assert (window.next, window.delayed) == (7, 3)


def test_skipped_messages_leave_the_counts(side: Side) -> None:
    window = backlog(side, 5)
    window.parked_max = 2
    side.search(window)
    window.skip(6, 8)
    side.search(window)
    assert (counts(window), window.unparked) == ((5, 4), 2)
    assert window.outdate(6) == 6
    side.search(window)
    assert counts(window) == (2, 1)
