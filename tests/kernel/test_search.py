"""Delayed messages that are in the log alone when they are handed to a channel: they are looked for
there, and are deferred from then on, whatever the channel's state."""

from __future__ import annotations

from typing import Any

from penstock.kernel import Section, Stray

from .turns import SECOND, Side, bodies, stray


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


def test_a_search_begins_again_when_the_cursor_is_set(side: Side) -> None:
    window = backlog(side, 3)
    side.search(window)
    window.seek(2)
    side.settle()
    assert (window.search_start, window.search_end, counts(window)) == (2, 6, (5, 0))
    side.search(window)
    assert counts(window) == (3, 2)


def test_a_restart_searches_what_was_not_searched(side: Side) -> None:
    window = backlog(side, 3)
    side.search(window, steps=3)
    records = window.stray_records(Stray.DELAYED, 9)
    again = side.window(window.tail, 0)
    again.restore(0, 0, [], records)
    again.searched = window.searched
    side.settle()
    assert (again.search_start, again.search_end, counts(again)) == (3, 6, (6, 1))
    side.search(again)
    assert counts(again) == (4, 3)


def copied(side: Side, id: int, *before: bytes) -> Any:
    """Some messages, then a delayed one with this id of its own; all of it in memory."""
    tail = side.tail()
    window = side.window(tail)
    window.paused = True
    for body in before:
        side.publish(tail, body)
    tail.append(b"copy", side.wall_ns + SECOND, {Section.ID: id})
    side.commit()
    side.settle()
    return window


def test_one_with_its_own_id_is_deferred_by_it(side: Side) -> None:
    window = copied(side, 77, b"first")
    assert (window.search_start, window.search_end) == (1, 2)
    side.search(window)
    assert counts(window) == (1, 1)
    assert window.stray_records(Stray.DELAYED, 1)[0].id == 77


def test_a_copy_of_what_is_still_to_come_is_deferred_by_another_id(side: Side) -> None:
    id = side.next_id
    window = copied(side, id, b"original")
    side.search(window)
    assert counts(window) == (1, 1)
    assert window.stray_records(Stray.DELAYED, 1)[0].id != id
    window.paused = False
    conn = side.consumer(window, rdy=10)
    (original,) = side.received(conn)
    assert (original.id, original.body) == (id, b"original")
    side.pass_time(SECOND)
    side.tick()
    (copy,) = side.received(conn)
    assert (copy.id != id, copy.body) == (True, b"copy")


# --- more of them than become strays ---


def bounded(side: Side, count: int, parked_max: int) -> Any:
    window = backlog(side, count)
    window.parked_max = parked_max
    side.search(window)
    return window


def test_beyond_the_bound_they_are_counted(side: Side) -> None:
    window = bounded(side, 5, parked_max=2)
    assert (counts(window), window.unparked, window.searched) == ((6, 5), 3, 5)
    assert [one.offset for one in window.stray_records(Stray.DELAYED, 9)] == [1, 3]


def test_what_is_skipped_is_counted_no_more(side: Side) -> None:
    window = bounded(side, 5, parked_max=2)
    window.skip(6, 8)
    side.search(window)
    assert (counts(window), window.unparked) == ((5, 4), 2)
    assert window.outdate(6) == 6
    side.search(window)
    assert counts(window) == (2, 1)
