"""One connection that consumes several windows under one RDY."""

import random
import socket
from collections import Counter
from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Event, Held, Locality, Section, Stray

from .turns import FIRST_ID, SECOND, Side, fin, gone, messages, stray


@pytest.fixture
def windows(side: Side) -> list[Any]:
    return windows_of(side, 3)


def fill(side: Side, windows: list[Any], count: int = 4) -> list[int]:
    """So many messages in each. Returns all ids."""
    return [
        side.publish(window.tail, b"%d %d" % (window.tail.partition, number))
        for window in windows
        for number in range(count)
    ]


def test_a_connection_has_the_windows_it_subscribed_to(side: Side, windows: list[Any]) -> None:
    conn = side.consumer(windows[:2])
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
    conn = side.consumer(windows, rdy=100)
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
    side.fed(conn, fin(ids[0]))
    assert conn.find(ids[0]) is None
    conn.leave(windows[1])
    assert conn.find(ids[1]) is None


def test_messages_in_flight_of_a_left_window_do_not_count(side: Side, windows: list[Any]) -> None:
    conn = side.consumer(windows, rdy=12)
    ids = fill(side, windows)
    side.received(conn)
    assert windows[1].requeue(conn.serial, ids[4], 0, side.wall_ns) == Held.DONE
    side.received(conn)  # one of them is a stray in flight
    conn.leave(windows[1])
    assert (conn.in_flight, windows[1].in_flight) == (8, 4)
    text = b"%016x" % ids[5]
    assert side.fed(conn, b"FIN %b\n" % text) == [
        (Event.FIN_FAILED, conn, text, Held.NOT_IN_FLIGHT)
    ]
    conn.resume()
    fill(side, windows[:1])
    assert len(side.received(conn)) == 4
    side.pass_time(61 * SECOND)
    side.tick()
    assert (windows[1].in_flight, windows[1].timeout_count) == (0, 4)


def test_a_forgotten_window_is_left(side: Side, windows: list[Any]) -> None:
    conn = side.consumer(windows, rdy=12)
    ids = fill(side, windows)
    side.received(conn)
    side.engine.forget_window(windows[0])
    side.windows.remove(windows[0])
    assert (list(conn.windows), conn.in_flight) == (windows[1:], 8)
    assert side.fed(conn, fin(ids[4])) == []


def test_a_copy_gets_another_id_while_its_original_is_with_the_consumer(
    side: Side, windows: list[Any]
) -> None:
    """What is brought back may come to another partition, with the id it had. FIN by that id would
    then mean two messages."""
    conn = side.consumer(windows, rdy=12)
    (id,) = fill(side, windows[:1], 1)
    side.received(conn)
    windows[1].tail.append(b"copy", 0, {Section.ID: id})
    own_id = side.next_id
    side.commit()
    (copy,) = side.received(conn)
    assert (copy.body, copy.id) == (b"copy", own_id)
    side.fed(conn, fin(id))
    assert [window.finish_count for window in windows] == [1, 0, 0]
    windows[2].tail.append(b"late", 0, {Section.ID: id})
    side.commit()
    (late,) = side.received(conn)
    assert (late.body, late.id) == (b"late", id)


def test_a_copy_that_comes_again_gets_another_id_where_its_original_is(
    side: Side, windows: list[Any]
) -> None:
    """It was first sent to a consumer that does not know the original."""
    one = side.consumer(windows[1:2], rdy=1)
    (id,) = fill(side, windows[:1], 1)
    windows[1].tail.append(b"copy", 0, {Section.ID: id})
    own_id = side.next_id
    side.commit()
    assert [message.id for message in side.received(one)] == [id]
    both = side.consumer(windows[:2], rdy=2)
    assert [message.id for message in side.received(both)] == [id]
    one.rdy = 0
    side.journal(windows[1])
    assert windows[1].requeue(one.serial, id, 0, side.wall_ns) == Held.DONE
    (again,) = side.received(both)
    assert (again.body, again.id, again.attempts) == (b"copy", own_id, 2)
    noted = side.journal(windows[1])
    assert noted.index(stray(0, own_id, 1, Stray.WAITING)) < noted.index(gone(0, id))
    side.fed(both, fin(id))
    assert [window.finish_count for window in windows] == [1, 0, 0]
    side.fed(both, fin(own_id))
    assert [window.finish_count for window in windows] == [1, 1, 0]


