"""Filters from IDENTIFY's words to the kernel's: patterns and globs."""

from __future__ import annotations

import time

import pytest

from cases import each
from penstock.nsqd.extfilters import kernel_filter
from penstock.wire.errors import WireFault
from penstock.wire.extfilter import ExtFilter, FilterType


def matches(type_: FilterType, data: str, value: str) -> bool:
    (rule,) = kernel_filter(ExtFilter(type_, (("a", data),))).rules
    assert rule.matches is not None
    return rule.matches(value)


def test_texts_are_compared_by_the_kernel() -> None:
    wanted = ExtFilter(FilterType.MULTI, (("a", "ä"), ("b", "c")), every=True, inverse=True)
    found = kernel_filter(wanted)
    assert (found.every, found.inverse) == (True, True)
    assert [tuple(rule) for rule in found.rules] == [(b"a", "ä".encode(), None), (b"b", b"c", None)]


@each(
    ("glob", "value", "is_match"),
    [
        ("red", "red", True),
        ("red", "reddish", False),
        ("re*", "reddish", True),
        ("*", "", True),
        ("a*b", "a\nb", True),
        ("r?d", "rad", True),
        ("r?d", "rd", False),
        ("r[ae]d", "red", True),
        ("r[ae]d", "rid", False),
        ("r[!ae]d", "rid", True),
        ("r[a-f]d", "rcd", True),
        ("r[a^]d", "r^d", True),
        ("r[^a]d", "rbd", False),
        ("{red,blue}-1", "blue-1", True),
        ("{red,blue}-1", "green-1", False),
        ("{a*,b}", "axx", True),
        ("a.c", "abc", False),
        ("a.c", "a.c", True),
        ("a\\*c", "abc", False),
        ("a\\*c", "a*c", True),
        ("a,b}", "a,b}", True),
        ("[a", "[a", True),
        ("(a|b)+$", "(a|b)+$", True),
        ("ä?", "äö", True),
    ],
)
def test_globs(glob: str, value: str, is_match: bool) -> None:
    assert matches(FilterType.GLOB, glob, value) is is_match


@pytest.mark.parametrize(
    ("pattern", "value", "is_match"),
    [("^red|blue$", "dark blue", True), ("^red$", "reddish", False), ("", "x", True)],
)
def test_regular_expressions(pattern: str, value: str, is_match: bool) -> None:
    assert matches(FilterType.REGEXP, pattern, value) is is_match


def test_no_pattern_takes_for_ever() -> None:
    before_s = time.monotonic()
    assert not matches(FilterType.REGEXP, "^(a+)+$", "a" * 60_000 + "b")
    assert time.monotonic() - before_s < 5


@pytest.mark.parametrize(
    ("type_", "data", "reason"),
    [
        (FilterType.REGEXP, "(", b"E_INVALID IDENTIFY ext_filter: filter_data is no regular expr"),
        (FilterType.REGEXP, "(?=a)", b"E_INVALID IDENTIFY ext_filter: filter_data is no regular"),
        (FilterType.GLOB, "{a,b", b"E_INVALID IDENTIFY ext_filter: filter_data is no glob: a {"),
        (FilterType.GLOB, "[b-a]", b"E_INVALID IDENTIFY ext_filter: filter_data is no glob: "),
    ],
)
def test_what_is_no_pattern(type_: FilterType, data: str, reason: bytes) -> None:
    with pytest.raises(WireFault) as caught:
        kernel_filter(ExtFilter(type_, (("a", data),)))
    assert caught.value.data.startswith(reason)
    assert b"b'" not in caught.value.data
