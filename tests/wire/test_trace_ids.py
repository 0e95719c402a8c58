"""The bodies and the answers of PUB_TRACE and MPUB_TRACE, byte by byte."""

import struct

import pytest

from penstock.wire.errors import Fault, WireFault
from penstock.wire.trace_ids import split_many, split_one

NOT_LIMITED = 1 << 20


def traced(trace_id: int, body: bytes) -> bytes:
    return struct.pack(">iQ", 8 + len(body), trace_id) + body


def many(*messages: tuple[int, bytes]) -> bytes:
    return struct.pack(">i", len(messages)) + b"".join(traced(*one) for one in messages)


def refusal(body: bytes, message_bytes_max: int = NOT_LIMITED) -> tuple[Fault, bytes]:
    with pytest.raises(WireFault) as refused:
        split_many(body, message_bytes_max)
    return refused.value.fault, refused.value.data


def test_one_message_is_its_trace_id_and_the_rest() -> None:
    assert split_one(b"\0\0\0\0\0\0\1\2body") == (0x0102, b"body")
    assert split_one(b"\xff" * 8 + b"b") == ((1 << 64) - 1, b"b")
    assert split_one(bytes(8) + b"none") == (0, b"none")  # 0: no trace id


@pytest.mark.parametrize("length", [0, 7, 8])
def test_one_message_without_a_body_is_refused(length: int) -> None:
    with pytest.raises(WireFault) as refused:
        split_one(bytes(length))
    assert refused.value.fault is Fault.MESSAGE_SIZE_INVALID
    assert refused.value.data == b"E_BAD_MESSAGE PUB_TRACE invalid message body size %d" % length


def test_many_messages_come_in_order_the_largest_too_and_one_byte_more_is_refused() -> None:
    messages = [(7, b"one"), (0, b"12345"), ((1 << 64) - 1, b"t")]
    assert split_many(many(*messages), 5) == messages
    assert refusal(many(*messages), 4) == (
        Fault.MESSAGE_TOO_BIG,
        b"E_BAD_MESSAGE MPUB_TRACE message too big 13 > 4",
    )


@pytest.mark.parametrize("length", [0, 3])
def test_a_body_too_short_for_a_count_is_refused(length: int) -> None:
    assert refusal(bytes(length))[0] is Fault.MPUB_COUNT_UNREAD


@pytest.mark.parametrize("size", [0, 8, -1])
def test_a_message_of_many_without_a_body_is_refused(size: int) -> None:
    body = struct.pack(">i", 2) + traced(1, b"a") + struct.pack(">iQ", size, 2) + b"b"
    assert refusal(body) == (
        Fault.MPUB_MESSAGE_SIZE,
        b"E_BAD_MESSAGE MPUB invalid message(1) body size %d" % size,
    )


def test_a_message_that_ends_behind_the_body_is_refused() -> None:
    assert refusal(many((1, b"a"), (2, b"bc"))[:-1])[0] is Fault.MESSAGE_UNREAD


def test_a_body_that_ends_before_a_message_begins_is_refused() -> None:
    body = struct.pack(">i", 2) + traced(1, b"long enough for two")
    for behind in (b"", bytes(3)):
        assert refusal(body + behind) == (
            Fault.MPUB_MESSAGE_SIZE_UNREAD,
            b"E_BAD_MESSAGE MPUB failed to read message(1) body size",
        )
