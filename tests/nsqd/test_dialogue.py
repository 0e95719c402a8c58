"""nsqd's side of the lookup protocol, byte by byte."""

from __future__ import annotations

import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock import limits
from penstock.errors import PeerFault
from penstock.nsqd.dialogue import Answer, Dialogue, read_info

IDENTITY = {"broadcast_address": "b", "tcp_port": 1}
INFO = b'{"broadcast_address":"lookup","http_port":4161,"tcp_port":4160,"version":"1.3.0"}'


def sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def introduced() -> Dialogue:
    dialogue = Dialogue(IDENTITY)
    dialogue.begin()
    dialogue.feed(sized(INFO))
    return dialogue


def test_how_it_begins() -> None:
    dialogue = Dialogue(IDENTITY)
    body = json.dumps(IDENTITY, separators=(",", ":")).encode()
    assert dialogue.begin() == b"  V1IDENTIFY\n" + sized(body)
    assert dialogue.info is None
    assert dialogue.feed(sized(INFO)) == [Answer("IDENTIFY", INFO)]
    assert dialogue.info is not None
    assert dialogue.info.http_address == "lookup:4161"
    assert not dialogue.owed


def test_commands_are_answered_in_order_however_the_bytes_come() -> None:
    dialogue = introduced()
    assert dialogue.command("REGISTER t c") == b"REGISTER t c\n"
    dialogue.command("PING")
    answers = [a for byte in sized(b"OK") * 2 for a in dialogue.feed(bytes((byte,)))]
    assert [answer.command for answer in answers] == ["REGISTER t c", "PING"]
    assert not dialogue.owed


@each(
    ("answer", "address"),
    [
        (INFO, "lookup:4161"),
        (b'{"broadcast_address":"::1","http_port":1}', "[::1]:1"),
        (b'{"broadcast_address":"","http_port":1}', ""),
        (b'{"broadcast_address":"a/b","http_port":1}', ""),
        (b'{"broadcast_address":"a@b","http_port":1}', ""),
        (b'{"broadcast_address":"a\\nb","http_port":1}', ""),
        (b'{"broadcast_address":1,"http_port":1}', ""),
        (b'{"broadcast_address":"a","http_port":-1}', ""),
        (b'{"broadcast_address":"a","http_port":65536}', ""),
        (b'{"broadcast_address":"a","http_port":true}', ""),
        (b"{}", ""),
    ],
)
def test_where_its_http_api_is(answer: bytes, address: str) -> None:
    assert read_info(answer).http_address == address


@each(
    ("answer", "reason"),
    [
        (b"E_INVALID", "lookupd returned E_INVALID"),
        (b"E_BAD_BODY IDENTIFY missing fields", "lookupd returned E_BAD_BODY IDENTIFY"),
        (b"OK", "parsing response - OK"),
        (b"[]", r"parsing response - \[\]"),
        (b"\xff\x00\n" * 200, r"parsing response - \\ufffd\\x00\\n.*\.\.\.$"),
        (b"[" * 60_000, r"parsing response - \["),
    ],
)
def test_a_bad_answer_to_identify(answer: bytes, reason: str) -> None:
    dialogue = Dialogue(IDENTITY)
    dialogue.begin()
    with pytest.raises(PeerFault, match=reason):
        dialogue.feed(sized(answer))


@each(
    ("data", "reason"),
    [
        (sized(b"E_INVALID x"), "PING - E_INVALID x"),
        (sized(b""), "PING - $"),
        (sized(b"OK") * 2, "an answer to nothing: OK"),
        (b"HTTP/1.1 400 Bad Request\r\n", "this is no nsqlookupd"),
        (b"\xff\xff\xff\xff", "an answer of -1 bytes"),
        (struct.pack(">i", limits.LOOKUP_ANSWER_BYTES_MAX + 1), "an answer of 65537 bytes"),
    ],
)
def test_other_bad_answers(data: bytes, reason: str) -> None:
    dialogue = introduced()
    dialogue.command("PING")
    with pytest.raises(PeerFault, match=reason):
        dialogue.feed(data)


@given(st.lists(st.binary(max_size=30)))
def test_any_bytes_are_answers_or_a_fault(parts: list[bytes]) -> None:
    dialogue = Dialogue(IDENTITY)
    dialogue.begin()
    for part in parts:
        try:
            dialogue.feed(part)
        except PeerFault:
            return
        assert len(dialogue._buffer) <= limits.LOOKUP_ANSWER_BYTES_MAX + 4
