"""One channel on one partition: deliveries, FIN, REQ, TOUCH, timeouts, delays, the cursor."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from penstock.kernel import Event, Held, Section, Source, Stray, StrayRecord

from .turns import (
    CURSOR,
    FINISHED,
    GONE,
    MS,
    RESET,
    SECOND,
    STRAY,
    Entry,
    Side,
    bodies,
    entries,
    fin,
    messages,
    mpub,
)

TIMEOUT_NS = 60 * SECOND


@pytest.fixture
def side(kernel: SimpleNamespace) -> Iterator[Side]:
    side = Side(kernel, rdy_count_max=200_000)
    yield side
    side.validate()
    side.close()


def cursor(low: int, next: int) -> Entry:
    return Entry(CURSOR, 0, 0, 0, low, next, 0)


def finished(start: int, end: int) -> Entry:
    return Entry(FINISHED, 0, 0, 0, start, end, 0)


def stray(offset: int, id: int, attempts: int, state: Stray, due_ns: int = 0) -> Entry:
    return Entry(STRAY, state, attempts, 0, offset, due_ns, id)


def gone(offset: int, id: int) -> Entry:
    return Entry(GONE, 0, 0, 0, offset, 0, id)


def last_of_each(journal: list[Entry]) -> list[Entry]:
    """The journal with only the last word on each stray."""
    last = {entry.id: entry for entry in journal if entry.kind in (STRAY, GONE)}
    return [entry for entry in journal if entry.kind not in (STRAY, GONE)] + list(last.values())


# --- first delivery ---


def test_a_message_comes_with_its_timestamp_id_and_first_attempt(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    published_ns = side.wall_ns
    id = side.publish(tail, b"hello")
    (message,) = side.received(conn)
    assert message == (published_ns, 1, id, b"hello")
    assert (window.low, window.next, window.depth, window.in_flight) == (0, 1, 0, 1)
    assert (conn.in_flight, conn.message_count, window.message_count) == (1, 1, 1)


def test_rdy_is_a_level(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=2)
    ids = [side.publish(tail, b"%d" % n) for n in range(5)]
    assert [message.body for message in side.received(conn)] == [b"0", b"1"]
    assert side.received(conn) == []
    conn.feed(fin(ids[0]))
    assert [message.body for message in side.received(conn)] == [b"2"]
    conn.rdy = 1
    conn.feed(fin(ids[1]))
    assert side.received(conn) == []  # still one too many
    conn.feed(fin(ids[2]))
    assert [message.body for message in side.received(conn)] == [b"3"]
    assert window.depth == 1


def test_only_what_is_handed_is_delivered(side: Side) -> None:
    tail = side.tail(handing=False)
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    side.publish(tail, b"a")
    assert side.received(conn) == []
    assert (window.depth, window.message_count) == (0, 0)
    tail.hand()
    assert [message.body for message in side.received(conn)] == [b"a"]


def test_what_is_not_committed_is_not_delivered(side: Side) -> None:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=10)
    tail.append(b"a")
    side.seal(tail)
    side.flush()
    assert conn.take_output() == b""
    tail.commit()
    side.flush()
    assert bodies(conn.take_output()) == [b"a"]


def test_no_delivery_while_paused(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    window.paused = True
    side.publish(tail, b"a")
    assert side.received(conn) == []
    assert window.depth == 1
    window.paused = False
    assert [message.body for message in side.received(conn)] == [b"a"]


def test_no_delivery_to_a_closing_consumer(side: Side) -> None:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=10)
    conn.closing = True
    side.publish(tail, b"a")
    assert side.received(conn) == []


def test_each_channel_gets_every_message(side: Side) -> None:
    tail = side.tail()
    conns = [side.consumer(side.window(tail), rdy=10) for _ in range(3)]
    side.publish(tail, b"a", b"b")
    side.settle()
    assert [bodies(conn.take_output()) for conn in conns] == [[b"a", b"b"]] * 3


def test_ids_follow_the_formula_across_a_tick(side: Side) -> None:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=10)
    for number in range(6):
        tail.append(b"%d" % number)
    base_id = (7 << 22) | (3 << 12) | 4093
    tail.seal(base_id, 1, 0)
    tail.commit()
    got = [message.id for message in side.received(conn)]
    assert got == [side.kernel.id_at(base_id, number) for number in range(6)]
    for id in got:
        conn.feed(fin(id))
    assert side.settle() == []
    assert conn.in_flight == 0


# --- finish ---


def test_finishing_in_order_moves_the_cursor(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    id = side.publish(tail, b"a", b"b", b"c")
    side.received(conn)
    assert side.journal(window) == [cursor(0, 3)]
    assert window.finish(conn.serial, id) == Held.DONE
    assert window.finish(conn.serial, id + 1) == Held.DONE
    assert (window.low, window.in_flight, conn.in_flight) == (2, 1, 1)
    assert (window.finish_count, conn.finish_count) == (2, 2)
    assert window.journal_dirty
    assert side.journal(window) == [cursor(2, 3)]
    assert not window.journal_dirty
    assert side.journal(window) == []


def test_finishing_out_of_order_is_kept_as_ranges(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    id = side.publish(tail, *[b"x"] * 8)
    side.received(conn)
    side.journal(window)
    for index in (2, 3, 6):
        window.finish(conn.serial, id + index)
    assert side.journal(window) == [finished(2, 4), finished(6, 7)]
    assert window.low == 0
    for index in (0, 1, 7):
        window.finish(conn.serial, id + index)
    assert window.low == 4
    assert side.journal(window) == [cursor(4, 8), finished(7, 8)]


def test_finish_says_why_not(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    one, two = side.consumer(window, rdy=1), side.consumer(window)
    id = side.publish(tail, b"a", b"b")
    side.received(one)
    assert window.finish(two.serial, id) == Held.NOT_OWNER
    assert window.finish(one.serial, id + 1) == Held.NOT_IN_FLIGHT  # not delivered yet
    assert window.finish(one.serial, 12345) == Held.NOT_IN_FLIGHT
    assert window.finish(one.serial, id) == Held.DONE
    assert window.finish(one.serial, id) == Held.NOT_IN_FLIGHT
    assert (window.finish_count, one.finish_count, two.finish_count) == (1, 1, 0)


# --- requeue ---


def test_a_requeued_message_comes_again(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    id = side.publish(tail, b"a")
    side.received(conn)
    assert window.requeue(conn.serial, id, 0, side.wall_ns) == Held.DONE
    assert (window.depth, window.in_flight, conn.in_flight) == (1, 0, 0)
    assert (window.requeue_count, conn.requeue_count, window.timeout_count) == (1, 1, 0)
    assert last_of_each(side.journal(window)) == [cursor(1, 1), stray(0, id, 1, Stray.WAITING)]
    (message,) = side.received(conn)
    assert (message.attempts, message.id, message.body) == (2, id, b"a")
    assert side.journal(window) == [stray(0, id, 2, Stray.IN_FLIGHT)]
    assert window.finish(conn.serial, id) == Held.DONE
    assert side.journal(window) == [gone(0, id)]
    assert window.message_count == 1
    assert conn.message_count == 2


def test_a_delayed_requeue_waits_for_its_time(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    id = side.publish(tail, b"a")
    side.received(conn)
    due_ns = side.wall_ns + 500 * MS
    window.requeue(conn.serial, id, 500 * MS, side.wall_ns)
    assert (window.depth, window.delayed, window.due_ns, window.in_flight) == (0, 1, due_ns, 0)
    assert stray(0, id, 1, Stray.DELAYED, due_ns) in side.journal(window)
    assert window.release(due_ns - 1) == 0
    assert side.received(conn) == []
    assert window.release(due_ns) == 1
    assert (window.depth, window.delayed, window.due_ns) == (1, 0, 0)
    assert [message.attempts for message in side.received(conn)] == [2]


def test_releases_come_in_the_order_of_their_due_times(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    id = side.publish(tail, b"3", b"1", b"2")
    side.received(conn)
    for index, delay_ms in enumerate((300, 100, 200)):
        window.requeue(conn.serial, id + index, delay_ms * MS, side.wall_ns)
    assert window.release(side.wall_ns + 250 * MS) == 2
    assert [message.body for message in side.received(conn)] == [b"1", b"2"]
    assert window.due_ns == side.wall_ns + 300 * MS


def test_only_the_owner_may_requeue_or_touch(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    one, two = side.consumer(window, rdy=1), side.consumer(window)
    id = side.publish(tail, b"a")
    side.received(one)
    side.journal(window)
    assert window.requeue(two.serial, id, 0, 0) == Held.NOT_OWNER
    assert window.touch(two.serial, id, side.mono_ns) == Held.NOT_OWNER
    assert window.requeue(one.serial, id + 1, 0, 0) == Held.NOT_IN_FLIGHT
    assert window.touch(one.serial, id + 1, side.mono_ns) == Held.NOT_IN_FLIGHT
    assert window.requeue_count == 0
    assert side.journal(window) == []


def test_strays_and_new_messages_take_turns(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=8)
    id = side.publish(tail, *[b"old"] * 8)
    side.received(conn)
    for index in range(8):
        window.requeue(conn.serial, id + index, 0, side.wall_ns)
    side.publish(tail, *[b"new"] * 8)
    got = [message.body for message in side.received(conn)]
    assert sorted(got) == [b"new"] * 4 + [b"old"] * 4


def test_a_consumer_of_one_at_a_time_sees_both_kinds(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=4)
    id = side.publish(tail, *[b"old"] * 4)
    side.received(conn)
    for index in range(4):
        window.requeue(conn.serial, id + index, 0, side.wall_ns)
    conn.rdy = 1
    side.publish(tail, *[b"new"] * 4)
    got = []
    for _ in range(8):
        (message,) = side.received(conn)
        got.append(message.body)
        window.finish(conn.serial, message.id)
    assert set(got[:2]) == set(got[2:4]) == set(got[4:6]) == {b"old", b"new"}


# --- timeouts ---


def test_a_message_times_out_at_its_deadline(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    conn.timeout_ns = 2 * SECOND
    id = side.publish(tail, b"a")
    side.received(conn)
    delivered_ns = side.mono_ns
    assert 0 < window.deadline_ns <= delivered_ns + 2 * SECOND
    assert window.expire(delivered_ns + 2 * SECOND - 1) == 0
    assert window.in_flight == 1
    assert window.expire(delivered_ns + 2 * SECOND) == 1
    assert (window.in_flight, conn.in_flight, window.depth) == (0, 0, 1)
    assert (window.timeout_count, window.requeue_count, conn.requeue_count) == (1, 0, 0)
    assert window.finish(conn.serial, id) == Held.NOT_IN_FLIGHT
    assert [message.attempts for message in side.received(conn)] == [2]
    assert window.expire(side.mono_ns + 2 * SECOND) == 1
    assert [message.attempts for message in side.received(conn)] == [3]


def test_timeouts_of_several_come_again_in_order(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    side.publish(tail, *[b"%d" % number for number in range(6)])
    for attempts in (1, 2, 3):
        got = side.received(conn)
        assert [message.body for message in got] == [b"%d" % number for number in range(6)]
        assert {message.attempts for message in got} == {attempts}
        side.pass_time(TIMEOUT_NS)
        assert window.expire(side.mono_ns) == 6


def test_touch_moves_the_deadline(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=2)
    conn.timeout_ns = 10 * SECOND
    id = side.publish(tail, b"touched", b"left")
    side.received(conn)
    side.pass_time(8 * SECOND)
    assert window.touch(conn.serial, id, side.mono_ns) == Held.DONE
    side.pass_time(2 * SECOND)
    assert window.expire(side.mono_ns) == 1
    assert (window.in_flight, conn.in_flight) == (1, 1)
    side.pass_time(8 * SECOND - 1)
    assert window.expire(side.mono_ns) == 0
    side.pass_time(1)
    assert window.expire(side.mono_ns) == 1


def test_touch_is_capped_from_the_delivery_on(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    window.touch_max_ns = 15 * SECOND
    conn = side.consumer(window, rdy=1)
    conn.timeout_ns = 10 * SECOND
    id = side.publish(tail, b"a")
    side.received(conn)
    for _ in range(2):
        side.pass_time(6 * SECOND)
        assert window.touch(conn.serial, id, side.mono_ns) == Held.DONE
    side.pass_time(3 * SECOND - 1)
    assert window.expire(side.mono_ns) == 0
    side.pass_time(1)
    assert window.expire(side.mono_ns) == 1


def test_touch_can_bring_the_deadline_forward(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    id = side.publish(tail, b"a")
    side.received(conn)
    conn.timeout_ns = 1 * SECOND
    window.touch(conn.serial, id, side.mono_ns)
    assert window.expire(side.mono_ns + 1 * SECOND) == 1


def test_a_touched_message_can_be_finished_once(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    id = side.publish(tail, b"a")
    side.received(conn)
    window.touch(conn.serial, id, side.mono_ns)
    assert (window.low, window.floor) == (1, 0)
    assert stray(0, id, 1, Stray.IN_FLIGHT) in side.journal(window)
    assert window.finish(conn.serial, id) == Held.DONE
    assert window.finish(conn.serial, id) == Held.NOT_IN_FLIGHT
    assert (conn.in_flight, window.in_flight, window.floor) == (0, 0, 1)


@pytest.mark.parametrize("how", ["leave", "close"])
def test_what_a_consumer_held_times_out_after_it_left(side: Side, how: str) -> None:
    tail = side.tail()
    window = side.window(tail)
    one = side.consumer(window, rdy=2)
    two = side.consumer(window)
    id = side.publish(tail, b"a", b"b")
    side.received(one)
    window.touch(one.serial, id, side.mono_ns)
    getattr(one, how)()
    side.settle()
    two.rdy = 10
    assert window.consumers == 1
    assert (window.in_flight, window.depth) == (2, 0)
    assert side.received(two) == []
    side.pass_time(TIMEOUT_NS)
    assert side.tick() == 0
    assert window.timeout_count == 2
    got = side.received(two)
    assert [(message.body, message.attempts) for message in got] == [(b"a", 2), (b"b", 2)] or [
        (message.body, message.attempts) for message in got
    ] == [(b"b", 2), (b"a", 2)]
    assert two.in_flight == 2


def test_each_consumer_has_its_own_timeout(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    patient, hasty = side.consumer(window, rdy=1), side.consumer(window, rdy=1)
    patient.timeout_ns, hasty.timeout_ns = 20 * SECOND, 5 * SECOND
    side.publish(tail, b"a", b"b")
    side.settle()
    assert (patient.in_flight, hasty.in_flight) == (1, 1)
    assert window.expire(side.mono_ns + 5 * SECOND) == 1
    assert (patient.in_flight, hasty.in_flight) == (1, 0)
    assert window.expire(side.mono_ns + 20 * SECOND) == 1


# --- tick ---


def test_tick_says_when_it_wants_to_come_again(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=2)
    assert side.tick() == 0
    id = side.publish(tail, b"a", b"b")
    side.received(conn)
    window.requeue(conn.serial, id, 700 * MS, side.wall_ns)
    assert 0 < side.tick() <= 700 * MS
    side.pass_time(700 * MS)
    assert 0 < side.tick() <= TIMEOUT_NS - 700 * MS
    assert (window.delayed, window.depth) == (0, 1)
    side.pass_time(TIMEOUT_NS)
    assert side.tick() == 0
    assert window.timeout_count == 1


def test_following_the_ticks_fires_each_timer_in_time(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conns = [side.consumer(window, rdy=1) for _ in range(3)]
    for number, conn in enumerate(conns):
        conn.timeout_ns = (number + 1) * 10 * SECOND + number
    side.publish(tail, b"a", b"b", b"c")
    side.settle()
    started_ns = side.mono_ns
    for conn in conns:
        conn.rdy = 0
    fired = []
    for _ in range(20):
        wait_ns = side.tick()
        fired += [side.mono_ns - started_ns] * (window.timeout_count - len(fired))
        if wait_ns == 0:
            break
        side.pass_time(wait_ns)
    assert fired == [10 * SECOND, 20 * SECOND + 1, 30 * SECOND + 2]


def test_a_tick_that_fires_nothing_does_not_look_at_every_message(side: Side) -> None:
    tail = side.tail(memory=1 << 30)
    window = side.window(tail)
    conn = side.consumer(window, rdy=30_000)

    def best_ns() -> int:
        took = []
        for _ in range(20):
            started = time.perf_counter_ns()
            for _ in range(20):
                side.tick()
            took.append(time.perf_counter_ns() - started)
        return min(took)

    side.publish(tail, b"a")
    side.received(conn)
    with_one_ns = best_ns()
    side.publish(tail, *[b"x"] * 29_999)
    side.received(conn)
    assert window.in_flight > 20_000  # a large window is not filled to the brim
    assert best_ns() < 50 * with_one_ns


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
        conn.feed(b"".join(fin(message.id) for message in got if message.id != first_id))
        assert side.settle() == []
        assert window.next - window.low <= 65_536
    assert (window.in_flight, conn.in_flight) == (1, 1)
    assert (window.low, window.next, window.floor) == (80_000, 80_000, 0)
    assert stray(0, first_id, 1, Stray.IN_FLIGHT) in side.journal(window)
    assert window.finish(conn.serial, first_id) == Held.DONE
    assert window.floor == 80_000


# --- empty, seek, skip, lose ---


def busy_window(side: Side) -> tuple[SimpleNamespace, int]:
    """In flight: 0 (touched), 2, 3; finished: 1; waiting: 4; delayed: 5; new: 6 to 9."""
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=6)
    id = side.publish(tail, *[b"%d" % number for number in range(10)])
    side.received(conn)
    conn.rdy = 0
    window.touch(conn.serial, id, side.mono_ns)
    window.finish(conn.serial, id + 1)
    window.requeue(conn.serial, id + 4, 0, side.wall_ns)
    window.requeue(conn.serial, id + 5, SECOND, side.wall_ns)
    assert (window.in_flight, window.delayed, window.depth, conn.in_flight) == (3, 1, 5, 3)
    side.validate()
    return SimpleNamespace(tail=tail, window=window, conn=conn), id


def test_empty_drops_everything(side: Side) -> None:
    it, id = busy_window(side)
    side.journal(it.window)
    it.window.empty()
    assert (it.window.low, it.window.next, it.window.depth) == (10, 10, 0)
    assert (it.window.in_flight, it.window.delayed, it.conn.in_flight) == (0, 0, 0)
    assert (it.window.deadline_ns, it.window.due_ns, it.window.floor) == (0, 0, 10)
    assert it.window.finish(it.conn.serial, id + 2) == Held.NOT_IN_FLIGHT
    assert side.journal(it.window) == [Entry(RESET, 0, 0, 0, 10, 10, 0)]
    it.conn.rdy = 10
    side.publish(it.tail, b"after")
    assert [message.body for message in side.received(it.conn)] == [b"after"]


def test_seek_goes_back(side: Side) -> None:
    it, _ = busy_window(side)
    it.window.seek(3)
    assert (it.window.low, it.window.next, it.window.depth, it.conn.in_flight) == (3, 3, 7, 0)
    assert side.journal(it.window) == [Entry(RESET, 0, 0, 0, 3, 3, 0)]
    it.conn.rdy = 10
    got = side.received(it.conn)
    assert [(message.body, message.attempts) for message in got] == [
        (b"%d" % number, 1) for number in range(3, 10)
    ]


def test_skip_ahead_of_the_cursor(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
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


def test_skip_at_the_cursor_moves_it(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    side.publish(tail, *[b"x"] * 10)
    side.settle()
    window.skip(0, 4)
    side.settle()
    assert (window.low, window.next, window.depth, window.floor) == (4, 4, 6, 4)
    assert cursor(4, 4) in side.journal(window)


def test_skip_behind_the_cursor_leaves_what_is_in_flight(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
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


def test_skips_may_overlap(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window)
    side.publish(tail, *[b"%d" % number for number in range(10)])
    side.settle()
    for start, end in ((4, 6), (2, 3), (5, 8), (2, 3), (7, 7)):
        window.skip(start, end)
    assert window.depth == 5
    conn.rdy = 10
    assert [message.body for message in side.received(conn)] == [b"0", b"1", b"3", b"8", b"9"]


def test_a_skip_beyond_what_is_handed_does_not_hide_what_is(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    side.publish(tail, *[b"x"] * 10)
    side.settle()
    window.skip(8, 100)
    assert window.depth == 8


def test_lose_drops_a_stray(side: Side) -> None:
    it, id = busy_window(side)
    side.journal(it.window)
    it.window.lose(id + 4)
    it.window.lose(id + 5)
    it.window.lose(id + 99)
    assert (it.window.depth, it.window.delayed, it.window.floor) == (4, 0, 0)
    assert side.journal(it.window) == [gone(4, id + 4), gone(5, id + 5)]


def test_lose_range_drops_the_strays_in_it(side: Side) -> None:
    it, id = busy_window(side)
    side.journal(it.window)
    assert it.window.lose_range(4, 6) == 2
    assert (it.window.depth, it.window.delayed) == (4, 0)
    assert sorted(side.journal(it.window)) == [gone(4, id + 4), gone(5, id + 5)]
    assert it.window.lose_range(4, 6) == 0


def test_losing_a_stray_in_flight_frees_its_consumer(side: Side) -> None:
    it, id = busy_window(side)
    it.window.lose(id)  # touched, so a stray, and in flight
    assert (it.window.in_flight, it.conn.in_flight) == (2, 2)


def test_in_flight_records(side: Side) -> None:
    it, id = busy_window(side)
    deadline_ns = side.mono_ns + TIMEOUT_NS
    serial = it.conn.serial
    assert sorted(it.window.in_flight_records(100)) == [
        (0, id, 1, serial, deadline_ns),
        (2, id + 2, 1, serial, deadline_ns),
        (3, id + 3, 1, serial, deadline_ns),
    ]
    assert len(it.window.in_flight_records(2)) == 2
    assert it.window.in_flight_records(0) == []


def test_floor_is_the_lowest_offset_still_wanted(side: Side) -> None:
    it, id = busy_window(side)
    assert (it.window.floor, it.window.low) == (0, 2)
    it.window.finish(it.conn.serial, id)
    assert it.window.floor == 2
    it.window.finish(it.conn.serial, id + 2)
    it.window.finish(it.conn.serial, id + 3)
    assert (it.window.floor, it.window.low) == (4, 6)


# --- the journal ---


def test_a_snapshot_and_the_journal_say_the_same(side: Side) -> None:
    it, id = busy_window(side)
    snapshot = entries(it.window.snapshot())
    due_ns = side.wall_ns + SECOND
    assert snapshot[0] == cursor(2, 6)
    assert strays_of(snapshot) == [
        stray(0, id, 1, Stray.IN_FLIGHT),
        stray(4, id + 4, 1, Stray.WAITING),
        stray(5, id + 5, 1, Stray.DELAYED, due_ns),
    ]
    journal = last_of_each(side.journal(it.window))
    assert [entry for entry in journal if entry.kind == CURSOR] == [cursor(2, 6)]
    assert strays_of(journal) == strays_of(snapshot)


def strays_of(journal: list[Entry]) -> list[Entry]:
    return sorted((entry for entry in journal if entry.kind == STRAY), key=lambda entry: entry.a)


def test_dirty_windows_have_something_to_write(side: Side) -> None:
    tail = side.tail()
    one, two = side.window(tail), side.window(tail)
    conn = side.consumer(two, rdy=1)
    id = side.publish(tail, b"a")
    side.received(conn)
    assert side.engine.dirty_windows() == [two]
    two.take_journal()
    assert side.engine.dirty_windows() == []
    conn.feed(fin(id))
    side.settle()
    one.seek(1)
    assert sorted(map(id_of, side.engine.dirty_windows())) == sorted(map(id_of, (one, two)))


def id_of(window: object) -> int:
    return id(window)


def test_a_restored_window_sends_again_what_was_in_flight(side: Side) -> None:
    tail = side.tail()
    side.publish(tail, *[b"%d" % number for number in range(10)])
    window = side.window(tail, 0)
    window.restore(2, 7, [(3, 4), (5, 6)], [])
    assert (window.low, window.depth) == (2, 6)
    assert entries(window.snapshot())[0] == cursor(2, 7)
    conn = side.consumer(window, rdy=10)
    got = [(message.body, message.attempts) for message in side.received(conn)]
    assert got == [(b"2", 2), (b"4", 2), (b"6", 2), (b"7", 1), (b"8", 1), (b"9", 1)]
    assert (window.low, window.next) == (2, 10)


def test_a_snapshot_while_sending_again_still_says_the_old_next(side: Side) -> None:
    tail = side.tail()
    side.publish(tail, *[b"%d" % number for number in range(10)])
    window = side.window(tail, 0)
    window.restore(0, 8, [(6, 7)], [])
    conn = side.consumer(window, rdy=2)
    ids = [message.id for message in side.received(conn)]
    window.finish(conn.serial, ids[0])
    journal = side.journal(window)
    assert cursor(1, 8) in journal
    snapshot = entries(window.snapshot())
    assert snapshot[0] == cursor(1, 8)
    assert finished(6, 7) in snapshot


def test_restored_strays_go_on_where_they_were(side: Side) -> None:
    tail = side.tail()
    id = side.publish(tail, *[b"%d" % number for number in range(6)])
    window = side.window(tail, 0)
    due_ns = side.wall_ns + SECOND
    window.restore(
        3,
        5,
        [],
        [
            StrayRecord(0, id, 4, Stray.WAITING, 0),
            StrayRecord(1, id + 1, 2, Stray.DELAYED, due_ns),
            StrayRecord(4, id + 4, 7, Stray.IN_FLIGHT, 0),
        ],
    )
    assert (window.depth, window.delayed, window.in_flight) == (4, 1, 0)
    assert (window.floor, window.due_ns) == (0, due_ns)
    conn = side.consumer(window, rdy=10)
    got = {message.body: message.attempts for message in side.received(conn)}
    assert got == {b"0": 5, b"4": 8, b"3": 2, b"5": 1}
    side.pass_time(SECOND)
    side.tick()
    assert [(m.body, m.attempts) for m in side.received(conn)] == [(b"1", 3)]
    assert window.low == 3


def test_a_restored_delay_keeps_the_tick_going(side: Side) -> None:
    tail = side.tail()
    id = side.publish(tail, b"a")
    window = side.window(tail, 0)
    window.restore(1, 1, [], [StrayRecord(0, id, 1, Stray.DELAYED, side.wall_ns + SECOND)])
    assert side.tick() == SECOND


# --- delayed messages ---


def test_a_delayed_message_waits_without_any_consumer(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    due_ns = side.wall_ns + 5 * SECOND
    id = side.publish(tail, b"later", due_ns=due_ns)
    side.settle()
    assert (window.delayed, window.depth, window.due_ns) == (1, 0, due_ns)
    assert (window.low, window.next, window.floor) == (1, 1, 0)
    assert stray(0, id, 0, Stray.DELAYED, due_ns) in side.journal(window)
    conn = side.consumer(window, rdy=1)
    assert side.received(conn) == []
    side.pass_time(5 * SECOND)
    side.tick()
    (message,) = side.received(conn)
    assert (message.attempts, message.id, message.body) == (1, id, b"later")
    assert window.finish(conn.serial, id) == Held.DONE


def test_a_delay_does_not_hold_up_what_comes_after(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    tail.append(b"now")
    tail.append(b"later", side.wall_ns + SECOND)
    tail.append(b"now too")
    side.commit()
    assert [message.body for message in side.received(conn)] == [b"now", b"now too"]
    assert (window.delayed, window.in_flight) == (1, 2)


def test_a_delay_that_has_passed_is_no_delay(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    id = side.publish(tail, b"a", due_ns=side.wall_ns)
    side.settle()
    assert (window.delayed, window.depth, window.next) == (0, 1, 0)
    conn = side.consumer(window, rdy=1)
    assert [(message.id, message.attempts) for message in side.received(conn)] == [(id, 1)]
    assert side.journal(window) == [cursor(0, 1)]


def test_each_channel_delays_for_itself(side: Side) -> None:
    tail = side.tail()
    windows = [side.window(tail) for _ in range(2)]
    side.publish(tail, b"a", due_ns=side.wall_ns + SECOND)
    side.settle()
    assert [window.delayed for window in windows] == [1, 1]


# --- messages with a past: own ids, attempts, timestamps ---


def with_past(side: Side, window: object, first: int, sections: dict[int, dict[int, int]]) -> bytes:
    return bytes(
        side.kernel.encode_batch([b"a", b"b", b"c"], first, 6 << 22, 1111, sections=sections)
    )


def behind_memory(side: Side) -> tuple[SimpleNamespace, int]:
    """A window at offset 0 of a log whose memory begins at 3."""
    tail = side.engine.tail(b"t", 3, 0)
    tail.handed_end = 0
    window = side.window(tail, 0)
    tail.hand()
    return SimpleNamespace(tail=tail, window=window), 6 << 22


def test_a_message_keeps_its_own_timestamp_id_and_attempts(side: Side) -> None:
    it, base_id = behind_memory(side)
    conn = side.consumer(it.window, rdy=10)
    sections = {Section.TIMESTAMP: {0: 77}, Section.ID: {1: 0xABC}, Section.ATTEMPTS: {1: 3, 2: 9}}
    assert side.settle() == [(Event.NEED, it.window, Source.FORWARD, 0)]
    assert it.window.load(Source.FORWARD, with_past(side, it.window, 0, sections)) == 1
    got = side.received(conn)
    assert got == [
        (77, 1, base_id, b"a"),
        (1111, 4, 0xABC, b"b"),
        (1111, 10, base_id + 2, b"c"),
    ]
    journal = side.journal(it.window)
    assert stray(1, 0xABC, 4, Stray.IN_FLIGHT) in journal
    assert stray(2, base_id + 2, 10, Stray.IN_FLIGHT) in journal
    assert (it.window.low, it.window.next, it.window.in_flight) == (0, 3, 3)
    conn.feed(b"FIN 0000000000000ABC\n" + fin(base_id) + fin(base_id + 2))
    assert side.settle() == []
    assert (it.window.in_flight, it.window.low, it.window.floor) == (0, 3, 3)


def test_attempts_wrap_at_sixteen_bits(side: Side) -> None:
    it, base_id = behind_memory(side)
    conn = side.consumer(it.window, rdy=10)
    side.settle()
    it.window.load(Source.FORWARD, with_past(side, it.window, 0, {Section.ATTEMPTS: {0: 0xFFFF}}))
    assert [message.attempts for message in side.received(conn)] == [0, 1, 1]
    it.window.requeue(conn.serial, base_id, 0, side.wall_ns)
    assert [message.attempts for message in side.received(conn)] == [1]


def test_the_same_own_id_twice_is_two_messages(side: Side) -> None:
    it, _ = behind_memory(side)
    conn = side.consumer(it.window, rdy=10)
    side.settle()
    it.window.load(Source.FORWARD, with_past(side, it.window, 0, {Section.ID: {0: 9, 1: 9, 2: 9}}))
    got = side.received(conn)
    assert [message.body for message in got] == [b"a", b"b", b"c"]
    assert len({message.id for message in got}) == 3
    assert got[0].id == 9
    for message in got:
        assert it.window.finish(conn.serial, message.id) == Held.DONE
    assert it.window.in_flight == 0


def test_a_delayed_message_with_a_past_keeps_it(side: Side) -> None:
    it, _ = behind_memory(side)
    conn = side.consumer(it.window, rdy=10)
    side.settle()
    sections = {
        Section.ID: {0: 9},
        Section.ATTEMPTS: {0: 2},
        Section.DUE: {0: side.wall_ns + SECOND},
    }
    it.window.load(Source.FORWARD, with_past(side, it.window, 0, sections))
    assert [message.body for message in side.received(conn)] == [b"b", b"c"]
    assert it.window.delayed == 1
    side.pass_time(SECOND)
    side.tick()
    got = side.received(conn)
    assert [(message.id, message.attempts, message.body) for message in got] == [(9, 3, b"a")]


# --- reading behind the memory ---


def test_what_is_not_in_memory_is_asked_for_once(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    for number in range(4):
        side.publish(tail, b"%d" % number)
    assert side.settle() == []  # nobody wants it yet
    conn = side.consumer(window, rdy=10)
    assert side.settle() == [(Event.NEED, window, Source.FORWARD, 0)]
    conn.rdy = 11
    assert side.settle() == []
    assert window.load(Source.FORWARD, side.block(b"t", 0, 2)) == 2
    events = side.flush()
    assert bodies(conn.take_output()) == [b"0", b"1"]
    assert events == [(Event.NEED, window, Source.FORWARD, 2)]
    window.load(Source.FORWARD, side.block(b"t", 2, 1))
    assert side.flush() == []  # the last one is in memory
    assert bodies(conn.take_output()) == [b"2", b"3"]


def test_a_block_may_begin_before_what_was_asked_for(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    side.publish(tail, b"0", b"1", b"2")
    side.publish(tail, b"3")
    window.seek(1)
    conn = side.consumer(window, rdy=10)
    assert side.settle() == [(Event.NEED, window, Source.FORWARD, 1)]
    window.load(Source.FORWARD, bytearray(side.block(b"t", 1)))
    side.settle()
    assert bodies(conn.take_output()) == [b"1", b"2", b"3"]


def test_a_block_that_is_cut_is_refused(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    side.publish(tail, b"0")
    with pytest.raises(ValueError, match="block"):
        window.load(Source.FORWARD, side.block(b"t", 0)[:-8])


def test_a_stray_is_read_again_from_the_file(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    id = side.publish(tail, b"a")
    side.received(conn)
    side.publish(tail, b"b")
    assert [message.body for message in side.received(conn)] == [b"b"]
    window.requeue(conn.serial, id, 0, side.wall_ns)
    assert side.settle() == [(Event.NEED, window, Source.STRAY, 0)]
    side.publish(tail, b"c")  # goes by in the meantime
    assert side.settle() == []
    assert bodies(conn.take_output()) == [b"c"]
    window.load(Source.STRAY, side.block(b"t", 0, 1))
    assert side.flush() == []
    (message,) = messages(conn.take_output())
    assert (message.attempts, message.id, message.body) == (2, id, b"a")


def test_a_stray_that_cannot_be_read_is_lost(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    ids = []
    for number in range(3):
        ids.append(side.publish(tail, b"%d" % number))
        side.received(conn)
    window.requeue(conn.serial, ids[0], 0, side.wall_ns)
    window.requeue(conn.serial, ids[1], 0, side.wall_ns)
    assert side.settle() == [(Event.NEED, window, Source.STRAY, 0)]
    window.lose(ids[0])
    assert side.settle() == [(Event.NEED, window, Source.STRAY, 1)]
    window.load(Source.STRAY, side.block(b"t", 1, 1))
    side.settle()
    assert bodies(conn.take_output()) == [b"1"]


def test_damage_under_the_cursor_is_skipped(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    for number in range(3):
        side.publish(tail, b"%d" % number)
    conn = side.consumer(window, rdy=10)
    assert side.settle() == [(Event.NEED, window, Source.FORWARD, 0)]
    window.skip(0, 1)
    assert side.settle() == [(Event.NEED, window, Source.FORWARD, 1)]
    window.load(Source.FORWARD, side.block(b"t", 1))
    side.settle()
    assert bodies(conn.take_output()) == [b"1", b"2"]


def test_a_whole_backlog_is_read_block_by_block(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    expected = []
    for number in range(50):
        batch = [b"%d-%d" % (number, index) for index in range(number % 4 + 1)]
        side.publish(tail, *batch)
        expected += batch
    conn = side.consumer(window, rdy=1000)
    needs = side.serve_needs(side.settle())
    assert bodies(conn.take_output()) == expected
    assert len(needs) == 49
    assert window.depth == 0


# --- sampling ---


def test_sampling_drops_for_good(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10_000)
    conn.sample_rate = 50
    side.publish(tail, *[b"x"] * 4_000)
    got = len(side.received(conn))
    assert 0.45 < got / 4_000 < 0.57
    assert (window.depth, window.next) == (0, 4_000)
    assert window.in_flight == conn.in_flight == conn.message_count == got
    assert (window.finish_count, conn.finish_count) == (0, 0)


def test_a_redelivery_is_sampled_as_well(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=4_000)
    id = side.publish(tail, *[b"x"] * 4_000)
    side.received(conn)
    for index in range(4_000):
        window.requeue(conn.serial, side.kernel.id_at(id, index), 0, side.wall_ns)
    conn.sample_rate = 50
    got = len(side.received(conn))
    assert 0.45 < got / 4_000 < 0.57
    assert (window.depth, window.in_flight, conn.in_flight) == (0, got, got)
    assert window.finish_count == 0


# --- who gets what ---


def test_consumers_share_what_there_is(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conns = [side.consumer(window, rdy=100) for _ in range(4)]
    side.publish(tail, *[b"x"] * 100)
    side.settle()
    counts = [conn.in_flight for conn in conns]
    assert sum(counts) == 100
    assert max(counts) <= 26
    assert min(counts) >= 20


def test_single_messages_go_round(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conns = [side.consumer(window, rdy=100) for _ in range(4)]
    for _ in range(40):
        side.publish(tail, b"x")
        side.settle()
    assert [conn.message_count for conn in conns] == [10] * 4


def test_a_large_window_is_refilled_in_pieces(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=100)
    id = side.publish(tail, *[b"x"] * 300)
    assert len(side.received(conn)) == 100
    for index in range(24):
        window.finish(conn.serial, id + index)
    assert side.received(conn) == []
    window.finish(conn.serial, id + 24)
    assert len(side.received(conn)) == 25


def test_a_small_window_is_refilled_at_once(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=63)
    id = side.publish(tail, *[b"x"] * 100)
    assert len(side.received(conn)) == 63
    window.finish(conn.serial, id)
    assert len(side.received(conn)) == 1


def test_a_forgotten_window_is_left_alone(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    conn = side.consumer(window, rdy=10)
    side.publish(tail, b"a")
    side.received(conn)
    side.engine.forget_window(window)
    side.windows.remove(window)
    side.publish(tail, b"b")
    assert side.received(conn) == []
    side.pass_time(TIMEOUT_NS)
    assert side.tick() == 0
    assert side.engine.dirty_windows() == []


def test_a_published_batch_reaches_its_consumer_in_the_same_turn(side: Side) -> None:
    tail = side.tail()
    conn = side.consumer(side.window(tail), rdy=1000)
    publisher = side.connect()
    publisher.feed(mpub(b"t", [b"%d" % number for number in range(300)]))
    assert side.turn() == []
    assert bodies(conn.take_output()) == [b"%d" % number for number in range(300)]
