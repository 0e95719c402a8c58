"""One channel on one partition: RDY, FIN, REQ, TOUCH, timeouts and ticks."""

from __future__ import annotations

import time

import pytest

from penstock.kernel import Held, Source, Stray

from .turns import (
    MS,
    SECOND,
    Side,
    bodies,
    cursor,
    fin,
    finished,
    gone,
    last_of_each,
    stray,
)

TIMEOUT_NS = 60 * SECOND


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


def test_what_has_to_be_read_first_does_not_change_whose_turn_it_is(side: Side) -> None:
    """With one place a time, new messages and strays take turns: new ones first."""
    tail = side.tail(memory=0)
    window = side.window(tail)
    conn = side.consumer(window, rdy=1)
    side.publish(tail, b"again")
    (first,) = side.received(conn)
    conn.rdy = 0
    window.requeue(conn.serial, first.id, 0, side.wall_ns)
    for body in (b"new", b"newest"):
        side.publish(tail, body)
    conn.rdy = 1
    assert {which for which, _ in side.serve_needs(side.turn())} == {Source.FORWARD, Source.STRAY}
    seen = []
    for _ in range(3):
        (message,) = side.received(conn)
        seen.append(message.body)
        conn.feed(fin(message.id))
    assert seen == [b"new", b"again", b"newest"]
