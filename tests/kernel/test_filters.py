"""Filters over headers: what does not pass is finished for the channel."""

import json
import re
from contextlib import closing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import limits
from penstock.kernel import Filter, Rule, Section, TraceKind

from .turns import Side, bodies, cursor, fin, finished, messages

RED = Filter((Rule(b"color", b"red"),))


def headers_of(**members: str) -> dict[int, int | bytes]:
    return {Section.HEADERS: json.dumps(members).encode()}


def publish(side: Side, tail: Any, *expected: dict[int, int | bytes] | None) -> None:
    """One batch; a body is its place."""
    side.publish_with(tail, *((b"%d" % index, one) for index, one in enumerate(expected)))


def consumer(side: Side, window: Any, rdy: int, wanted: Filter | None) -> Any:
    conn = side.consumer(window)
    conn.set_filter(wanted)
    conn.rdy = rdy
    side.settle()
    return conn


COLORS = (
    headers_of(color="red"),
    headers_of(color="blue"),
    None,
    headers_of(size="red"),
    headers_of(color="red", size="xl"),
)


def test_filtered_messages_are_finished(side: Side, tail: Any, window: Any) -> None:
    window.trace_below = (1 << 64) - 1
    publish(side, tail, *COLORS)
    conn = consumer(side, window, 9, RED)
    assert window.low == 0
    assert finished(1, 4) in side.journal(window)
    traced = [(one.kind, one.offset) for one in side.trace() if one.kind != TraceKind.PUBLISHED]
    assert sorted(traced, key=lambda one: one[1]) == [
        (TraceKind.SENT, 0),
        (TraceKind.FILTERED, 1),
        (TraceKind.FILTERED, 2),
        (TraceKind.FILTERED, 3),
        (TraceKind.SENT, 4),
    ]
    held = [record[1] for record in window.in_flight_records(9)]
    side.fed(conn, fin(*held))
    assert side.journal(window)[0] == cursor(5, 5)


def test_a_filter_may_be_taken_back(side: Side, tail: Any, window: Any) -> None:
    publish(side, tail, headers_of(color="blue"))
    conn = consumer(side, window, 9, RED)
    conn.set_filter(None)
    publish(side, tail, headers_of(color="blue"))
    side.settle()
    assert bodies(conn.take_output()) == [b"0"]


NAMES = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["", "x", "y", "ä", '"'])
MESSAGES = st.lists(
    st.none()
    | st.just({Section.KEY: b"k"})
    | st.dictionaries(NAMES, VALUES).map(
        lambda expected: {Section.HEADERS: json.dumps(expected).encode()}  # type: ignore[arg-type]
    )
    | st.dictionaries(NAMES, VALUES).map(
        lambda expected: {Section.HEADERS: json.dumps(expected).encode(), Section.ATTEMPTS: 1}
    ),
    min_size=1,
    max_size=30,
)
PATTERNS = st.sampled_from(["x", "^$", "[xy]", "."])


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    rules = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(NAMES).encode()
        if draw(st.booleans()):
            rules.append(Rule(name, draw(VALUES).encode()))
        else:
            rules.append(Rule(name, b"", re.compile(draw(PATTERNS)).search))
    return Filter(tuple(rules), draw(st.booleans()), draw(st.booleans()))


def should_pass(wanted: Filter, sections: dict[int, Any] | None) -> bool:
    text = (sections or {}).get(Section.HEADERS)
    if text is None:
        return wanted.inverse
    expected = json.loads(text)
    found = []
    for rule in wanted.rules:
        value = expected.get(rule.name.decode())
        if rule.matches is not None:
            found.append(bool(rule.matches(value or "")))
        else:
            found.append(value is not None and value.encode() == rule.value)
    return (all(found) if wanted.every else any(found)) != wanted.inverse


@given(wanted=filters(), expected=MESSAGES, rdy=st.integers(1, 40), sizes=st.integers(1, 7))
def test_an_oracle_says_the_same(wanted: Filter, expected: list[Any], rdy: int, sizes: int) -> None:
    with closing(Side()) as side:
        tail = side.tail()
        window = side.window(tail)
        for start in range(0, len(expected), sizes):
            for index, sections in enumerate(expected[start : start + sizes], start):
                tail.append(b"%d" % index, 0, sections)
            side.store(tail)
        conn = consumer(side, window, rdy, wanted)
        found = []
        while more := side.received(conn):
            found += [int(one.body) for one in more]
            conn.feed(fin(*[one.id for one in more]))
            side.validate()
        assert found == [
            index for index, sections in enumerate(expected) if should_pass(wanted, sections)
        ]
        side.settle()
        assert window.low == window.next == len(expected)
        side.validate()


