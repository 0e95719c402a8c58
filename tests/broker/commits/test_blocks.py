"""Batches from elsewhere: which are taken, which are refused and why, and their place in a log."""

import struct

import pytest

from cases import each, ended
from penstock import limits
from penstock.broker.commits.blocks import BlockInvalid, Contents, check_blocks
from penstock.kernel import Section, crc32c, encode_batch

Sections = dict[int, dict[int, int | bytes]]
MESSAGE_BYTES_MAX = 1_000


def batch(*bodies: bytes, sections: Sections | None = None) -> bytes:
    return encode_batch(list(bodies), 0, 0, 0, sections=sections)


def contents(data: bytes, message_bytes_max: int = MESSAGE_BYTES_MAX) -> Contents:
    return ended(check_blocks(data, message_bytes_max))


def refusal(data: bytes, message_bytes_max: int = MESSAGE_BYTES_MAX) -> tuple[int, str]:
    with pytest.raises(BlockInvalid) as refused:
        contents(data, message_bytes_max)
    assert str(refused.value) == f"at byte {refused.value.position}: {refused.value.reason}"
    return refused.value.position, refused.value.reason


# --- what is taken ---


def test_messages_are_counted_and_the_latest_due_time_is_found() -> None:
    plain = batch(b"a", b"b")
    due = batch(b"c", b"d", b"e", sections={Section.DUE: {0: 700, 2: 300}})
    assert contents(plain) == Contents(2, 0)
    assert contents(plain + due + plain) == Contents(7, 700)


def test_sections_that_a_producer_may_set() -> None:
    sections: Sections = {
        Section.TIMESTAMP: {0: 1, 1: 900},
        Section.DUE: {1: 5},
        Section.KEY: {0: b"key"},
        Section.HEADERS: {1: b'{"a":1}'},
    }
    assert contents(batch(b"a", b"b", sections=sections)) == Contents(2, 5)  # no other time counts


def test_long_work_comes_in_slices() -> None:
    many = batch(b"x") * (2 * limits.STAGE_SLICE_BYTES // 8192)
    assert contents(many).messages == len(many) // len(batch(b"x"))
    assert len(list(check_blocks(many, MESSAGE_BYTES_MAX))) >= 2
    assert list(check_blocks(batch(b"x"), MESSAGE_BYTES_MAX)) == []


# --- what is refused ---


def test_an_empty_block_is_invalid() -> None:
    assert refusal(b"") == (0, "there is no batch")


def test_a_refusal_names_the_start_of_its_batch() -> None:
    first = batch(b"a")
    corrupt = bytearray(batch(b"b"))
    corrupt[76] ^= 1
    assert refusal(first + first + corrupt) == (2 * len(first), "the checksum does not match")
    assert refusal(first + first[:-8]) == (len(first), "it ends before the batch does")
    assert refusal(first + b"no batch" * 9) == (len(first), "no batch begins here")


def test_an_empty_message_is_refused() -> None:
    assert refusal(batch(b"a", b"")) == (0, "a message is empty")


@pytest.mark.parametrize("section", [Section.ID, Section.TRACE, Section.ATTEMPTS])
def test_sections_of_the_broker_are_refused(section: Section) -> None:
    data = batch(b"a") + batch(b"b", sections={section: {0: 7}})
    position, reason = refusal(data)
    assert position == len(batch(b"a"))
    assert reason == f"section {int(section)}: only TIMESTAMP, DUE, KEY, HEADERS may be there"


@pytest.mark.parametrize("section", [Section.TIMESTAMP, Section.DUE])
def test_a_time_before_1970_is_refused(section: Section) -> None:
    data = bytearray(batch(b"a", b"b", sections={section: {1: 77}}))
    at = data.index(struct.pack("<q", 77), 72)
    data[at : at + 8] = struct.pack("<q", -1)
    data[4:8] = struct.pack("<I", crc32c(data[8:]))
    reason = f"section {int(section)}: a time before 1970"
    assert refusal(bytes(data)) == (0, reason)


@each(
    "text",
    [b"no json", b"{", b"[]", b'"a"', b"1", b"null", b'{"a":"\xff"}', b"[" * 100_000,
     '{"a":"b"}'.encode("utf-16"), b"\xef\xbb\xbf{}"],
)  # fmt: skip
def test_headers_that_no_consumer_could_read_are_refused(text: bytes) -> None:
    sections: Sections = {Section.HEADERS: {0: b'{"a":"b"}', 2: text}}
    data = batch(b"a") + batch(b"b", b"c", b"d", sections=sections)
    position, reason = refusal(data)
    assert position == len(batch(b"a"))
    assert reason == f"message 2 has {text[:100]!r}: headers are a JSON object, in UTF-8"


def test_a_large_batch_holds_one_message_only() -> None:
    half = bytes(limits.STAGE_BATCH_BYTES_MAX // 2)
    position, reason = refusal(batch(half, half), 1 << 30)
    assert position == 0
    assert f"of several messages has at most {limits.STAGE_BATCH_BYTES_MAX} bytes" in reason
    assert contents(batch(half + half), 1 << 30).messages == 1
