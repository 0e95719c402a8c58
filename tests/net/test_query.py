from __future__ import annotations

import pytest

from cases import each
from penstock.net.query import QueryInvalid, parse_pairs, parse_query, whole_number


@each(
    ("query", "values"),
    [
        (b"", {}),
        (b"a=1&b=2", {"a": "1", "b": "2"}),
        (b"a=1&a=2", {"a": "1"}),
        (b"a", {"a": ""}),
        (b"a=&&=b", {"a": "", "": "b"}),
        (b"a=b=c", {"a": "b=c"}),
        (b"a=%20%2b+x", {"a": " + x"}),
        (b"%61=1", {"a": "1"}),
        (b"a=%ff", {"a": "\udcff"}),
        ("a=ä".encode(), {"a": "ä"}),
    ],
)
def test_parse(query: bytes, values: dict[str, str]) -> None:
    assert parse_query(query) == values


@each("query", [b"a=%", b"a=%2", b"%zz=1", b"a=1;b=2", b"a=%%20"])
def test_what_spoils_a_query(query: bytes) -> None:
    with pytest.raises(QueryInvalid):
        parse_query(query)


def test_all_that_comes_twice() -> None:
    pairs = [("a", "1"), ("b", ""), ("a", "2 3")]
    assert parse_pairs(b"a=1&&b&a=2+3") == pairs
    assert parse_pairs(b"") == []
    with pytest.raises(QueryInvalid):
        parse_pairs(b"a=1;b=2")


@each(
    ("text", "number"),
    [
        ("0", 0),
        ("000", 0),
        ("0" * 5000 + "99", 99),
        ("100", 100),
        ("101", None),
        ("0000000000000000000000000000000101", None),
        ("9" * 5000, None),
        ("", None),
        ("-1", None),
        ("+1", None),
        ("1.0", None),
        ("\u0663", None),
        ("0x", None),
        ("1_0", None),
    ],
)
def test_whole_numbers(text: str, number: int | None) -> None:
    assert whole_number(text, 100) == number