# --- messages of load tests ---

TESTS: tuple[dict[int, int | bytes] | None, ...] = (
    headers_of(color="red"),
    {Section.HEADERS: b'{"zan_test": true}'},
    headers_of(zan_test="true", color="red"),
    None,
    {Section.HEADERS: b'{"zan_test":false}'},
    {Section.HEADERS: b'{"zan_test":true,"zan_test":"false"}'},
    headers_of(zan_test="True"),
)


def test_tests_are_left_out_whoever_consumes(side: Side, tail: Any) -> None:
    window, other = side.window(tail), side.window(tail)
    assert not window.skips_tests
    window.skips_tests = True
    window.trace_below = (1 << 64) - 1
    publish(side, tail, *TESTS)
    conn = consumer(side, window, 9, None)
    all_of_it = consumer(side, other, 9, None)
    assert [int(body) for body in bodies(conn.take_output())] == [0, 3, 4, 5, 6]
    assert len(bodies(all_of_it.take_output())) == len(TESTS)
    assert finished(1, 3) in side.journal(window)
    filtered = [one.offset for one in side.trace() if one.kind == TraceKind.FILTERED]
    assert filtered == [1, 2]


# --- consumers with tags: which messages are for whom ---


def tagged(tag: str | None) -> dict[int, int | bytes] | None:
    if tag is None:
        return None
    return {Section.HEADERS: json.dumps({"n": "1", "##client_dispatch_tag": tag}).encode()}


def publish_tagged(side: Side, tail: Any, *tags: str | None) -> None:
    """One batch; a body is its tag and place."""
    names = ((tag or "-").encode() for tag in tags)
    bodies = (b"%s%d" % (name, index) for index, name in enumerate(names))
    side.publish_with(tail, *zip(bodies, map(tagged, tags), strict=True))


def consumer_tagged(side: Side, window: Any, tag: bytes = b"", rdy: int = 100) -> Any:
    conn = side.consumer(window, rdy, tag=tag)
    side.settle()
    return conn


def taken(side: Side, conn: Any) -> list[bytes]:
    return [message.body for message in side.received(conn)]


def test_messages_set_aside_are_bounded(side: Side) -> None:
    bound = limits.TAG_ASIDE_MAX
    tail = side.tail(memory=1 << 26)
    window = side.window(tail)
    a, plain = consumer_tagged(side, window, b"a", 1), consumer_tagged(side, window, rdy=5)
    for _ in range(4):
        publish_tagged(side, tail, *["a"] * (bound // 4), None)
    publish_tagged(side, tail, "a", "a", None)
    assert len(taken(side, a)) == 1
    assert taken(side, plain) == [b"-%d" % (bound // 4)] * 4
    assert window.next == bound + 5  # one of them is in flight
    assert window.depth == bound + 2
    side.fed(a, b"RDY 2\n")
    assert taken(side, plain) == [b"-2"]


def test_a_first_delivery_ignores_earlier_attempts(side: Side, tail: Any, window: Any) -> None:
    window.attempts_max = 2
    consumer_tagged(side, window, b"a")
    tail.append(b"tried", 0, {Section.ATTEMPTS: 5})
    side.store(tail)
    side.settle()
    assert (window.depth, window.exhausted) == (1, 0)
    plain = consumer_tagged(side, window)
    assert [one.attempts for one in messages(plain.take_output())] == [6]


def test_a_tag_is_set_before_subscribing(side: Side) -> None:
    conn = consumer_tagged(side, side.window(side.tail()), b"a")
    assert conn.tag == b"a"
    with pytest.raises(RuntimeError, match="keeps its tag"):
        conn.tag = b"b"
    other = side.connect()
    other.tag = b"x" * limits.TAG_BYTES_MAX
    with pytest.raises(ValueError, match="101 bytes"):
        other.tag = b"x" * (limits.TAG_BYTES_MAX + 1)
