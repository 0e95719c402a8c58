"""Messages of a channel that people look at, and settle by hand."""

from __future__ import annotations

from typing import Any

from penstock.kernel import Held, Stray, StrayRecord

from .turns import SECOND, Side, entries, gone

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


def test_who_holds_a_message(side: Side) -> None:
    window = side.window(side.tail())
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


def test_those_that_wait_are_listed_by_offset(side: Side) -> None:
    window, conn, id = delayed(side, 4)
    conn.rdy = 0
    side.pass_time(2 * SECOND)
    side.tick()
    expected = [StrayRecord(at, id + at, 1, Stray.WAITING, 0) for at in (2, 3)]
    assert window.stray_records(Stray.WAITING, 100) == expected


def test_a_delayed_message_is_finished(side: Side) -> None:
    window, conn, id = delayed(side, 2)
    window.take_journal()
    assert window.settle_stray(id, DONE)
    assert (window.delayed, window.finish_count) == (1, 1)
    assert entries(window.take_journal()) == [gone(0, id)]
    assert not window.settle_stray(id, DONE)
    side.pass_time(10 * SECOND)
    side.tick()
    assert [message.id for message in side.received(conn)] == [id + 1]


def test_a_delayed_message_is_sent_now(side: Side) -> None:
    window, conn, id = delayed(side, 2)
    assert window.settle_stray(id, NOW)
    assert [(one.id, one.attempts) for one in side.received(conn)] == [(id, 2)]
    assert (window.delayed, window.in_flight, window.requeue_count) == (1, 1, 3)


def test_a_waiting_message_is_put_off(side: Side) -> None:
    window, conn, id = delayed(side, 1)
    conn.rdy = 0
    assert window.settle_stray(id, NOW)
    assert window.settle_stray(id, side.wall_ns + 5 * SECOND)
    conn.rdy = 1
    assert side.received(conn) == []
    assert (window.depth, window.delayed) == (0, 1)
    side.pass_time(5 * SECOND)
    side.tick()
    assert [message.id for message in side.received(conn)] == [id]


def test_the_unfinished_below_an_offset_are_counted(side: Side) -> None:
    window, conn, _ = delayed(side, 3)
    assert [window.unfinished_below(offset) for offset in (0, 1, 3, 9)] == [0, 1, 3, 3]
    conn.rdy = 10
    ids = side.publish(window.tail, b"a", b"b")
    side.received(conn)
    assert [window.unfinished_below(offset) for offset in (3, 4, 9)] == [3, 4, 5]
    window.finish(conn.serial, ids)
    assert window.unfinished_below(9) == 4


def test_what_is_elsewhere_is_not_settled(side: Side) -> None:
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
