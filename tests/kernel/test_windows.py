"""One connection that consumes several windows under one RDY."""

from __future__ import annotations

import random
from typing import Any

import pytest

from penstock.kernel import Event, Held, Section, Stray

from .turns import FIRST_ID, MS, SECOND, Side, bodies, fin, gone, messages, stray


@pytest.fixture
def windows(side: Side) -> list[Any]:
    return [side.window(side.tail(partition=number)) for number in range(3)]


def consumer(side: Side, windows: list[Any], rdy: int = 0) -> Any:
    conn = side.connect()
    side.poll()
    for window in windows:
        conn.subscribe(window)
    conn.rdy = rdy
    return conn


def fill(side: Side, windows: list[Any], count: int = 4) -> list[int]:
    """So many messages in each. Returns all ids."""
    return [
        side.publish(window.tail, b"%d %d" % (window.tail.partition, number))
        for window in windows
        for number in range(count)
    ]


def test_a_connection_has_the_windows_it_subscribed_to(side: Side, windows: list[Any]) -> None:
    conn = consumer(side, windows[:2])
    assert (list(conn.windows), conn.window) == (windows[:2], windows[0])
    with pytest.raises(RuntimeError, match="subscribed already"):
        conn.subscribe(windows[1])
    conn.subscribe(windows[2])
    assert [window.consumers for window in windows] == [1, 1, 1]
    conn.leave(windows[0])
    conn.leave(windows[0])  # again: nothing
    assert (list(conn.windows), conn.window) == (windows[1:], windows[1])
    assert [window.consumers for window in windows] == [0, 1, 1]
    conn.leave()
    assert (list(conn.windows), conn.window) == ([], None)
    assert [window.consumers for window in windows] == [0, 0, 0]


def test_find_names_the_window_of_a_message(side: Side, windows: list[Any]) -> None:
    conn = consumer(side, windows, rdy=100)
    ids = fill(side, windows, 1)
    side.received(conn)
    assert [conn.find(id) for id in ids] == windows
    assert conn.find(FIRST_ID - 1) is None
    conn.rdy = 0
    found = conn.find(ids[1])
    assert found.requeue(conn.serial, ids[1], SECOND, side.wall_ns) == Held.DONE
    assert conn.in_flight == 2
    assert conn.find(ids[1]) is windows[1]  # a stray now
    assert conn.find(ids[2]).touch(conn.serial, ids[2], side.mono_ns) == Held.DONE
    side.said(conn, fin(ids[0]))
    assert conn.find(ids[0]) is None
    conn.leave(windows[1])
    assert conn.find(ids[1]) is None


def test_what_is_in_flight_in_a_window_that_was_left_takes_no_place(
    side: Side, windows: list[Any]
) -> None:
    conn = consumer(side, windows, rdy=12)
    ids = fill(side, windows)
    side.received(conn)
    assert windows[1].requeue(conn.serial, ids[4], 0, side.wall_ns) == Held.DONE
    side.received(conn)  # one of them is a stray in flight
    assert [windows[1].in_flight_of(serial) for serial in (conn.serial, 99)] == [4, 0]
    conn.leave(windows[1])
    assert (conn.in_flight, windows[1].in_flight) == (8, 4)
    text = b"%016x" % ids[5]
    assert side.said(conn, b"FIN %b\n" % text) == [
        (Event.FIN_FAILED, conn, text, Held.NOT_IN_FLIGHT)
    ]
    fill(side, windows[:1])
    assert len(side.received(conn)) == 4
    side.pass_time(61 * SECOND)
    side.tick()
    assert (windows[1].in_flight, windows[1].timeout_count) == (0, 4)
    side.validate()


def test_a_forgotten_window_is_left(side: Side, windows: list[Any]) -> None:
    conn = consumer(side, windows, rdy=12)
    ids = fill(side, windows)
    side.received(conn)
    side.engine.forget_window(windows[0])
    side.windows.remove(windows[0])
    assert (list(conn.windows), conn.in_flight) == (windows[1:], 8)
    assert side.said(conn, fin(ids[4])) == []


