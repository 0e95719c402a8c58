"""Go's regular expressions on names, that no pattern takes long, and filters by patterns."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each, examples
from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqd import pattern
from penstock.nsqd.pattern import Pattern, PatternInvalid, kernel_filter, need_patterns
from penstock.wire.errors import WireFault
from penstock.wire.extfilter import ExtFilter, FilterType

# Syntax beyond that of `test_ordinary_patterns_match_as_in_python`.
MATCHES = [
    ("^c$", ["c"], ["", "cc", "xc"]),
    ("^(?:a|b){2,3}$", ["ab", "aba"], ["a", "abab"]),
    ("^(?P<x>a)(?P<y>b)$", ["ab"], ["a"]),
    ("^(?<x>a)$", ["a"], ["b"]),
    ("^a{2,}$", ["aa", "aaaa"], ["a"]),
    ("^a{,2}$", ["a{,2}"], ["a", "aa"]),
    ("^a{x$", ["a{x"], ["a"]),
    ("^a??b*?c+?$", ["c", "abbc"], ["ab"]),
    ("^[a-c]+$", ["abc"], ["abd", ""]),
    ("^[^a-c]+$", ["xyz"], ["xay"]),
    ("^[]a]+$", ["]a"], ["b"]),
    ("^[^]a]$", ["b"], ["]", "a"]),
    ("^[a-]+$", ["a-"], ["b"]),
    (r"^[\w.-]+$", ["a_9.-"], ["a#b"]),
    (r"^[[:alpha:][:digit:]]+$", ["a1"], ["_"]),
    (r"^[[:^digit:]]+$", ["a_"], ["1"]),
    (r"^\d\D\w\W\s?$", ["1a_#"], ["aa_#"]),
    (r"\Aab\z", ["ab"], ["abc", "xab"]),
    (r"a\Bb", ["ab"], ["a.b"]),
    (r"^\Qa.b*\E$", ["a.b*"], ["axb"]),
    (r"^\x41\x{42}\101$", ["ABA"], ["aba"]),
    ("(?i)^ABC$", ["abc", "aBc"], ["abd"]),
    ("^(?i:A)B$", ["aB", "AB"], ["ab"]),
    ("^(?i)a(?-i)b$", ["Ab"], ["AB"]),
    ("^(?i)[a-c]$", ["B"], ["D"]),
    ("(?m)^b$", ["a\nb"], ["ab"]),
    ("(?s)^a.b$", ["a\nb"], []),
    ("(?U)^a+$", ["aaa"], ["b"]),
    ("a|", ["", "x"], []),
    (r"^\pL+$", ["ab"], ["a1"]),
    (r"^\\C$", ["\\C"], ["C"]),
    ("^()*$", [""], ["x"]),
    ("^((a{2}){2}){2}$", ["a" * 8], ["a" * 7]),
]

REFUSED = [
    "(", ")", "a)", "(a", "[", "[a", "[]", "[^]", "[b-a]", "*", "+a", "?", "a**", "a+*", "a{2}{3}",
    "{2}", "a{1001}", "a{2,1001}", "a{3,2}", "(?", "(?i", "(?=a)", "(?!a)", "(?<=a)", "(?<!a)",
    "(?P=x)", "(?P>x)", "(?P<>a)", "(?P<a-b>c)", "(?x)a", "(?-)a", "(?i-)a",
    r"\1", r"\8", r"\pQ", r"\p{Nope}", r"\C", r"a\\\C", r"\y", r"\Z", r"\x", r"\xg0", r"\x{}",
    r"\x{110000}", "\\",
    "[[:nope:]]", r"[\b]", r"[\Z]", "((a{1000}){1000})", "(" * 1001 + ")" * 1001, "\ud800",
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


@each(
    "text",
    [
        "^(a+)+$",
        "^(a|a)*$",
        "^(a|aa)+$",
        "^" + "a?" * 64 + "a" * 64 + "$",
        "^(.*)*(.*)*(.*)*x$",
        "^" + ".*" * 30 + "x$",
        "^" + "(" * 50 + "a" + "*)" * 50 + "*$",
        "^" + "(" * 50 + "a" + "*b?)" * 50 + "*$",
        "^((a{0,30}){0,30}b)*$",
    ],
)
def test_no_pattern_takes_long(text: str) -> None:
    pattern = Pattern(text)
    started = time.thread_time()  # what it works, not how long it waits for the processor
    assert not pattern.matches("a" * 63 + "!")
    assert time.thread_time() - started < 2


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$", r"\."])
PATTERNS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: f"({'|'.join(parts)})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(400), deadline=None)
@given(PATTERNS, st.text("ab.", max_size=6))
def test_ordinary_patterns_match_as_in_python(text: str, name: str) -> None:
    expected = re.search(text.replace("$", r"\Z"), name, re.ASCII) is not None
    assert Pattern(text).matches(name) == expected


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
