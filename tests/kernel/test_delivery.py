"""Delivery: delayed messages, messages with a past, reading behind the memory, sampling, shares."""

from types import SimpleNamespace
from typing import Any

import pytest

from penstock import kernel
from penstock.kernel import Event, Held, Section, Source, Stray

from .turns import MS, SECOND, Side, bodies, fin, gone, stray

TIMEOUT_NS = 60 * SECOND


def test_a_message_cancelled_behind_a_backlog_is_not_delivered(
    side: Side, tail: Any, window: Any
) -> None:
    window.paused = True
    side.publish(tail, b"first")
    for number in range(2):
        side.publish(tail, b"d%d" % number, due_ns=side.wall_ns + SECOND + number)
        side.publish(tail, b"n%d" % number)
        side.settle()
    one = window.stray_records(Stray.DELAYED, 1)[0]
    assert window.settle_stray(one.id, -1)
    side.validate()
    assert (window.depth, window.delayed, window.finish_count) == (3, 1, 1)
    journal = side.journal(window)
    assert gone(1, one.id) in journal
    window.paused = False
    side.pass_time(2 * SECOND)
    side.tick()
    conn = side.consumer(window, rdy=10)
    assert b"d0" not in [one.body for one in side.received(conn)]
    assert window.next == 5


# --- messages with a past: own ids, attempts, timestamps ---


def with_past(side: Side, window: object, first: int, sections: dict[int, dict[int, int]]) -> bytes:
    return bytes(kernel.encode_batch([b"a", b"b", b"c"], first, 6 << 22, 1111, sections=sections))


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
    assert got == [(77, 1, base_id, b"a"), (1111, 4, 0xABC, b"b"), (1111, 10, base_id + 2, b"c")]
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


def test_an_own_id_that_is_another_messages_by_formula(side: Side) -> None:
    """A topic replayed into itself, while the originals are in flight."""
    it, base_id = behind_memory(side)
    conn = side.consumer(it.window, rdy=10)
    side.settle()
    it.window.load(Source.FORWARD, with_past(side, it.window, 0, {Section.ID: {2: base_id}}))
    for attempts in (1, 2):
        got = side.received(conn)
        assert sorted(message.body for message in got) == [b"a", b"b", b"c"]
        assert {message.attempts for message in got} == {attempts}
        assert len({message.id for message in got}) == 3
        side.pass_time(TIMEOUT_NS)
        side.tick()
        events = side.settle()
        if events:
            it.window.load(Source.STRAY, with_past(side, it.window, 0, {}))


# --- reading behind the memory ---


def test_a_block_that_is_cut_is_refused(side: Side) -> None:
    tail = side.tail(memory=0)
    window = side.window(tail)
    side.publish(tail, b"0")
    with pytest.raises(ValueError, match="block"):
        window.load(Source.FORWARD, side.block(b"t", 0)[:-8])


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
    assert window.lose_range(0, 1) == 1
    assert side.settle() == [(Event.NEED, window, Source.STRAY, 1)]
    window.load(Source.STRAY, side.block(b"t", 1, 1))
    side.settle()
    assert bodies(conn.take_output()) == [b"1"]


# --- sampling ---


def test_sampling_drops_for_good(side: Side, tail: Any, window: Any) -> None:
    conn = side.consumer(window, rdy=10_000)
    conn.sample_rate = 50
    side.publish(tail, *[b"x"] * 4_000)
    got = len(side.received(conn))
    assert 0.45 < got / 4_000 < 0.57
    assert (window.depth, window.next) == (0, 4_000)
    assert window.in_flight == conn.in_flight == conn.message_count == got
    assert (window.finish_count, conn.finish_count) == (0, 0)


def sampled(**seed: int) -> list[tuple[int, ...]]:
    """Which messages, by number, two consumers of one engine got, and which again."""
    side = Side(rdy_count_max=4_000, **seed)
    tail = side.tail()
    conns = [side.consumer(side.window(tail), 1_000) for _ in range(2)]
    for conn in conns:
        conn.sample_rate = 50
    first_id = side.publish(tail, *[b"x"] * 200)
    got = []
    for window, conn in zip(side.windows, conns, strict=True):
        for _ in range(2):
            ids = [message.id for message in side.received(conn)]
            for id in ids:
                window.requeue(conn.serial, id, 0, side.wall_ns)
            got.append(tuple(kernel.id_index(first_id, 200, id) for id in ids))
    side.close()
    return got


def test_a_seed_decides_what_is_sampled() -> None:
    draws = sampled(seed=5)
    assert draws == sampled(seed=5)
    assert draws != sampled(seed=6)
    assert draws != sampled(seed=(1 << 64) - 1)
    assert sampled() == sampled(seed=0)


def test_draws_are_independent() -> None:
    """Of consumers, and of the attempts of one message."""
    one, again, two, _ = map(set, sampled(seed=5))
    assert again < one
    assert 30 < len(one & two) < 70
    assert 30 < len(again) < 70


# --- who gets what ---


def test_single_messages_go_round(side: Side, tail: Any, window: Any) -> None:
    conns = [side.consumer(window, rdy=100) for _ in range(4)]
    for _ in range(40):
        side.publish(tail, b"x")
        side.settle()
    assert [conn.message_count for conn in conns] == [10] * 4


def test_a_large_window_is_refilled_in_pieces(side: Side, tail: Any, window: Any) -> None:
    conn = side.consumer(window, rdy=100)
    id = side.publish(tail, *[b"x"] * 300)
    assert len(side.received(conn)) == 100
    for index in range(24):
        window.finish(conn.serial, id + index)
    assert side.received(conn) == []
    window.finish(conn.serial, id + 24)
    assert len(side.received(conn)) == 25


def test_a_small_refill_is_put_off_but_not_for_good(side: Side, tail: Any, window: Any) -> None:
    """Some clients answer nothing before they hold all that they asked for."""
    conn = side.consumer(window, rdy=100)
    id = side.publish(tail, *[b"x"] * 90)
    assert len(side.received(conn)) == 90
    assert window.finish(conn.serial, id) == Held.DONE
    side.publish(tail, b"y")
    assert side.received(conn) == []
    wait_ns = side.engine.deadline_ns - side.mono_ns
    assert 0 < wait_ns <= 5 * MS
    side.pass_time(wait_ns)
    assert [message.body for message in side.received(conn)] == [b"y"]
    assert side.received(conn) == []
    assert side.engine.deadline_ns == 0
