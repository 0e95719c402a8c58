import random
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each, fresh_seed
from penstock import limits
from penstock.errors import TraceBroken
from penstock.limits import TRACE_CHUNK_EVENTS
from penstock.trace.events import (
    EVENT_BYTES,
    KIND_LABELS,
    Event,
    Kind,
    decode,
    encode,
    find,
    parts_of,
    ranges,
)
from penstock.trace.search import Copy, context_of, copies, read_trace_id

NAMES = st.sampled_from(["orders", "mail", "a", "café", "x" * 64, "10.0.0.1:5300"])
U16 = st.integers(0, (1 << 16) - 1)
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
EVENTS = st.builds(
    Event,
    kind=st.sampled_from(Kind),
    time_ns=I64,
    topic=NAMES,
    channel=st.none() | NAMES,
    partition=U16,
    offset=I64,
    message_id=st.just(0) | U64,
    attempts=U16,
    client=st.none() | NAMES,
    trace_id=U64,
    count=st.integers(0, (1 << 32) - 1),
).map(lambda event: event._replace(count=1) if event.message_id else event)  # and no runs
STORY = [
    Event(Kind.PUBLISHED, 10, "orders", None, 0, 7, 0xABC, client="c1", trace_id=42),
    Event(Kind.SENT, 20, "orders", "mail", 0, 7, 0xABC, 1, "c2", 42),
    Event(Kind.SENT, 21, "orders", "mail", 0, 8, 0xABD, 1, "c2"),
    Event(Kind.EMPTIED, 30, "orders", "mail", 0, 9, 0, count=5),
]


@given(st.lists(EVENTS, max_size=40))
def test_events_come_back(events: list[Event]) -> None:
    assert decode(encode(events)) == events


def test_the_bytes_are_those_of_the_documentation() -> None:
    body = encode(STORY[1:2])
    assert body[:16] == b"PST1" + struct.pack("<HHII", 2, 48, 3, 1)
    assert body[16:22] == struct.pack("<HHH", 6, 4, 2)
    assert body[22:40] == b"ordersmailc2" + bytes(6)
    assert body[40:] == struct.pack(
        "<qQqQIHHHHHBB", 20, 0xABC, 7, 42, 1, 1, 2, 3, 1, 0, Kind.SENT, 0
    )


def test_the_names_of_events_are_agreed() -> None:
    assert " ".join(KIND_LABELS[1:]) == (
        "published sent finished requeued timed_out touched delayed released dead_lettered skipped"
        " filtered disconnected emptied started switched corrupt"
    )


def test_one_message_is_found_by_its_id_or_its_trace_id() -> None:
    body = encode(STORY)
    assert list(find(body, message_id=0xABC)) == STORY[:2]
    assert list(find(body, trace_id=42)) == STORY[:2]
    assert list(find(bytearray(body), message_id=0xABD)) == STORY[2:3]
    assert list(find(body, message_id=8)) == []  # the bytes are there, but they are an offset
    assert list(find(body)) == []
    assert list(ranges(body)) == STORY[3:]


RUN = Event(Kind.FINISHED, 30, "orders", "mail", 0, 9, (5 << 22) | 4094, 1, "c2", count=4)
RUN_IDS = [(5 << 22) | 4094, (5 << 22) | 4095, 6 << 22, (6 << 22) | 1]


def test_a_run_is_read_as_one_event_for_each_message() -> None:
    body = encode([STORY[0], RUN, STORY[3]])
    singles = [
        RUN._replace(offset=9 + number, message_id=id, count=1) for number, id in enumerate(RUN_IDS)
    ]
    assert decode(body) == [STORY[0], *singles, STORY[3]]
    for event in singles:
        assert list(find(body, message_id=event.message_id)) == [event]
    assert list(find(body, message_id=(6 << 22) | 2)) == []
    assert list(find(encode([RUN._replace(trace_id=7)]), trace_id=7)) == [
        event._replace(trace_id=7) for event in singles
    ]
    assert list(ranges(body)) == [STORY[3]]


