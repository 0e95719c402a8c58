"""Events about traced messages: which there are, and what they say."""

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import kernel
from penstock.kernel import TRACE_ALL, Section, TraceKind, codec, encode_batch
from penstock.limits import TRACE_CHUNK_EVENTS
from penstock.trace.events import ABOUT_NO_MESSAGE, Kind

from .figures import in_sample
from .turns import SECOND, Side, TraceEvent, fin, mpub, pub

TIMEOUT_NS = 60 * SECOND


def traced_tail(side: Side, below: int = TRACE_ALL) -> Any:
    tail = side.tail()
    tail.traceable, tail.trace_below = True, below
    return tail


def channel(side: Side, tail: Any, below: int = TRACE_ALL) -> Any:
    window = side.window(tail)
    window.trace_below = below
    return window


def story(events: list[TraceEvent]) -> list[tuple[str, int, int, str]]:
    return [(e.kind.name.lower(), e.offset, e.attempts, e.client) for e in events]


def test_the_kinds_are_those_of_the_format() -> None:
    of_messages = set(Kind) - ABOUT_NO_MESSAGE
    assert {kind.name: kind.value for kind in of_messages} == {
        kind.name: kind.value for kind in TraceKind
    }


def test_events_of_a_message(side: Side) -> None:
    tail = traced_tail(side)
    window = channel(side, tail)
    publisher, conn = side.connect(), side.consumer(window, rdy=1)
    conn.timeout_ns = TIMEOUT_NS
    side.fed(publisher, pub(b"t", b"a"))
    (message,) = side.received(conn)
    id, serial = message.id, conn.serial
    me = f"client {serial}"
    window.touch(serial, id, side.mono_ns)
    window.requeue(serial, id, SECOND, side.wall_ns)
    side.settle()
    side.pass_time(2 * SECOND)
    side.tick()
    side.received(conn)
    side.pass_time(TIMEOUT_NS)
    side.tick()
    side.received(conn)
    side.fed(conn, fin(id))
    events = side.trace()
    assert story(events) == [
        ("published", 0, 0, f"client {publisher.serial}"),
        ("sent", 0, 1, me),
        ("touched", 0, 1, me),
        ("requeued", 0, 1, me),
        ("delayed", 0, 1, me),
        ("released", 0, 1, ""),
        ("sent", 0, 2, me),
        ("timed_out", 0, 2, me),
        ("sent", 0, 3, me),
        ("finished", 0, 3, me),
    ]
    assert {(event.id, event.topic, event.count) for event in events} == {(id, "t", 1)}
    assert [event.channel for event in events] == [""] + 9 * ["channel 0"]
    assert [event.time_ns for event in events] == sorted(event.time_ns for event in events)
    assert events[5].time_ns == events[0].time_ns + 2 * SECOND


def test_each_batch_names_its_publishers(side: Side) -> None:
    tail = traced_tail(side)
    one, two = side.connect(), side.connect()
    for data, conn in [(pub(b"t", b"a"), one), (mpub(b"t", [b"b", b"c"]), two)]:
        conn.feed(data)
        side.poll()
    tail.append(b"d")
    two.feed(pub(b"t", b"e"))
    side.settle()
    first, second = f"client {one.serial}", f"client {two.serial}"
    assert [event.client for event in side.trace()] == [first, second, second, "", second]
    side.publish(tail, b"f")
    assert [event.client for event in side.trace()] == [""]


def test_a_sample_has_all_events_of_its_messages(side: Side) -> None:
    below = TRACE_ALL // 3
    tail = traced_tail(side, below)
    window = channel(side, tail, below)
    conn = side.consumer(window, rdy=1000)
    bodies = [b"%d" % number for number in range(300)]
    first_id = side.publish(tail, *bodies)
    chosen = {message.id for message in side.received(conn) if in_sample(message.id, below)}
    side.fed(conn, fin(*range(first_id, first_id + 300)))
    events = side.trace()
    assert 60 < len(chosen) < 140
    for kind in (TraceKind.PUBLISHED, TraceKind.SENT, TraceKind.FINISHED):
        assert {event.id for event in events if event.kind == kind} == chosen
    assert len(events) == 3 * len(chosen)


