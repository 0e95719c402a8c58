"""One member of the headers is what `json` reads."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.kernel.window import is_true_in, member_of, says  # type: ignore[attr-defined]

NAMES = st.sampled_from(["a", "b", "key", "ä", 'quote"', "back\\", "\U0001f600"]) | st.text()
TEXTS = st.text() | st.sampled_from(['"', "\\", "\U0001f600", "/", "\b\f\n\r\t", "x" * 300])
VALUES = st.recursive(
    TEXTS | st.booleans() | st.none() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
SPACINGS = st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t: "), (",\r\n ", ":")])


@st.composite
def objects(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """A JSON object as text, and what it says."""
    said = draw(st.dictionaries(NAMES, VALUES, max_size=5))
    is_ascii, separators = draw(st.booleans()), draw(SPACINGS)
    text = json.dumps(said, ensure_ascii=is_ascii, separators=separators)
    return text.encode("utf-8", "surrogatepass"), said


@given(objects(), NAMES)
def test_what_json_reads_is_found(told: tuple[bytes, dict[str, Any]], other: str) -> None:
    headers, said = told
    for name in {*said, other}:
        try:
            wanted = name.encode()
        except UnicodeEncodeError:
            continue  # half of a surrogate pair: no header has such a name
        value = said.get(name)
        raw = member_of(headers, wanted)
        if not isinstance(value, str):
            assert raw is None
            continue
        assert raw is not None
        assert json.loads(b'"' + raw + b'"') == value
        if not any(0xD800 <= ord(c) <= 0xDFFF for c in value):
            assert says(raw, value.encode())
        assert not says(raw, value.encode("utf-8", "replace") + b"!")


@given(st.binary(max_size=40) | st.text(alphabet='{}[]":,\\u0 a1', max_size=30).map(str.encode))
def test_no_bytes_lead_outside(headers: bytes) -> None:
    """What is found stands in them, whatever they are."""
    for name in (b"", b"a", b"1", b"\\"):
        for text in (headers, b'{"a":"1",' + headers, b'{"a":' + headers + b',"a":"x"}'):
            raw = member_of(text, name)
            assert raw is None or raw in text
            is_true_in(text, name)


@each(
    ("headers", "found"),
    [
        (b'{"a":"1"}', b"1"),
        (b' { "a" : "1" } ', b"1"),
        (b'{"b":"2","a":"1"}', b"1"),
        (b'{"a":"1","a":"2"}', b"2"),
        (b'{"a":"1","a":3}', None),
        (b'{"a":{"a":"1"}}', None),
        (b'{"b":{"a":"x","c":["}"]},"a":"1"}', b"1"),
        (b'{"b":[[{}],"\\"]"],"a":"1"}', b"1"),
        (b'{"\\u0061":"1"}', b"1"),
        (b'{"a":"\\"1"}', b'\\"1'),
        (b'{"a":""}', b""),
        (b"{}", None),
        (b"", None),
        (b'["a"]', None),
        (b'{"a":"1"', None),
        (b'{"a":"1",}', None),
        (b'{"a" "1"}', None),
        (b'{"a":}', None),
        (b'{"b":1 2,"a":"1"}', None),
        (b'{"a":"1}', None),
    ],
)
def test_members(headers: bytes, found: bytes | None) -> None:
    assert member_of(headers, b"a") == found


@each(
    ("raw", "said"),
    [
        (b"plain", b"plain"),
        (b"\\u00e4", "ä".encode()),
        (b"\\ud83d\\ude00", "\U0001f600".encode()),
        (b"\\ud83d", None),
        (b"\\ude00", None),
        (b"\\ud83dx\\ude00", None),
        (b"\\ud83d\\u0041", None),
        (b"\\x", None),
        (b"\\u12", None),
        (b'\\/\\b\\f\\n\\r\\t\\\\\\"', b'/\b\f\n\r\t\\"'),
    ],
)
def test_escapes(raw: bytes, said: bytes | None) -> None:
    assert said is None or says(raw, said)
    assert not says(raw, b"something else")


@each(
    ("headers", "said"),
    [
        (b'{"a":true}', True),
        (b'{ "a" : true , "b":1}', True),
        (b'{"a":"true"}', True),
        (b'{"a":"\\u0074rue"}', True),
        (b'{"\\u0061":true}', True),
        (b'{"a":"no","a":true}', True),
        (b'{"a":true,"a":"no"}', False),
        (b'{"a":false}', False),
        (b'{"a":"True"}', False),
        (b'{"a":truer}', False),
        (b'{"a":[true]}', False),
        (b'{"b":true}', False),
        (b'{"a":true', False),
        (b"", False),
    ],
)
def test_what_is_true(headers: bytes, said: bool) -> None:
    assert is_true_in(headers, b"a") is said
