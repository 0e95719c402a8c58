"""Frames with headers and positions between id and body."""

import struct
from typing import Any, NamedTuple

import pytest

from penstock.kernel import Section
from penstock.limits import CHUNK_BYTES

from .turns import Side, fin, frames

HEADERS = b'{"a":"b"}'


class Long(NamedTuple):
    """A frame as such a client reads it."""

    id: int
    attempts: int
    headers: bytes | None
    offset: int
    stored_bytes: int
    body: bytes


def long_frames(data: bytes, extended: bool = True, detailed: bool = False) -> list[Long]:
    found = []
    for _, content in frames(data):
        _, attempts, id = struct.unpack_from(">qH16s", content)
        at, headers, offset, stored_bytes = 26, None, -1, -1
        if extended:
            version, at = content[at], at + 1
            assert version in (0, 4)
            if version == 4:
                (size,) = struct.unpack_from(">H", content, at)
                headers = content[at + 2 : at + 2 + size]
                at += 2 + size
        if detailed:
            offset, stored_bytes = struct.unpack_from(">qI", content, at)
            at += 12
        found.append(Long(int(id, 16), attempts, headers, offset, stored_bytes, content[at:]))
    return found


def consumer(side: Side, window: Any, rdy: int, **flags: bool) -> Any:
    conn = side.consumer(window, rdy, **flags)
    side.settle()
    return conn


MIXED = (
    (b"one", {Section.HEADERS: HEADERS}),
    (b"two", None),
    (b"three", {Section.HEADERS: b"{}", Section.KEY: b"key"}),
    (b"four", {Section.TRACE: 7}),
    (b"five", {Section.HEADERS: b'{"c":"d"}'}),
)


def test_the_exact_bytes_of_a_frame(side: Side, tail: Any, window: Any) -> None:
    id = side.publish_with(tail, (b"body", {Section.HEADERS: HEADERS}))
    conn = consumer(side, window, 1, extended=True, detailed=True)
    head = struct.pack(">IIqH16s", 30 + 3 + 9 + 12 + 4, 2, side.wall_ns, 1, b"%016x" % id)
    ext = b"\x04\x00\x09" + HEADERS
    detail = struct.pack(">qI", 0, 4 + 4 + 8 + 9)
    assert conn.take_output() == head + ext + detail + b"body"


ENVELOPED = (
    (b"one", {Section.HEADERS: HEADERS, Section.KEY: b"of the headers"}, b"\x04\x00\x09" + HEADERS),
    (b"two", None, b"\x00"),
    (b"three", {Section.KEY: b"key"}, b"\x01\x00\x03key"),
    (b"four", {Section.KEY: b"k" * 65536}, b"\x00"),  # longer than a frame can say
)


@pytest.mark.parametrize("rdy", [1, 4])
@pytest.mark.parametrize("others", [{}, {"extended": True}, {"detailed": True}])
def test_an_envelope_has_the_partition_and_the_headers_or_the_key(
    side: Side, rdy: int, others: dict[str, bool]
) -> None:
    side.tail()
    tail = side.tail(partition=254)
    window = side.window(tail)
    side.publish_with(tail, *((body, sections) for body, sections, _ in ENVELOPED))
    conn = consumer(side, window, rdy, enveloped=True, **others)
    found: list[bytes] = []
    while more := frames(conn.take_output()):
        found += [content[26:] for _, content in more]
        ids = [int(content[10:26], 16) for _, content in more]
        side.fed(conn, fin(*ids))
    for offset, (rest, (body, _, ext)) in enumerate(zip(found, ENVELOPED, strict=True)):
        assert rest.startswith(b"\x00\xfe" + ext)
        assert rest.endswith(body)
        detail = rest[2 + len(ext) : -len(body)]
        assert detail[:8] == (struct.pack(">q", offset) if others.get("detailed") else b"")


def test_a_detail_is_the_offset_and_what_is_stored(side: Side) -> None:
    tail = side.tail(start=40)
    window = side.window(tail)
    side.publish_with(tail, *MIXED)
    conn = consumer(side, window, 5, detailed=True)
    found = long_frames(conn.take_output(), extended=False, detailed=True)
    assert [(one.offset, one.stored_bytes) for one in found] == [
        (40, 4 + 3 + 8 + 9),
        (41, 4 + 3),
        (42, 4 + 5 + 8 + 2 + 8 + 3),
        (43, 4 + 4 + 12),
        (44, 4 + 4 + 8 + 9),
    ]


def test_messages_read_from_the_log_keep_their_headers(side: Side) -> None:
    tail = side.tail(memory=1)
    window = side.window(tail)
    for number in range(3):
        side.publish_with(tail, (b"%d" % number, {Section.HEADERS: b'{"n":"%d"}' % number}))
    conn = consumer(side, window, 0, extended=True)
    conn.rdy = 10
    assert side.serve_needs(side.turn())
    found = long_frames(conn.take_output())
    assert [(one.headers, one.body) for one in found] == [
        (b'{"n":"0"}', b"0"),
        (b'{"n":"1"}', b"1"),
        (b'{"n":"2"}', b"2"),
    ]


def test_headers_too_long_for_a_frame_are_left_out(side: Side, tail: Any, window: Any) -> None:
    longest = b'{"a":"%b"}' % (b"x" * (65535 - 8))
    longer = longest + b" "
    messages = [(b"longest", {Section.HEADERS: longest}), (b"longer", {Section.HEADERS: longer})]
    side.publish_with(tail, *messages)
    conn = consumer(side, window, 5, extended=True)
    found = long_frames(conn.take_output())
    assert [(one.headers, one.body) for one in found] == [(longest, b"longest"), (None, b"longer")]


def test_headers_count_into_what_is_built_at_once(side: Side, tail: Any, window: Any) -> None:
    headers = b'{"a":"%b"}' % (b"x" * 60_000)
    side.publish_with(tail, *[(b"%d" % number, {Section.HEADERS: headers}) for number in range(9)])
    conn = consumer(side, window, 0, extended=True)
    conn.rdy = 9
    side.flush()
    first = conn.take_output()
    assert len(first) - 60_000 < CHUNK_BYTES < len(first)
    found = long_frames(first)
    side.settle()
    found += long_frames(conn.take_output())
    assert [one.body for one in found] == [b"%d" % number for number in range(9)]
