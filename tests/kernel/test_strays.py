"""Messages that have used their attempts: never sent again, handed out once, settled."""

from typing import Any

import pytest

from penstock.kernel import Cause, Held, Stray, StrayRecord

from .turns import SECOND, Side, entries, gone

TIMEOUT_NS = 60 * SECOND


def exhausted(offset: int, id: int, attempts: int, cause: Cause = Cause.TIMED_OUT) -> StrayRecord:
    return StrayRecord(offset, id, attempts, Stray.EXHAUSTED, 0, cause)


def pass_timeout(side: Side) -> None:
    side.pass_time(TIMEOUT_NS)
    side.tick()


def window_of(side: Side, attempts_max: int) -> Any:
    window = side.window(side.tail())
    window.attempts_max = attempts_max
    return window


def test_the_cause_is_that_of_the_last_attempt(side: Side) -> None:
    """Three messages, each of which ends its second attempt in another way than its first."""
    window = window_of(side, 2)
    stays, goes = side.consumer(window, rdy=2), side.consumer(window, rdy=0)
    id = side.publish(window.tail, b"requeued", b"timed out")
    assert len(side.received(stays)) == 2
    pass_timeout(side)
    assert [message.attempts for message in side.received(stays)] == [2, 2]
    window.requeue(stays.serial, id, 0, side.wall_ns)
    stays.feed(b"RDY 0\n")
    goes.feed(b"RDY 1\n")
    side.settle()
    last = side.publish(window.tail, b"disconnected")
    side.received(goes)
    window.requeue(goes.serial, last, 0, side.wall_ns)
    assert [message.attempts for message in side.received(goes)] == [2]
    goes.close()
    side.settle()
    pass_timeout(side)
    assert sorted(window.take_exhausted(10)) == [
        exhausted(0, id, 2, Cause.REQUEUED), exhausted(1, id + 1, 2),
        exhausted(2, last, 2, Cause.DISCONNECTED),
    ]  # fmt: skip
    assert window.settle_exhausted(id, False)  # offered again, and the cause is kept
    assert window.take_exhausted(10) == [exhausted(0, id, 2, Cause.REQUEUED)]


def test_done_ends_it_and_not_done_offers_it_again(side: Side) -> None:
    window = window_of(side, 1)
    conn = side.consumer(window, rdy=1)
    id = side.publish(window.tail, b"x")
    side.received(conn)
    pass_timeout(side)
    assert len(window.take_exhausted(10)) == 1
    assert window.settle_exhausted(id, False)
    assert window.take_exhausted(10) == [exhausted(0, id, 1)]
    side.journal(window)
    assert window.settle_exhausted(id, True)
    assert gone(0, id) in side.journal(window)
    assert (window.exhausted, window.floor, window.low) == (0, 1, 1)
    assert not window.settle_exhausted(id, True)
    assert not window.settle_exhausted(id, False)


def test_a_new_bound_applies_to_waiting_messages(side: Side) -> None:
    window = window_of(side, 0)
    conn = side.consumer(window, rdy=2)
    id = side.publish(window.tail, b"a", b"b")
    side.received(conn)
    conn.rdy = 0
    window.requeue(conn.serial, id, 0, side.wall_ns)
    window.requeue(conn.serial, id + 1, 0, side.wall_ns)
    window.attempts_max = 1
    assert (window.depth, window.exhausted) == (0, 2)
    window.attempts_max = 2
    assert (window.depth, window.exhausted) == (2, 0)
    conn.rdy = 2
    assert [message.attempts for message in side.received(conn)] == [2, 2]


@pytest.mark.parametrize(("attempts_max", "sent"), [(1, []), (2, [2])])
def test_the_last_attempt_in_flight_at_a_restart(
    side: Side, attempts_max: int, sent: list[int], tail: Any
) -> None:
    id = side.publish(tail, b"x")
    window = side.window(tail, 0)
    window.attempts_max = attempts_max
    window.restore(0, 1, [], [])  # it was in flight, for the first time
    conn = side.consumer(window, rdy=1)
    assert [message.attempts for message in side.received(conn)] == sent
    if not sent:
        assert window.take_exhausted(10) == [exhausted(0, id, 1, Cause.UNKNOWN)]


def test_exhausted_messages_do_not_expire(side: Side) -> None:
    """It is to be seen among the dead letters, however old it is."""
    window = window_of(side, 1)
    conn = side.consumer(window, rdy=1)
    side.publish(window.tail, b"x", b"y")
    side.received(conn)
    window.outdate(2)
    pass_timeout(side)
    assert window.exhausted == 1
    window.outdate(3)
    assert len(window.take_exhausted(10)) == 1


