"""Patterns of RE2 on names: what is refused, that none takes long, and filters by patterns."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqd import pattern
from penstock.nsqd.pattern import Pattern, PatternInvalid, kernel_filter, need_patterns
from penstock.wire.errors import WireFault
from penstock.wire.extfilter import ExtFilter, FilterType

MATCHES = [
    ("^c$", ["c"], ["", "cc", "xc"]),
    ("b+", ["abc"], ["ac"]),  # somewhere in it
    ("^(?P<x>a)(?<y>b)$", ["ab"], ["a"]),  # names as Go has them, old and new
    (r"\Aab\z", ["ab"], ["abc", "xab"]),
    (r"^[[:alpha:]\pN]+$", ["a1"], ["_"]),
    (r"^\\C$", ["\\C"], ["C"]),  # no byte, but a backslash and a letter
]
# What only Python's `re` has, a byte, what is no UTF-8, and what is too large.
REFUSED = [
    "(", "(?=a)", r"\1", r"\Z", r"\C", r"a\\\C", "((a{1000}){1000})", "\ud800",
    "a" * (limits.AUTH_PATTERN_BYTES_MAX + 1),
]  # fmt: skip


@each(("text", "names", "others"), MATCHES)
def test_matches(text: str, names: list[str], others: list[str]) -> None:
    pattern = Pattern(text)
    assert [name for name in names if not pattern.matches(name)] == []
    assert [name for name in others if pattern.matches(name)] == []


@each("text", REFUSED)
def test_patterns_that_go_refuses(text: str) -> None:
    with pytest.raises(PatternInvalid):
        Pattern(text)


@given(st.text(max_size=30), st.text(max_size=10))
def test_any_text_is_a_pattern_or_refused(text: str, name: str) -> None:
    try:
        pattern = Pattern(text)
    except PatternInvalid:
        return
    assert pattern.matches(name) in (True, False)


def matches(type_: FilterType, data: str, value: str) -> bool:
    (rule,) = kernel_filter(ExtFilter(type_, (("a", data),))).rules
    assert rule.matches is not None
    return rule.matches(value)


@each(
    ("glob", "value", "is_match"),
    [
        ("red", "reddish", False),
        ("re*", "reddish", True),
        ("*", "", True),
        ("a*b", "a\nb", True),
        ("r?d", "rad", True),
        ("r[ae]d", "rid", False),
        ("r[!ae]d", "rid", True),
        ("r[a-f]d", "rcd", True),
        ("r[a^]d", "r^d", True),
        ("r[^a]d", "rbd", False),
        ("{red,blue}-1", "blue-1", True),
        ("{a*,b}", "axx", True),
        ("a.c", "abc", False),
        ("a,b}", "a,b}", True),
        ("[a", "[a", True),
        ("(a|b)+$", "(a|b)+$", True),
    ],
)
def test_globs(glob: str, value: str, is_match: bool) -> None:
    assert matches(FilterType.GLOB, glob, value) is is_match


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
def test_invalid_patterns(type_: FilterType, data: str, reason: bytes) -> None:
    with pytest.raises(WireFault) as caught:
        kernel_filter(ExtFilter(type_, (("a", data),)))
    assert caught.value.data.startswith(reason)
    assert b"b'" not in caught.value.data


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact filters go on, the others name it; so does a start with an auth server."""
    need_patterns("x")
    monkeypatch.setattr(pattern, "re2", None)
    rules = (("region", "eu"),)
    assert kernel_filter(ExtFilter(FilterType.EXACT, rules)).rules[0].value == b"eu"
    for type_, kind in ((FilterType.REGEXP, "regular expression"), (FilterType.GLOB, "glob")):
        with pytest.raises(WireFault) as caught:
            kernel_filter(ExtFilter(type_, rules))
        message = (
            f"filter_data is no {kind}: this nsqd lacks the extra `auth`, which matches patterns"
        )
        assert caught.value.data == f"E_INVALID IDENTIFY ext_filter: {message}".encode()
    with pytest.raises(PenstockError, match="x needs the extra `auth`: install it"):
        need_patterns("x")