def test_a_body_that_claims_too_many_events_is_refused() -> None:
    runs = [RUN._replace(count=TRACE_CHUNK_EVENTS), RUN._replace(count=1)]
    assert len(decode(encode(runs[:1]))) == TRACE_CHUNK_EVENTS
    for claimed in (runs, [RUN._replace(count=(1 << 32) - 1)]):
        with pytest.raises(TraceBroken, match=f"more than {TRACE_CHUNK_EVENTS}"):
            decode(encode(claimed))


def test_a_body_of_version_1_is_read() -> None:
    body = bytearray(encode(STORY))
    struct.pack_into("<H", body, 4, 1)
    assert decode(body) == STORY
    assert list(find(body, trace_id=42)) == STORY[:2]


@each(
    ("at", "wrong", "words"),
    [
        (0, b"PST2", "begins with"),
        (4, b"\x03", "version 3"),
        (6, b"\x38", "events of 56 bytes"),
        (8, b"\xff\xff\x00\x00", "65535 names"),
        (12, b"\x09", "9 events do not fill"),
        (-2, b"\x11", "kind 17"),
        (-2, b"\x00", "kind 0"),
        (-8, b"\x09", "not in the table"),
    ],
)
def test_invalid_bodies_are_refused(at: int, wrong: bytes, words: str) -> None:
    body = bytearray(encode(STORY))
    at %= len(body)
    body[at : at + len(wrong)] = wrong
    with pytest.raises(TraceBroken, match=words):
        decode(body)


def test_no_bytes_at_all_make_it_fail_otherwise() -> None:
    seed = fresh_seed()
    print(f"seed {seed}")
    rng = random.Random(seed)
    body = encode(STORY)
    for cut in range(len(body)):
        with pytest.raises(TraceBroken):
            decode(body[:cut])
    for _ in range(2_000):
        corrupt = bytearray(body)
        for _ in range(rng.randrange(1, 4)):
            corrupt[rng.randrange(len(corrupt))] = rng.randrange(256)
        try:
            decode(corrupt)
        except TraceBroken:
            continue


def test_half_an_event_is_refused() -> None:
    with pytest.raises(ValueError, match="make no body"):
        parts_of(["orders"], bytes(EVENT_BYTES - 1))


# --- trace ids as people write them, and where messages are looked up for their `traceparent` ---


CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
LARGEST = (1 << 64) - 1


@each(
    ("text", "trace_id"),
    [
        ("00042", 42),
        (str(LARGEST), LARGEST),
        (str(LARGEST + 1), 0),
        ("4bf92f3577b34da6a3ce929d0e0e4736", 0xA3CE929D0E0E4736),
        ("4BF92F3577B34DA6A3CE929D0E0E4736", 0xA3CE929D0E0E4736),
        ("1" * 16 + "0" * 16, 0),
        ("4bf92f3577b34da6a3ce929d0e0e473g", 0),
        ("0", 0),
        ("\u0664\u0662", 0),  # digits, but not those of a number here
        ("", 0),
    ],
)
def test_forms_of_a_trace_id(text: str, trace_id: int) -> None:
    assert read_trace_id(text) == trace_id


def event(message_id: int, offset: int = 0) -> Event:
    return Event(Kind.PUBLISHED, 1, "t", None, 0, offset, message_id)


def test_each_message_is_looked_up_once_where_a_node_has_it() -> None:
    found = [
        ("", event(1)),
        ("n", event(2, 5)),
        ("n", event(2, 9)),
        ("n", event(0)),
        ("m", event(1)),
    ]
    assert copies(found) == [Copy("n", event(2, 5)), Copy("m", event(1))]
    many = [("n", event(number)) for number in range(1, 2 * limits.TRACE_CONTEXTS_SHOWN)]
    assert len(copies(many)) == limits.TRACE_CONTEXTS_SHOWN


@each(
    ("message_id", "headers", "context"),
    [
        (7, {"traceparent": CONTEXT}, CONTEXT),
        (8, {"traceparent": CONTEXT}, None),  # another message lies there now
        (7, {}, None),
        (7, {"traceparent": "*****"}, None),  # masked
        (7, {"traceparent": {"a": 1}}, None),
    ],
)
def test_the_context_of_a_message(
    message_id: int, headers: dict[str, Any], context: str | None
) -> None:
    assert context_of(event(7), message_id, headers) == context
