"""Order, where one that has used its attempts stands behind others that were scheduled."""

from typing import Any

import pytest

from penstock.kernel import Order

from .test_keyorder import done, heard, say
from .turns import SECOND, Side


@pytest.fixture
def window(side: Side) -> Any:
    window = side.window(side.tail())
    window.order = Order.KEY
    return window


def spent_before_due(side: Side, window: Any, words: str) -> tuple[Any, list[int], list[int]]:
    """`words` come due while the message that was published after them, of the same key, is
    exhausted. The consumer, their ids, and the id of the exhausted one."""
    window.attempts_max = 1
    conn = side.consumer(window, rdy=10)
    late = say(side, window, words, side.wall_ns + SECOND)
    spent = say(side, window, "a9")
    assert heard(side, conn) == "a9"
    window.requeue(conn.serial, spent[0], 0, side.wall_ns)
    assert [record.id for record in window.take_exhausted(9)] == spent
    side.pass_time(SECOND)
    side.tick()
    return conn, late, spent


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
def test_what_comes_due_before_an_exhausted_message_passes_it(
    side: Side, window: Any, order: Order
) -> None:
    window.order = order
    conn, (a1, a2), (a9,) = spent_before_due(side, window, "a1 a2")
    say(side, window, "a10")
    assert (heard(side, conn), window.exhausted) == ("a1", 0)
    assert done(side, conn, a1) == "a2"
    assert window.take_exhausted(9) == []  # it is not its turn
    assert done(side, conn, a2) == ""
    assert [record.id for record in window.take_exhausted(9)] == [a9]
    assert window.settle_exhausted(a9, True)
    assert heard(side, conn) == "a10"


def test_what_is_settled_while_others_pass_it_is_done(side: Side, window: Any) -> None:
    conn, (a1,), (a9,) = spent_before_due(side, window, "a1")
    assert heard(side, conn) == "a1"
    assert window.settle_exhausted(a9, True)
    assert done(side, conn, a1) == ""
    assert (window.depth, window.exhausted, window.low) == (0, 0, 2)


def test_what_comes_due_and_is_exhausted_itself_comes_first(side: Side, window: Any) -> None:
    conn, (a1,), (a9,) = spent_before_due(side, window, "a1")
    assert heard(side, conn) == "a1"
    window.requeue(conn.serial, a1, 0, side.wall_ns)
    assert [record.id for record in window.take_exhausted(9)] == [a1]
    assert window.take_exhausted(9) == []
    window.attempts_max = 0
    assert window.settle_exhausted(a1, False)
    assert heard(side, conn) == "a1"
    assert done(side, conn, a1) == "a9"
    assert done(side, conn, a9) == ""


@pytest.mark.parametrize("order", [Order.KEY, Order.STRICT])
@pytest.mark.parametrize("aside_max", [0, 10])
def test_the_cursor_passes_what_is_exhausted_ahead_of_it(
    side: Side, window: Any, order: Order, aside_max: int
) -> None:
    """`a3` was due, and used its attempts, before the cursor came to what stands before it."""
    window.order, window.aside_max, window.attempts_max = order, aside_max, 1
    conn = side.consumer(window, rdy=0)
    a1, a2 = say(side, window, "a1 a2")
    (a3,) = say(side, window, "a3", side.wall_ns + SECOND)
    side.settle()
    assert window.delayed == 1
    side.pass_time(SECOND)
    side.tick()
    conn.rdy = 1
    assert heard(side, conn) == "a3"
    conn.rdy = 0
    window.requeue(conn.serial, a3, 0, side.wall_ns)
    is_passed = order == Order.KEY and aside_max > 0  # what stands before it is aside already
    assert [record.id for record in window.take_exhausted(9)] == ([] if is_passed else [a3])
    say(side, window, "a4")
    conn.rdy = 5
    assert heard(side, conn) == "a1"
    assert done(side, conn, a1) == "a2"
    assert done(side, conn, a2) == ""
    assert [record.id for record in window.take_exhausted(9)] == [a3]
    assert window.settle_exhausted(a3, True)
    assert heard(side, conn) == "a4"
