from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.durations import DURATION_NS_MAX, format_duration, parse_duration

MS, S = 1_000_000, 1_000_000_000


@each(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("0s", 0),
        ("300ms", 300 * MS),
        ("1.5h", 5400 * S),
        (".5s", 500 * MS),
        ("2.s", 2 * S),
        ("1h30m", 5400 * S),
        ("1m30s500ms", 90 * S + 500 * MS),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("10μs", 10_000),
        ("7ns", 7),
        ("-2s", -2 * S),
        ("+2s", 2 * S),
    ],
)
def test_parse(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@each("text", ["", "5", "s", "1.5", "1 s", "1x", "s1", "--1s", ".s", "1_0s", "٣s", "300000000h"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@each(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (7, "7ns"),
        (1500, "1.5µs"),
        (899_370_371, "899.370371ms"),
        (2 * S, "2s"),
        (90 * S, "1m30s"),
        (5400 * S, "1h30m0s"),
        (3600 * S + 1, "1h0m0.000000001s"),
        (-250 * MS, "-250ms"),
    ],
)
def test_format(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@given(st.integers(-DURATION_NS_MAX, DURATION_NS_MAX))
def test_what_is_written_is_read_back(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns
