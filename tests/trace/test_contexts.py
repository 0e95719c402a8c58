"""Trace ids as people write them, and where messages are looked up for their `traceparent`."""

from __future__ import annotations

from typing import Any

from cases import each
from penstock import limits
from penstock.trace.contexts import Copy, context_of, copies
from penstock.trace.events import Event, Kind
from penstock.trace.ids import read_trace_id

CONTEXT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
LARGEST = (1 << 64) - 1


@each(
    ("text", "trace_id"),
    [
        ("42", 42),
        ("00042", 42),
        (str(LARGEST), LARGEST),
        (str(LARGEST + 1), 0),
        ("4bf92f3577b34da6a3ce929d0e0e4736", 0xA3CE929D0E0E4736),
        ("4BF92F3577B34DA6A3CE929D0E0E4736", 0xA3CE929D0E0E4736),
        ("1" * 32, 0x1111111111111111),
        ("1" * 16 + "0" * 16, 0),
        ("4bf92f3577b34da6a3ce929d0e0e473", 0),
        ("4bf92f3577b34da6a3ce929d0e0e473g", 0),
        ("a3ce929d0e0e4736", 0),
        ("0", 0),
        ("-1", 0),
        (" 7", 0),
        ("\u0664\u0662", 0),  # digits, but not those of a number here
        ("", 0),
    ],
)
def test_what_is_a_trace_id(text: str, trace_id: int) -> None:
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