# --- messages of a channel that people look at, and settle by hand ---


NOW, DONE = 0, -1


def delayed(side: Side, count: int) -> tuple[Any, Any, int]:
    """A channel with so many delayed messages, the last one due first."""
    window = side.window(side.tail())
    conn = side.consumer(window, rdy=count)
    id = side.publish(window.tail, *(b"m%d" % number for number in range(count)))
    assert len(side.received(conn)) == count
    for number in range(count):
        delay_ns = (count - number) * SECOND
        assert window.requeue(conn.serial, id + number, delay_ns, side.wall_ns) == Held.DONE
    return window, conn, id


def test_the_holder_of_a_message(side: Side, window: Any) -> None:
    conn = side.consumer(window, rdy=2)
    id = side.publish(window.tail, b"a", b"b", b"c")
    side.received(conn)
    assert [window.holder(id + number) for number in range(4)] == [conn.serial, conn.serial, 0, 0]
    window.touch(conn.serial, id, side.mono_ns)  # a stray in flight from now on
    assert window.holder(id) == conn.serial
    conn.leave()
    assert window.holder(id) == conn.serial  # until it times out
    assert window.finish(window.holder(id), id) == Held.DONE
    assert window.holder(id) == 0


def test_the_delayed_are_listed_by_due_time(side: Side) -> None:
    window, _, id = delayed(side, 7)
    found = window.stray_records(Stray.DELAYED, 3)
    assert [record.id for record in found] == [id + 6, id + 5, id + 4]
    assert found[0] == StrayRecord(6, id + 6, 1, Stray.DELAYED, side.wall_ns + SECOND)
    assert len(window.stray_records(Stray.DELAYED, 100)) == 7
    assert window.stray_records(Stray.WAITING, 100) == []
    assert window.stray_records(Stray.DELAYED, 0) == []


def test_waiting_messages_are_listed_by_offset(side: Side) -> None:
    window, conn, id = delayed(side, 4)
    conn.rdy = 0
    side.pass_time(2 * SECOND)
    side.tick()
    expected = [StrayRecord(at, id + at, 1, Stray.WAITING, 0) for at in (2, 3)]
    assert window.stray_records(Stray.WAITING, 100) == expected


def test_a_delayed_message_is_finished_sent_now_or_put_off_again(side: Side) -> None:
    window, conn, id = delayed(side, 3)
    window.take_journal()
    assert window.settle_stray(id, DONE)
    assert (window.delayed, window.finish_count) == (2, 1)
    assert entries(window.take_journal()) == [gone(0, id)]
    assert not window.settle_stray(id, DONE)
    assert window.settle_stray(id + 1, NOW)
    assert [(one.id, one.attempts) for one in side.received(conn)] == [(id + 1, 2)]
    assert (window.delayed, window.in_flight, window.requeue_count) == (1, 1, 4)
    conn.rdy = 0
    assert window.settle_stray(id + 2, NOW)
    assert window.settle_stray(id + 2, side.wall_ns + 5 * SECOND)
    conn.rdy = 3
    assert side.received(conn) == []
    assert (window.depth, window.delayed) == (0, 1)
    side.pass_time(5 * SECOND)
    side.tick()
    assert [message.id for message in side.received(conn)] == [id + 2]


def test_the_unfinished_below_an_offset_are_counted(side: Side) -> None:
    window, conn, _ = delayed(side, 3)
    assert [window.unfinished_below(offset) for offset in (0, 1, 3, 9)] == [0, 1, 3, 3]
    conn.rdy = 10
    ids = side.publish(window.tail, b"a", b"b")
    side.received(conn)
    assert [window.unfinished_below(offset) for offset in (3, 4, 9)] == [3, 4, 5]
    window.finish(conn.serial, ids)
    assert window.unfinished_below(9) == 4


def test_messages_in_flight_or_exhausted_are_not_settled_by_hand(side: Side) -> None:
    """In flight it has an owner; used up it is on its way to the dead letters."""
    window, conn, id = delayed(side, 2)
    window.settle_stray(id, NOW)
    assert len(side.received(conn)) == 1
    assert not window.settle_stray(id, DONE)
    window.attempts_max = 1
    window.settle_stray(id + 1, NOW)
    assert window.exhausted == 1
    assert not window.settle_stray(id + 1, DONE)
    assert not window.settle_stray(12345, NOW)
