"""Order of a channel in a partition, where random histories (`test_model.py`) do not come."""

from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Order, Section, Stray

from .turns import SECOND, Side, fin


@pytest.fixture
def window(side: Side) -> Any:
    window = side.window(side.tail())
    window.order = Order.KEY
    return window


def say(side: Side, window: Any, words: str) -> list[int]:
    """Publish "a1 b1 -": one message a word in one batch, its first letter the key, "-" without.
    Returns the ids."""
    for word in words.split():
        sections = {} if word.startswith("-") else {Section.KEY: word[:1].encode()}
        window.tail.append(word.encode(), 0, sections)
    first_id = side.next_id
    side.commit()
    return [first_id + number for number, _ in enumerate(words.split())]


def bodies_sent(side: Side, conn: Any) -> str:
    return b" ".join(message.body for message in side.received(conn)).decode()


def done(side: Side, conn: Any, *ids: int) -> str:
    assert side.fed(conn, fin(*ids)) == []
    return bodies_sent(side, conn)


def test_messages_behind_a_key_can_be_settled_by_hand(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    a1, a2, a3, _ = say(side, window, "a1 a2 a3 a4")
    assert bodies_sent(side, conn) == "a1"
    assert [r.offset for r in window.stray_records(Stray.BEHIND, 10)] == [1, 2, 3]
    assert window.settle_stray(a2, -1)
    assert window.settle_stray(a3, 0)  # it still has to wait for those before it
    assert (window.behind, bodies_sent(side, conn)) == (2, "")
    assert done(side, conn, a1) == "a3"
    assert window.settle_stray(a3, -1) is False
    assert done(side, conn, a3) == "a4"


def test_a_message_delayed_by_hand_loses_its_turn(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    a1, a2, *_ = say(side, window, "a1 a2 a3")
    bodies_sent(side, conn)
    assert window.settle_stray(a2, side.wall_ns + SECOND)
    assert (window.behind, window.delayed) == (1, 1)
    assert done(side, conn, a1) == "a3"
    window.paused = True
    window.requeue(conn.serial, a1 + 2, 0, side.wall_ns)
    assert window.settle_stray(a1 + 2, side.wall_ns + SECOND)  # it was sent, and holds its key
    window.paused = False
    side.pass_time(SECOND)
    side.tick()
    assert bodies_sent(side, conn) == "a3"


def test_skipped_and_outdated_messages_free_their_key(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=10)
    say(side, window, "a1 a2 a3 a4")
    bodies_sent(side, conn)
    assert window.lose_range(1, 2) == 1
    assert window.outdate(3) == 1
    assert (window.behind, window.in_flight) == (1, 1)
    side.pass_time(61 * SECOND)
    side.tick()
    assert bodies_sent(side, conn) == "a4"


def test_a_hot_key_stops_the_cursor_at_the_bound(side: Side, window: Any) -> None:
    assert window.aside_max == limits.ASIDE_MAX
    window.aside_max = 3
    ids = say(side, window, "a1 a2 a3 a4 a5 a6 b1")
    conn = side.consumer(window, rdy=10)
    assert bodies_sent(side, conn) == "a1"
    assert (window.behind, window.next, window.depth) == (3, 4, 6)
    assert done(side, conn, ids[0]) == "a2"
    assert (window.behind, window.next) == (3, 5)
    assert window.lose_range(2, 3) == 1  # there is room again
    window.paused = False
    assert bodies_sent(side, conn) == "b1"
    assert window.behind == 3
    say(side, window, "a7 -1")
    assert bodies_sent(side, conn) == ""
    window.empty()
    say(side, window, "a8")
    assert bodies_sent(side, conn) == "a8"


# --- after a restart, and when the order is changed ---


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_messages_delayed_before_a_restart_stay_behind_the_cursor(
    side: Side, tail: Any, order: Order
) -> None:
    """The order begins after the restart, when nothing before it was sent again."""
    ids = say(side, side.window(tail), "a1 a2 a3")
    window = side.window(tail, 0)
    window.restore(0, 3, [], [(2, ids[2], 1, Stray.DELAYED, side.wall_ns + SECOND, 0)])
    window.order = order
    conn = side.consumer(window, rdy=10)
    assert bodies_sent(side, conn) == ""
    side.pass_time(SECOND)
    side.tick()
    assert bodies_sent(side, conn) == "a1"
    assert done(side, conn, ids[0]) == "a2"
    assert done(side, conn, ids[1]) == "a3"


def spent(side: Side, order: Order) -> tuple[Any, ...]:
    """A window whose order begins while `a1` is in flight and `a2` has used its attempts."""
    window = side.window(side.tail())
    window.attempts_max = 2
    one = side.consumer(window, rdy=10)
    a1, a2 = say(side, window, "a1 a2")
    assert bodies_sent(side, one) == "a1 a2"
    window.requeue(one.serial, a2, 0, side.wall_ns)
    assert bodies_sent(side, one) == "a2"
    window.requeue(one.serial, a2, 0, side.wall_ns)
    assert window.exhausted == 1
    assert [record.id for record in window.take_exhausted(9)] == [a2]
    one.rdy = 0
    window.order = order
    return window, one, side.consumer(window, rdy=10), a1, a2


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
@pytest.mark.parametrize("settled", [True, False])
def test_a_message_taken_before_it_moved_behind_can_be_settled(
    side: Side, order: Order, settled: bool
) -> None:
    window, one, _, a1, a2 = spent(side, order)
    side.settle()
    assert window.behind == 1
    assert window.settle_exhausted(a2, settled)
    side.fed(one, fin(a1))
    assert [record.id for record in window.take_exhausted(9)] == ([] if settled else [a2])
    assert window.settle_exhausted(a2, True) == (not settled)
    assert (window.depth, window.exhausted) == (0, 0)