def test_a_message_with_a_trace_id_is_always_traced(side: Side) -> None:
    tail = traced_tail(side, 0)
    window = channel(side, tail, 0)
    conn = side.consumer(window, rdy=10)
    conn.timeout_ns = TIMEOUT_NS
    tail.append(b"plain")
    tail.append(b"traced", 0, {Section.TRACE: 42}, conn)
    side.commit()
    side.flush()
    plain, traced = side.received(conn)
    side.fed(conn, fin(plain.id))
    window.requeue(conn.serial, traced.id, 0, side.wall_ns)
    side.received(conn)
    side.fed(conn, fin(traced.id))
    events = side.trace()
    me = f"client {conn.serial}"
    assert story(events) == [
        ("published", 1, 0, me),
        ("sent", 1, 1, me),
        ("requeued", 1, 1, me),
        ("sent", 1, 2, me),
        ("finished", 1, 2, me),
    ]
    assert {(event.id, event.trace_id) for event in events} == {(traced.id, 42)}
    side.publish(tail, b"next")
    side.received(conn)
    assert side.trace() == []  # nothing is left behind


def test_ranges_that_are_stepped_over(side: Side) -> None:
    tail = traced_tail(side, 0)
    window = channel(side, tail)
    side.publish(tail, *[b"x"] * 10)
    window.skip(2, 4)
    window.skip(4, 5, 0)
    window.skip(5, 6, TraceKind.EMPTIED)
    window.outdate(1)
    events = side.trace()
    assert [(e.kind, e.id, e.offset, e.count) for e in events] == [
        (TraceKind.SKIPPED, 0, 2, 2),
        (TraceKind.EMPTIED, 0, 5, 1),
        (TraceKind.SKIPPED, 0, 0, 1),
    ]


def test_emptying_names_the_range_and_what_lay_below(side: Side) -> None:
    tail = traced_tail(side, 0)
    window = channel(side, tail)
    conn = side.consumer(window, rdy=2)
    first_id = side.publish(tail, *[b"x"] * 6)
    side.received(conn)
    window.requeue(conn.serial, first_id, SECOND, side.wall_ns)
    side.trace()
    window.empty()
    assert [(e.kind, e.id, e.offset, e.count) for e in side.trace()] == [
        (TraceKind.EMPTIED, first_id, 0, 1),
        (TraceKind.EMPTIED, 0, 1, 5),
    ]
    window.seek(0)
    assert side.trace() == []  # nothing is dropped: all of it comes again


def records_of(side: Side) -> list[list[tuple[int, ...]]]:
    """Of each chunk that is taken: kind, id, offset and count of its records."""
    chunks = []
    for _, data in side.engine.take_trace():
        rows = struct.iter_unpack("<qQqQIHHHHHBB", data)
        chunks.append([(row[10], row[1], row[2], row[4]) for row in rows])
    return chunks


def test_many_events_come_in_chunks(side: Side) -> None:
    tail = traced_tail(side)
    count = TRACE_CHUNK_EVENTS + 5
    first_id = side.publish(tail, *[b"x"] * count)
    assert side.engine.trace_pending
    assert side.engine.trace_full
    rest_id = kernel.id_at(first_id, TRACE_CHUNK_EVENTS)
    assert records_of(side) == [
        [(TraceKind.PUBLISHED, first_id, 0, TRACE_CHUNK_EVENTS)],
        [(TraceKind.PUBLISHED, rest_id, TRACE_CHUNK_EVENTS, 5)],
    ]
    assert not side.engine.trace_pending
    assert not side.engine.trace_full
    side.publish(tail, *[b"x"] * TRACE_CHUNK_EVENTS)
    assert not side.engine.trace_full  # it is, with the next event
    assert [names for names, _ in side.engine.take_trace()] == [[tail]]


