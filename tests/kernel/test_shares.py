"""Several windows of one connection share its RDY fairly."""

from __future__ import annotations

import random
import socket
from collections import Counter
from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Event

from .turns import MS, SECOND, Side, fin

BACKLOG = 1_000


def windows_of(side: Side, count: int, memory: int = 1 << 22) -> list[Any]:
    return [side.window(side.tail(partition=n, memory=memory)) for n in range(count)]


def consumer(side: Side, windows: list[Any], rdy: int, **settings: int) -> Any:
    conn = side.connect()
    side.poll()
    for name, value in settings.items():
        setattr(conn, name, value)
    for window in windows:
        conn.subscribe(window)
    conn.rdy = rdy
    return conn


def fill(side: Side, window: Any, count: int) -> None:
    if count:
        side.publish(window.tail, *[b"%d" % window.tail.partition] * count)


def places(side: Side, conn: Any) -> list[int]:
    """The partitions of the messages that come, in order, all of which are finished."""
    got = side.received(conn)
    conn.feed(b"".join(fin(message.id) for message in got))
    return [int(message.body) for message in got]


@pytest.mark.parametrize("rdy", [1, 2, 3, 7, 8, 20, 2500])
@pytest.mark.parametrize("count", [2, 8])
def test_no_window_waits_behind_a_huge_backlog(side: Side, count: int, rdy: int) -> None:
    """1000 to 1: what is alone in its window comes with the next refill that has a place for each
    window."""
    windows = windows_of(side, count)
    fill(side, windows[0], 5 * BACKLOG)
    conn = consumer(side, windows, rdy)
    places(side, conn)
    fill(side, windows[-1], 1)
    refills = 0
    while windows[-1].depth:
        refills += 1
        side.pass_time(3 * MS)
        places(side, conn)
    assert refills <= -(-2 // rdy)


def test_who_has_little_gets_all_of_it_before_a_large_room_is_given_away(side: Side) -> None:
    windows = windows_of(side, 4)
    for window, count in zip(windows, (BACKLOG, 2, BACKLOG, 90), strict=True):
        fill(side, window, count)
    conn = consumer(side, windows, rdy=500)
    seen = [Counter(places(side, conn)) for _ in range(2)]
    assert seen == [{0: 408, 1: 2, 3: 90}, {2: 500}]


def test_a_window_that_waits_for_a_block_does_not_hold_up_the_others(side: Side) -> None:
    windows = windows_of(side, 2, memory=0)
    for _ in range(3):
        for window in windows:
            fill(side, window, 1)
    conn = consumer(side, windows, rdy=1)
    events = side.turn()
    assert [event[0] for event in events] == [Event.NEED, Event.NEED]  # none is in memory
    (event,) = [event for event in events if event[1] is windows[1]]
    windows[1].load(event[2], side.block(b"t 1", 0))
    assert [places(side, conn) for _ in range(2)] == [[1], [1]]
    windows[0].load(event[2], side.block(b"t", 0))
    assert sorted(places(side, conn) + places(side, conn)) == [0, 1]


@pytest.mark.parametrize("way", ["requeue", "timeout", "leave", "empty"])
def test_a_place_that_is_given_back_goes_to_another_window(side: Side, way: str) -> None:
    windows = windows_of(side, 2)
    conn = consumer(side, windows, rdy=1)
    fill(side, windows[0], 1)
    (message,) = side.received(conn)
    fill(side, windows[1], 1)
    assert side.received(conn) == []
    if way == "requeue":
        windows[0].requeue(conn.serial, message.id, SECOND, side.wall_ns)
    elif way == "timeout":
        windows[0].attempts_max = 1
        side.pass_time(61 * SECOND)
        side.tick()
    elif way == "leave":
        conn.leave(windows[0])
    else:
        windows[0].empty()
    assert [message.body for message in side.received(conn)] == [b"1"]


def test_bytes_are_shared_by_turns(side: Side) -> None:
    """A consumer that reads slowly: what it takes at a time is less than any share."""
    ours, theirs = socket.socketpair()
    windows = windows_of(side, 3, memory=1 << 26)
    for window in windows:
        side.publish(window.tail, *[b"%d" % window.tail.partition + bytes(99_999)] * 60)
    ours.setblocking(False)
    conn = side.engine.open(ours.detach())
    with theirs:
        theirs.sendall(b"  V2")
        side.turn()
        for window in windows:
            conn.subscribe(window)
        conn.rdy = 2500
        starts = []
        for _ in range(40):
            side.settle()
            starts.append([window.next for window in windows])
            theirs.recv(1 << 18)
        conn.close()
        side.settle()
    assert starts[-1][0] < 60, "all was sent: the test shows nothing"
    assert max(starts[-1]) <= 2 * min(starts[-1])


def test_places_move_up_when_a_window_is_left(side: Side) -> None:
    windows = windows_of(side, 4)
    for window in windows:
        fill(side, window, BACKLOG)
    conn = consumer(side, windows, rdy=1)
    assert [places(side, conn) for _ in range(3)] == [[0], [1], [2]]
    conn.leave(windows[1])
    assert [places(side, conn) for _ in range(4)] == [[3], [0], [2], [3]]
    conn.leave(windows[3])
    assert [places(side, conn) for _ in range(4)] == [[0], [2], [0], [2]]


@pytest.mark.parametrize("seed", range(25))
def test_within_a_refill_no_window_is_forgotten(side: Side, seed: int) -> None:
    """Random windows, backlogs and consumers: while a consumer finishes all it gets, each of its
    windows with a backlog gets at least its share, less one, of what the consumer gets."""
    dice = random.Random(seed)
    windows = windows_of(side, 8)
    for window in windows:
        fill(side, window, dice.choice([0, 300, 3_000]))
    rdy = dice.choice([1, 2, 5, 50])
    conn = consumer(side, windows, rdy)
    got: Counter[int] = Counter()
    rounds = 0
    while all(window.depth for window in windows if window.tail.committed_end) and rounds < 50:
        rounds += 1
        got.update(places(side, conn))
        assert sum(got.values()) == rounds * rdy
    ready = sum(window.tail.committed_end > 0 for window in windows)
    if ready:
        assert min(got.values()) >= rounds * rdy // ready - 1
        assert max(got.values()) <= rounds * rdy // ready + rdy


@pytest.mark.parametrize("seed", range(10))
def test_over_large_refills_no_window_is_ahead_by_more_than_one(side: Side, seed: int) -> None:
    dice = random.Random(seed)
    windows = windows_of(side, dice.randint(2, 6))
    for window in windows:
        fill(side, window, dice.randint(2_000, 4_000))
    rdy = dice.choice([limits.WHOLE_ROOM_MIN, 400, 700])
    conn = consumer(side, windows, rdy)
    got = Counter(dict.fromkeys(range(len(windows)), 0))
    while min(window.depth for window in windows) >= rdy:
        got.update(places(side, conn))
        assert max(got.values()) - min(got.values()) <= rdy
    assert min(got.values()) > 0
