"""Order of a channel in a partition: of each key, and of everything."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Order, Section, Stray

from .recovery import Recovery
from .turns import SECOND, Side, bodies, entries, fin


@pytest.fixture
def window(side: Side) -> Any:
    window = side.window(side.tail())
    window.order = Order.KEY
    return window


def say(side: Side, window: Any, words: str, due_ns: int = 0) -> list[int]:
    """Publish "a1 b1 -": one message a word in one batch, its first letter the key, "-" without.
    Returns the ids."""
    for word in words.split():
        sections = {} if word.startswith("-") else {Section.KEY: word[:1].encode()}
        window.tail.append(word.encode(), due_ns, sections)
    first_id = side.next_id
    side.commit()
    return [first_id + number for number, _ in enumerate(words.split())]


def heard(side: Side, conn: Any) -> str:
    return b" ".join(message.body for message in side.received(conn)).decode()


def done(side: Side, conn: Any, *ids: int) -> str:
    assert side.said(conn, b"".join(map(fin, ids))) == []
    return heard(side, conn)


def test_one_of_each_key_is_in_flight(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    a1, a2, b1, _, a3, _, b2 = say(side, window, "a1 a2 b1 -1 a3 -2 b2")
    assert heard(side, conn) == "a1 b1 -1 -2"
    assert (window.in_flight, window.behind, window.depth) == (4, 3, 3)
    assert done(side, conn, b1) == "b2"
    assert done(side, conn, a1) == "a2"
    assert done(side, conn, a2) == "a3"
    assert done(side, conn, a3, b2) == ""
    assert (window.behind, window.depth, window.in_flight, window.finish_count) == (0, 0, 2, 5)


def test_an_exhausted_message_holds_its_key_until_it_is_settled(side: Side, window: Any) -> None:
    window.attempts_max = 1
    conn = side.consumer(window, rdy=10)
    a1, a2, _ = say(side, window, "a1 a2 b1")
    heard(side, conn)
    window.requeue(conn.serial, a1, 0, side.wall_ns)
    (record,) = window.take_exhausted(10)
    assert (record.id, heard(side, conn), window.behind) == (a1, "", 1)
    assert window.settle_exhausted(a1, done=True)
    assert heard(side, conn) == "a2"
    window.requeue(conn.serial, a2, 0, side.wall_ns)
    window.attempts_max = 0  # it is sent again
    assert heard(side, conn) == "a2"


def test_what_is_aside_can_be_settled_by_hand(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    a1, a2, a3, _ = say(side, window, "a1 a2 a3 a4")
    assert heard(side, conn) == "a1"
    assert [r.offset for r in window.stray_records(Stray.BEHIND, 10)] == [1, 2, 3]
    assert window.settle_stray(a2, -1)
    assert window.settle_stray(a3, 0)  # it still has to wait for those before it
    assert (window.behind, heard(side, conn)) == (2, "")
    assert done(side, conn, a1) == "a3"
    assert window.settle_stray(a3, -1) is False
    assert done(side, conn, a3) == "a4"


def test_what_is_delayed_by_hand_before_it_was_sent_loses_its_place(
    side: Side, window: Any
) -> None:
    conn = side.consumer(window, rdy=10)
    a1, a2, *_ = say(side, window, "a1 a2 a3")
    heard(side, conn)
    assert window.settle_stray(a2, side.wall_ns + SECOND)
    assert (window.behind, window.delayed) == (1, 1)
    assert done(side, conn, a1) == "a3"
    window.paused = True
    window.requeue(conn.serial, a1 + 2, 0, side.wall_ns)
    assert window.settle_stray(a1 + 2, side.wall_ns + SECOND)  # it was sent, and holds its key
    window.paused = False
    side.pass_time(SECOND)
    side.tick()
    assert heard(side, conn) == "a3"


def test_skipped_and_outdated_messages_free_their_key(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    say(side, window, "a1 a2 a3 a4")
    heard(side, conn)
    assert window.lose_range(1, 2) == 1
    assert window.outdate(3) == 1
    assert (window.behind, window.in_flight) == (1, 1)
    side.pass_time(61 * SECOND)
    side.tick()
    assert heard(side, conn) == "a4"


def test_a_hot_key_stops_the_cursor_at_the_bound(side: Side, window: Any) -> None:
    assert window.aside_max == limits.ASIDE_MAX
    window.aside_max = 3
    ids = say(side, window, "a1 a2 a3 a4 a5 a6 b1")
    conn = side.consumer(window, rdy=10)
    assert heard(side, conn) == "a1"
    assert (window.behind, window.next, window.depth) == (3, 4, 6)
    assert done(side, conn, ids[0]) == "a2"
    assert (window.behind, window.next) == (3, 5)
    assert window.lose_range(2, 3) == 1  # there is room again
    window.paused = False
    assert heard(side, conn) == "b1"
    assert window.behind == 3
    say(side, window, "a7 -1")
    assert heard(side, conn) == ""
    window.empty()
    say(side, window, "a8")
    assert heard(side, conn) == "a8"


# --- after a restart, and when the order is changed ---


def restarted(side: Side, window: Any, recovery: Recovery) -> Any:
    """The channel comes back from what its journal says; all consumers are gone."""
    recovery.apply(entries(window.take_journal()))
    side.engine.forget_window(window)
    side.windows.remove(window)
    again = side.window(window.tail, recovery.low)
    again.order = window.order
    again.attempts_max = window.attempts_max
    finished, strays = recovery.records()
    again.restore(recovery.low, recovery.next, finished, strays)
    return again


def test_after_a_restart_a_key_comes_in_the_order_of_the_log(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    ids = say(side, window, "a1 a2 b1 a3 c1 b2 -1")
    heard(side, conn)
    a1, a2, b1 = ids[:3]
    assert done(side, conn, a1, b1) == "a2 b2"
    window.requeue(conn.serial, a2, 5 * SECOND, side.wall_ns)
    again = restarted(side, window, Recovery(0))
    assert again.depth == 4
    say(side, again, "a4 b3 d1")
    conn = side.consumer(again, rdy=10)
    assert sorted(heard(side, conn).split()) == ["-1", "b2", "c1", "d1"]
    assert (again.behind, again.delayed) == (3, 1)
    side.pass_time(5 * SECOND)
    side.tick()
    assert heard(side, conn) == "a2"
    assert done(side, conn, a2) == "a3"


def test_the_keys_of_what_comes_back_are_read_from_the_log(side: Side) -> None:
    window = side.window(side.tail(memory=0))
    window.order = Order.KEY
    conn = side.consumer(window, rdy=10)
    a1, *_ = say(side, window, "a1 a2 b1 a3")
    heard(side, conn)
    say(side, window, "c1")  # the batch before it leaves memory
    again = restarted(side, window, Recovery(0))
    conn = side.consumer(again, rdy=10)
    events = side.turn()
    assert conn.take_output() == b""
    side.serve_needs(events)
    assert sorted(bodies(conn.take_output())) == [b"a1", b"b1", b"c1"]
    assert done(side, conn, a1) == "a2"


def test_an_exhausted_message_holds_its_key_after_a_restart(side: Side, window: Any) -> None:
    window.attempts_max = 1
    conn = side.consumer(window, rdy=10)
    a1, *_ = say(side, window, "a1 a2 b1")
    heard(side, conn)
    window.requeue(conn.serial, a1, 0, side.wall_ns)
    again = restarted(side, window, Recovery(0))
    conn = side.consumer(again, rdy=10)
    assert (heard(side, conn), again.exhausted, again.behind) == ("", 2, 1)  # b1 was in flight
    assert len(again.take_exhausted(10)) == 2
    assert again.settle_exhausted(a1, done=True)
    assert heard(side, conn) == "a2"


def test_the_order_of_a_live_window_can_be_changed(side: Side) -> None:
    window = side.window(side.tail())
    conn = side.consumer(window, rdy=4)
    a1, a2, b1, *_ = say(side, window, "a1 a2 b1 -1 a3 b2 c1")
    assert heard(side, conn) == "a1 a2 b1 -1"
    window.requeue(conn.serial, b1, 0, side.wall_ns)
    window.order = Order.KEY
    side.validate()
    conn.rdy = 10
    assert heard(side, conn) == "b1 c1"  # two of a are still in flight
    assert done(side, conn, a1) == ""
    assert done(side, conn, a2) == "a3"
    window.order = Order.STRICT
    assert heard(side, conn) == ""
    window.order = Order.NONE
    assert (heard(side, conn), window.behind) == ("b2", 0)


def spent(side: Side, order: Order, taken: bool) -> tuple[Any, ...]:
    """A window whose order begins while `a1` is in flight and `a2` has used its attempts."""
    window = side.window(side.tail())
    window.attempts_max = 2
    one = side.consumer(window, rdy=10)
    a1, a2 = say(side, window, "a1 a2")
    assert heard(side, one) == "a1 a2"
    window.requeue(one.serial, a2, 0, side.wall_ns)
    assert heard(side, one) == "a2"
    window.requeue(one.serial, a2, 0, side.wall_ns)
    assert window.exhausted == 1
    assert not taken or [record.id for record in window.take_exhausted(9)] == [a2]
    one.rdy = 0
    window.order = order
    return window, one, side.consumer(window, rdy=10), a1, a2


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_what_has_used_its_attempts_holds_up_nothing_before_it(side: Side, order: Order) -> None:
    window, one, two, a1, a2 = spent(side, order, taken=False)
    side.settle()
    assert (window.exhausted, window.behind) == (0, 1)
    window.requeue(one.serial, a1, 0, side.wall_ns)
    assert heard(side, two) == "a1"
    say(side, window, "a3")
    assert done(side, two, a1) == ""
    assert [record.id for record in window.take_exhausted(9)] == [a2]
    assert window.settle_exhausted(a2, True)
    assert heard(side, two) == "a3"


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
@pytest.mark.parametrize("settled", [True, False])
def test_what_was_taken_before_it_went_behind_can_be_settled(
    side: Side, order: Order, settled: bool
) -> None:
    window, one, _, a1, a2 = spent(side, order, taken=True)
    side.settle()
    assert window.behind == 1
    assert window.settle_exhausted(a2, settled)
    side.said(one, fin(a1))
    assert [record.id for record in window.take_exhausted(9)] == ([] if settled else [a2])
    assert window.settle_exhausted(a2, True) == (not settled)
    assert (window.depth, window.exhausted) == (0, 0)


# --- strict ---


@pytest.fixture
def strict(side: Side) -> Any:
    window = side.window(side.tail())
    window.order = Order.STRICT
    return window


def test_an_exhausted_message_stops_a_strict_window(side: Side, strict: Any) -> None:
    strict.attempts_max = 1
    conn = side.consumer(strict, rdy=10)
    a1, _ = say(side, strict, "a1 a2")
    heard(side, conn)
    strict.requeue(conn.serial, a1, 0, side.wall_ns)
    assert (heard(side, conn), strict.exhausted, strict.depth) == ("", 1, 1)
    strict.settle_exhausted(a1, done=True)
    assert heard(side, conn) == "a2"
