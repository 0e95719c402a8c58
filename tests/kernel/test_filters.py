"""Filters over headers: what does not pass is finished for the channel."""

from __future__ import annotations

import json
import re
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.kernel import Filter, Rule, Section, TraceKind

from .turns import Side, bodies, cursor, fin, finished

RED = Filter((Rule(b"color", b"red"),))


def headers_of(**members: str) -> dict[int, int | bytes]:
    return {Section.HEADERS: json.dumps(members).encode()}


def publish(side: Side, tail: Any, *said: dict[int, int | bytes] | None) -> None:
    """One batch; a body is its place."""
    for place, sections in enumerate(said):
        tail.append(b"%d" % place, 0, sections)
    side.seal(tail)
    tail.commit()


def consumer(side: Side, window: Any, rdy: int, wanted: Filter | None) -> Any:
    conn = side.connect()
    assert side.poll() == []
    conn.set_filter(wanted)
    conn.subscribe(window)
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


@pytest.mark.parametrize(
    ("wanted", "passed"),
    [
        (None, [0, 1, 2, 3, 4]),
        (RED, [0, 4]),
        (RED._replace(inverse=True), [1, 2, 3]),
        (Filter((Rule(b"color", b"red"), Rule(b"size", b"xl")), every=True), [4]),
        (Filter((Rule(b"color", b"blue"), Rule(b"size", b"xl"))), [1, 4]),
        (Filter((Rule(b"color", b"blue"), Rule(b"size", b"xl")), inverse=True), [0, 2, 3]),
        (Filter((Rule(b"color", b"b"), Rule(b"size", b"s")), every=True, inverse=True), range(5)),
        (Filter((Rule(b"color", b"", re.compile("^(red|green)$").search),)), [0, 4]),
        (Filter((Rule(b"color", b"", re.compile("^$").search),)), [3]),
        (Filter((Rule(b"color", b"", re.compile("e").search),), inverse=True), [2, 3]),
    ],
)
def test_what_passes(side: Side, wanted: Filter | None, passed: Any) -> None:
    tail = side.tail()
    window = side.window(tail)
    publish(side, tail, *COLORS)
    conn = consumer(side, window, 9, wanted)
    assert [int(body) for body in bodies(conn.take_output())] == list(passed)
    assert (window.next, window.depth, window.in_flight) == (5, 0, len(list(passed)))


def test_what_does_not_pass_is_finished(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
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
    side.said(conn, b"".join(fin(id) for id in held))
    assert side.journal(window)[0] == cursor(5, 5)


def test_a_filter_may_be_taken_back(side: Side) -> None:
    tail = side.tail()
    window = side.window(tail)
    publish(side, tail, headers_of(color="blue"))
    conn = consumer(side, window, 9, RED)
    conn.set_filter(None)
    publish(side, tail, headers_of(color="blue"))
    side.settle()
    assert bodies(conn.take_output()) == [b"0"]


# --- against an oracle ---

NAMES = st.sampled_from(["a", "b"])
VALUES = st.sampled_from(["", "x", "y", "ä", '"'])
MESSAGES = st.lists(
    st.none()
    | st.just({Section.KEY: b"k"})
    | st.dictionaries(NAMES, VALUES).map(
        lambda said: {Section.HEADERS: json.dumps(said).encode()}  # type: ignore[arg-type]
    )
    | st.dictionaries(NAMES, VALUES).map(
        lambda said: {Section.HEADERS: json.dumps(said).encode(), Section.ATTEMPTS: 1}
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
    said = json.loads(text)
    found = []
    for rule in wanted.rules:
        value = said.get(rule.name.decode())
        if rule.matches is not None:
            found.append(bool(rule.matches(value or "")))
        else:
            found.append(value is not None and value.encode() == rule.value)
    return (all(found) if wanted.every else any(found)) != wanted.inverse


@given(wanted=filters(), said=MESSAGES, rdy=st.integers(1, 40), sizes=st.integers(1, 7))
def test_an_oracle_says_the_same(
    kernel: ModuleType, wanted: Filter, said: list[Any], rdy: int, sizes: int
) -> None:
    side = Side(kernel)
    try:
        tail = side.tail()
        window = side.window(tail)
        for start in range(0, len(said), sizes):
            for place, sections in enumerate(said[start : start + sizes], start):
                tail.append(b"%d" % place, 0, sections)
            side.seal(tail)
            tail.commit()
        conn = consumer(side, window, rdy, wanted)
        found = []
        while more := side.received(conn):
            found += [int(one.body) for one in more]
            conn.feed(b"".join(fin(one.id) for one in more))
            side.validate()
        assert found == [
            place for place, sections in enumerate(said) if should_pass(wanted, sections)
        ]
        side.settle()
        assert window.low == window.next == len(said)
        side.validate()
    finally:
        side.close()


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


def test_tests_are_left_out_whoever_consumes(side: Side) -> None:
    tail = side.tail()
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