def test_output_is_held_while_any_window_may_bring_more(side: Side, windows: list[Any]) -> None:
    conn = consumer(side, windows, rdy=12)
    conn.output_every(16_384, 100 * MS)
    windows[0].paused = windows[1].paused = True
    fill(side, windows, 1)
    side.settle()
    assert conn.take_output() == b""
    windows[2].paused = True
    side.settle()
    assert bodies(conn.take_output()) == [b"2 0"]


def test_a_copy_gets_another_id_while_its_original_is_with_the_consumer(
    side: Side, windows: list[Any]
) -> None:
    """What is brought back may come to another partition, with the id it had. FIN by that id would
    then mean two messages."""
    conn = consumer(side, windows, rdy=12)
    (id,) = fill(side, windows[:1], 1)
    side.received(conn)
    windows[1].tail.append(b"copy", 0, {Section.ID: id})
    own_id = side.next_id
    side.commit()
    (copy,) = side.received(conn)
    assert (copy.body, copy.id) == (b"copy", own_id)
    side.said(conn, fin(id))
    assert [window.finish_count for window in windows] == [1, 0, 0]
    windows[2].tail.append(b"late", 0, {Section.ID: id})
    side.commit()
    (late,) = side.received(conn)
    assert (late.body, late.id) == (b"late", id)


def test_a_copy_that_comes_again_gets_another_id_where_its_original_is(
    side: Side, windows: list[Any]
) -> None:
    """It was first sent to a consumer that does not know the original."""
    one = consumer(side, windows[1:2], rdy=1)
    (id,) = fill(side, windows[:1], 1)
    windows[1].tail.append(b"copy", 0, {Section.ID: id})
    own_id = side.next_id
    side.commit()
    assert [message.id for message in side.received(one)] == [id]
    both = consumer(side, windows[:2], rdy=2)
    assert [message.id for message in side.received(both)] == [id]
    one.rdy = 0
    side.journal(windows[1])
    assert windows[1].requeue(one.serial, id, 0, side.wall_ns) == Held.DONE
    (again,) = side.received(both)
    assert (again.body, again.id, again.attempts) == (b"copy", own_id, 2)
    noted = side.journal(windows[1])
    assert noted.index(stray(0, own_id, 1, Stray.WAITING)) < noted.index(gone(0, id))
    side.said(both, fin(id))
    assert [window.finish_count for window in windows] == [1, 0, 0]
    side.said(both, fin(own_id))
    assert [window.finish_count for window in windows] == [1, 1, 0]


@pytest.mark.parametrize("seed", range(30))
def test_fins_go_to_their_windows_whatever_the_order(side: Side, seed: int) -> None:
    """Several connections over random windows, random FINs, of others' messages too."""
    dice = random.Random(seed)
    windows = [side.window(side.tail(partition=n)) for n in range(dice.randint(2, 8))]
    conns = [
        consumer(side, dice.sample(windows, dice.randint(1, len(windows))), rdy=dice.randint(1, 40))
        for _ in range(3)
    ]
    home = {}
    held: dict[Any, list[int]] = {conn: [] for conn in conns}
    finished = dict.fromkeys(windows, 0)
    for _ in range(40):
        for _ in range(dice.randrange(6)):
            window = dice.choice(windows)
            home[side.publish(window.tail, b"x")] = window
        side.settle()
        for conn in conns:
            held[conn] += [message.id for message in messages(conn.take_output())]
        for _ in range(dice.randrange(6)):
            conn, owner = dice.choice(conns), dice.choice(conns)
            if not held[owner]:
                continue
            id = dice.choice(held[owner])
            events = side.said(conn, fin(id))
            if conn is owner:
                assert events == []
                held[owner].remove(id)
                finished[home[id]] += 1
            else:
                known = home[id] in conn.windows
                (event,) = events
                assert event[3] == (Held.NOT_OWNER if known else Held.NOT_IN_FLIGHT)
            held[conn] += [message.id for message in messages(conn.take_output())]
        side.validate()
        assert {window: window.finish_count for window in windows} == finished
        side.settle()
        for conn in conns:
            held[conn] += [message.id for message in messages(conn.take_output())]
            assert conn.in_flight == len(held[conn])
