"""Requests as values: what they say of their headers."""

from __future__ import annotations

from cases import each
from penstock.net.exchange import Request

FIELDS = b"\r\nhost: h\r\nx-nsqext-a: 1\r\nempty: \r\nx-nsqext-b: 2: 3\r\nx-nsqext-a: 4"
REQUEST = Request("GET", "/", b"", b"", "", "1.1", True, False, FIELDS)


@each(
    ("name", "value"),
    [
        (b"host", b"h"),
        (b"empty", b""),
        (b"x-nsqext-a", b"1"),
        (b"x-nsqext-b", b"2: 3"),
        (b"nsqext-a", None),
        (b"2", None),
        (b"Host", None),
    ],
)
def test_a_header_is_found_by_its_whole_name(name: bytes, value: bytes | None) -> None:
    assert REQUEST.header(name) == value


def test_headers_by_what_their_names_begin_with() -> None:
    assert list(REQUEST.headers(b"x-nsqext-")) == [(b"a", b"1"), (b"b", b"2: 3"), (b"a", b"4")]
    assert list(REQUEST.headers(b"x-other-")) == []
    assert list(REQUEST.headers(b"h")) == [(b"ost", b"h")]


def test_a_request_without_headers() -> None:
    bare = REQUEST._replace(fields=b"")
    assert bare.header(b"host") is None
    assert list(bare.headers(b"")) == []