def test_consecutive_messages_are_one_record(side: Side) -> None:
    tail = traced_tail(side)
    window = channel(side, tail)
    conn = side.consumer(window, rdy=100)
    first_id = side.publish(tail, *[b"x"] * 6)
    side.received(conn)
    conn.feed(fin(*[first_id + number for number in (0, 1, 2, 4, 5, 3)]))
    side.settle()
    assert records_of(side) == [
        [
            (TraceKind.PUBLISHED, first_id, 0, 6),
            (TraceKind.SENT, first_id, 0, 6),
            (TraceKind.FINISHED, first_id, 0, 3),
            (TraceKind.FINISHED, first_id + 4, 4, 2),
            (TraceKind.FINISHED, first_id + 3, 3, 1),
        ]
    ]


@pytest.mark.parametrize("what", ["client", "attempts", "time", "id", "kind", "trace id", "chunk"])
def test_differences_that_end_a_run(side: Side, what: str) -> None:
    """Two messages one behind the other, with one difference between what happens to them."""
    tail = traced_tail(side, 0)
    window = channel(side, tail)
    one, two = side.consumer(window, rdy=1), side.consumer(window)
    if what == "id":
        side.publish(tail, b"a")
        side.publish(tail, b"b")
    else:
        sections = {Section.ATTEMPTS: 1} if what == "attempts" else {Section.TRACE: 7}
        tail.append(b"a")
        tail.append(b"b", 0, sections if what in ("attempts", "trace id") else None)
        side.commit()
    (first,) = side.received(one)
    if what == "time":
        side.pass_time(1)
    if what == "kind":
        window.requeue(one.serial, first.id, 0, side.wall_ns)
        window.touch(one.serial, first.id, side.mono_ns)
    if what == "chunk":
        before = records_of(side)
        assert len(before) == 1
    second = two if what == "client" else one
    second.rdy = 2
    side.received(second)
    (records,) = records_of(side)
    assert all(count == 1 for *_, count in records)


def test_a_batch_that_was_never_in_memory(side: Side, tail: Any) -> None:
    bodies, sections = [b"a", b"b", b"c"], {Section.TRACE: {1: 42}}
    batch = bytearray(encode_batch(bodies, 7, 9 << 12, 5, sections=sections))
    tail.note_stored(batch)
    assert side.trace() == []
    tail.traceable = True
    tail.note_stored(batch)
    (event,) = side.trace()
    assert (event.kind, event.offset, event.trace_id) == (TraceKind.PUBLISHED, 8, 42)
    assert (event.id, event.time_ns) == ((9 << 12) + 1, 5)
    tail.trace_below = TRACE_ALL
    tail.note_stored(encode_batch(bodies, 7, 9 << 12, 5))
    assert [e.offset for e in side.trace()] == [7, 8, 9]
    for wrong in (b"", batch[:-8]):
        with pytest.raises(ValueError, match="no whole batch"):
            tail.note_stored(wrong)


# --- runs of trace events taken apart: both forms say the same, and it is what was put in ---


FIELDS = "<qQqQIHHHHHBB"
MANY = 1 << 20
IDS = st.sampled_from([0, 1, (9 << 22) | 4094, (1 << 64) - 2, 77])
RECORDS = st.lists(
    st.tuples(
        st.integers(-(1 << 63), (1 << 63) - 1),
        IDS,
        st.sampled_from([0, 5, (1 << 63) - 2, -1]),
        st.sampled_from([0, 1, 42, (1 << 64) - 1]),
        st.sampled_from([0, 1, 2, 5, 9]),
        *[st.integers(0, 3)] * 7,
    ),
    max_size=8,
)


def packed(*rows: tuple[int, ...]) -> bytes:
    return b"".join(struct.pack(FIELDS, *row) for row in rows)


