import json

import pytest

from penstock.kernel import encode_batch
from penstock.log.scan import WINDOW_BYTES, Batch, Blocks, find_beyond, walk
from penstock.log.seal import seal, unseal
from sim.disk import SimDisk


def batch(base: int, count: int = 2, size: int = 20, synced_end: int = 0) -> bytes:
    bodies = [bytes([(base + n) % 256]) * size for n in range(count)]
    return encode_batch(bodies, base, 1000 + base, 5, synced_end)


def blocks_of(content: bytes) -> Blocks:
    disk = SimDisk()
    file = disk.create("f")
    file.pwritev([content], 0, len(content))
    return Blocks(file, len(content))


def offsets(batches: list[Batch]) -> list[int]:
    return [b.header.base_offset for b in batches]


def test_old_batches_of_a_recycled_file_are_no_part_of_the_log() -> None:
    new = batch(100) + batch(102)
    old = b"".join(batch(n) for n in range(0, 50, 2))
    found = list(walk(blocks_of(new + old[len(new) :]), 0, 100, None))
    assert offsets(found) == [100, 102]


def test_a_corrupt_body_is_skipped_by_its_length() -> None:
    corrupt = bytearray(batch(2))
    corrupt[-10] ^= 1
    content = batch(0) + bytes(corrupt) + batch(4)
    assert offsets(list(walk(blocks_of(content), 0, 0, None))) == [0, 4]


def test_a_corrupt_length_is_skipped_by_searching_the_magic() -> None:
    for bit in range(32):
        corrupt = bytearray(batch(2, 3, 777))
        corrupt[8 + bit // 8] ^= 1 << bit % 8
        content = batch(0) + bytes(corrupt) + batch(5) + batch(7)
        assert offsets(list(walk(blocks_of(content), 0, 0, None))) == [0, 5, 7]


def test_a_batch_inside_a_message_is_not_taken_for_the_next() -> None:
    """Someone stores segments of a log as messages, and one such message's batch is corrupt."""
    stored = encode_batch([batch(3) + batch(5) * 50], 2, 1002, 5)
    corrupt = bytearray(stored)
    corrupt[-1] ^= 1
    content = batch(0) + bytes(corrupt) + batch(3)
    found = list(walk(blocks_of(content), 0, 0, None))
    assert [(b.header.base_offset, b.position) for b in found] == [
        (0, 0),
        (3, len(batch(0)) + len(corrupt)),
    ]


def test_a_batch_beyond_a_gap_must_leave_room_for_it() -> None:
    content = bytes(80) + batch(21)
    assert find_beyond(blocks_of(content), 0, 0, None) is None  # 21 messages never fit 80 bytes
    found = find_beyond(blocks_of(content), 0, 1, None)
    assert found is not None
    assert found.header.base_offset == 21
    assert find_beyond(blocks_of(content), 0, 1, 22) is None  # it would reach into the next segment
    assert find_beyond(blocks_of(content), 0, 21, None) is None  # nothing would be missing
    lying = bytes(80) + batch(5, synced_end=6)
    assert find_beyond(blocks_of(lying), 0, 0, None) is None


def test_a_magic_across_two_windows_is_found() -> None:
    for shift in range(0, 160, 8):
        content = bytes(WINDOW_BYTES - shift) + batch(7)
        found = find_beyond(blocks_of(content), 0, 0, None)
        assert found is not None
        assert found.position == WINDOW_BYTES - shift


# --- the checksum of JSON files: every flipped bit is found ---


DOCUMENT = (
    b'{"name":"orders","channels":[{"name":"ch","number":1}],"created_ns":1795228439718974468}'
)


def test_a_sealed_file_is_still_json_and_gives_its_document_back() -> None:
    sealed = seal(DOCUMENT)
    assert unseal(sealed) == DOCUMENT
    value = json.loads(sealed)
    assert list(value)[-1] == "crc32c"
    assert {name: value[name] for name in json.loads(DOCUMENT)} == json.loads(DOCUMENT)


def test_every_flipped_bit_and_missing_end_is_found() -> None:
    sealed = seal(DOCUMENT)
    for position in range(len(sealed)):
        with pytest.raises(ValueError, match="checksum"):
            unseal(sealed[:position])
        for bit in range(8):
            corrupt = bytearray(sealed)
            corrupt[position] ^= 1 << bit
            with pytest.raises(ValueError, match="checksum"):
                unseal(bytes(corrupt))


@pytest.mark.parametrize("document", [b"", b"{}", b"[]", b'{"a":1}\n'])
def test_only_an_object_with_a_member_can_be_sealed(document: bytes) -> None:
    with pytest.raises(ValueError, match="sealed"):
        seal(document)