@pytest.mark.parametrize("seed", range(30))
def test_fins_go_to_their_windows_whatever_the_order(side: Side, seed: int) -> None:
    """Several connections over random windows, random FINs, of others' messages too."""
    dice = random.Random(seed)
    windows = [side.window(side.tail(partition=n)) for n in range(dice.randint(2, 8))]
    conns = [
        side.consumer(dice.sample(windows, dice.randint(1, len(windows))), rdy=dice.randint(1, 40))
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
            events = side.fed(conn, fin(id))
            if conn is owner:
                assert events == []
                held[owner].remove(id)
                finished[home[id]] += 1
            else:
                known = home[id] in conn.windows
                (event,) = events
                conn.resume()
                assert event[3] == (Held.NOT_OWNER if known else Held.NOT_IN_FLIGHT)
            held[conn] += [message.id for message in messages(conn.take_output())]
        side.validate()
        assert {window: window.finish_count for window in windows} == finished
        side.settle()
        for conn in conns:
            held[conn] += [message.id for message in messages(conn.take_output())]
            assert conn.in_flight == len(held[conn])


# --- several windows of one connection share its RDY fairly ---


def windows_of(side: Side, count: int, memory: int = 1 << 22) -> list[Any]:
    return [side.window(side.tail(partition=n, memory=memory)) for n in range(count)]


def fill_sharing(side: Side, window: Any, count: int) -> None:
    if count:
        side.publish(window.tail, *[b"%d" % window.tail.partition] * count)


def indexes(side: Side, conn: Any) -> list[int]:
    """The partitions of the messages that come, in order, all of which are finished."""
    got = side.received(conn)
    conn.feed(fin(*[message.id for message in got]))
    return [int(message.body) for message in got]


def test_a_window_that_waits_for_a_block_does_not_hold_up_the_others(side: Side) -> None:
    windows = windows_of(side, 2, memory=0)
    for _ in range(3):
        for window in windows:
            fill_sharing(side, window, 1)
    conn = side.consumer(windows, rdy=1)
    events = side.turn()
    assert [event[0] for event in events] == [Event.NEED, Event.NEED]  # none is in memory
    (event,) = [event for event in events if event[1] is windows[1]]
    windows[1].load(event[2], side.block(b"t 1", 0))
    assert [indexes(side, conn) for _ in range(2)] == [[1], [1]]
    windows[0].load(event[2], side.block(b"t", 0))
    assert sorted(indexes(side, conn) + indexes(side, conn)) == [0, 1]


@pytest.mark.parametrize("way", ["requeue", "timeout", "leave", "empty"])
def test_freed_credit_goes_to_another_window(side: Side, way: str) -> None:
    windows = windows_of(side, 2)
    conn = side.consumer(windows, rdy=1)
    fill_sharing(side, windows[0], 1)
    (message,) = side.received(conn)
    fill_sharing(side, windows[1], 1)
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


@pytest.mark.parametrize("seed", range(25))
def test_within_a_refill_no_window_is_forgotten(side: Side, seed: int) -> None:
    """Random windows, backlogs and consumers: while a consumer finishes all it gets, each of its
    windows with a backlog gets at least its share, less one, of what the consumer gets."""
    dice = random.Random(seed)
    windows = windows_of(side, 8)
    for window in windows:
        fill_sharing(side, window, dice.choice([0, 300, 3_000]))
    rdy = dice.choice([1, 2, 5, 50])
    conn = side.consumer(windows, rdy)
    got: Counter[int] = Counter()
    rounds = 0
    while all(window.depth for window in windows if window.tail.committed_end) and rounds < 50:
        rounds += 1
        got.update(indexes(side, conn))
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
        fill_sharing(side, window, dice.randint(2_000, 4_000))
    rdy = dice.choice([limits.WHOLE_ROOM_MIN, 400, 700])
    conn = side.consumer(windows, rdy)
    got = Counter(dict.fromkeys(range(len(windows)), 0))
    while min(window.depth for window in windows) >= rdy:
        got.update(indexes(side, conn))
        assert max(got.values()) - min(got.values()) <= rdy
    assert min(got.values()) > 0


# --- near consumers come first, far ones get the rest ---


def got(side: Side, conns: list[Any]) -> list[int]:
    return [len(side.received(conn)) for conn in conns]


def test_no_window_starves_and_equally_near_ones_share(side: Side, tail: Any, window: Any) -> None:
    # The far one subscribed first, so that order alone would favour it.
    indexes = ((Locality.GLOBAL, 10), (Locality.REGION, 3), (Locality.ZONE, 2))
    conns = [side.consumer(window, rdy, locality=near) for near, rdy in indexes]
    side.publish(tail, *[b"x"] * 9)
    assert got(side, conns) == [4, 3, 2]
    found = (window.global_count, window.region_local_count, window.zone_local_count)
    assert found == (4, 3, 2)
    window.empty()
    conns[2].rdy = 50
    conns.append(side.consumer(window, 50, locality=Locality.ZONE))
    side.publish(tail, *[b"x"] * 40)
    assert got(side, conns) == [0, 0, 20, 20]


def test_a_large_window_nearby_does_not_wait_for_a_better_refill(
    side: Side, tail: Any, window: Any
) -> None:
    """Waiting would send the messages further away."""
    near = side.consumer(window, 100, locality=Locality.ZONE)
    far = side.consumer(window, 100, locality=Locality.GLOBAL)
    id = side.publish(tail, *[b"x"] * 100)
    assert got(side, [near, far]) == [100, 0]
    window.finish(near.serial, id)
    side.publish(tail, b"one more")
    assert got(side, [near, far]) == [1, 0]