def record(id: int, offset: int, count: int, trace_id: int = 0) -> tuple[int, ...]:
    return (99, id, offset, trace_id, count, 1, 2, 3, 4, 0, 2, 0)


def shown(data: Any) -> list[tuple[int, ...]]:
    """Id, offset and count of each; what else they have is that of `record`."""
    rows = list(struct.iter_unpack(FIELDS, data))
    assert all((row[0], row[5:]) == (99, (1, 2, 3, 4, 0, 2, 0)) for row in rows)
    return [(row[1], row[2], row[4]) for row in rows]


def test_a_run_is_one_event_for_each_message(functions: ModuleType) -> None:
    last = (9 << 22) | 4095  # the next id is of the next tick
    data = packed(record(last, 7, 3), record(0, 100, 5), record(77, 9, 1))
    assert shown(functions.expand_events(data, 5)) == [
        (last, 7, 1),
        (10 << 22, 8, 1),
        ((10 << 22) + 1, 9, 1),
        (0, 100, 5),
        (77, 9, 1),
    ]


def test_events_without_runs_are_not_copied(functions: ModuleType) -> None:
    data = packed(record(77, 1, 1), record(0, 100, 5))
    assert functions.expand_events(data, 2) is data
    assert functions.expand_events(b"", 0) == b""


def test_more_events_than_allowed(functions: ModuleType) -> None:
    top = (1 << 32) - 1
    data = packed(record(77, 1, top), record(77, 1, top))
    with pytest.raises(ValueError, match=f"{2 * top} events are more than 16384"):
        functions.expand_events(data, 16384)
    with pytest.raises(ValueError, match="2 events are more than 1"):
        functions.expand_events(packed(record(77, 1, 1), record(78, 2, 1)), 1)
    traced = packed(record(77, 1, top, 42))
    with pytest.raises(ValueError, match=f"{top} events are more than 16384"):
        functions.pick_events(traced, 0, 42, 16384)
    assert shown(functions.pick_events(data, 78, 0, 2)) == [(78, 2, 1)] * 2


def test_half_a_record(functions: ModuleType) -> None:
    for call in (
        lambda: functions.expand_events(bytes(47), 9),
        lambda: pick(functions, bytes(49), 1),
    ):
        with pytest.raises(ValueError, match="are no whole records"):
            call()


def pick(functions: ModuleType, data: bytes, message_id: int = 0, trace_id: int = 0) -> Any:
    return functions.pick_events(data, message_id, trace_id, MANY)


def test_one_message_is_picked_out_of_runs(functions: ModuleType) -> None:
    data = packed(record(77, 7, 3), record(78, 8, 1), record(80, 10, 2, 42), record(0, 78, 9))
    assert shown(pick(functions, data, 78)) == [(78, 8, 1), (78, 8, 1)]
    assert pick(functions, data, 76) == pick(functions, data, 82) == b""
    assert pick(functions, data, 78 | 5 << 12) == b""  # of another node
    assert shown(pick(functions, data, 0, 42)) == [(80, 10, 1), (81, 11, 1)]
    assert shown(pick(functions, data, 79, 42)) == [(79, 9, 1), (80, 10, 1), (81, 11, 1)]
    assert shown(pick(functions, data)) == [(0, 78, 9)]


@given(RECORDS, st.sampled_from([0, 1, 3, 79, 1 << 22]), st.sampled_from([0, 42]))
def test_both_forms_agree(rows: list[tuple[int, ...]], message_id: int, trace_id: int) -> None:
    data = packed(*rows)
    single = bytes(kernel.expand_events(data, MANY))
    assert single == bytes(codec.expand_events(data, MANY))
    picked = pick(kernel, data, message_id, trace_id)
    assert picked == pick(codec, data, message_id, trace_id)
    if message_id or trace_id:
        wanted = [
            row
            for row in struct.iter_unpack(FIELDS, single)
            if (message_id and row[1] == message_id) or (trace_id and row[3] == trace_id)
        ]
        assert picked == packed(*wanted)
