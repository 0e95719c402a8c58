from __future__ import annotations

import pytest

from penstock.log.mark import (
    COPY_BYTES,
    COPY_POSITIONS,
    FILE_BYTES,
    Mark,
    MarkFile,
    decode,
    decode_file,
    encode,
)
from sim.disk import SimDisk

OLD = Mark(10, 12, 99)
NEW = Mark(20, 20, 150)


def file_of(first: Mark, second: Mark) -> bytearray:
    data = bytearray(FILE_BYTES)
    for at, mark in zip(COPY_POSITIONS, (first, second), strict=True):
        data[at : at + COPY_BYTES] = encode(mark)
    return data


def test_any_flipped_bit_makes_a_copy_unsound() -> None:
    for bit in range(8 * COPY_BYTES):
        data = bytearray(encode(NEW))
        data[bit // 8] ^= 1 << bit % 8
        assert decode(bytes(data)) is None


@pytest.mark.parametrize("order", [(OLD, NEW), (NEW, OLD)])
def test_the_newer_copy_counts_and_the_older_is_overwritten_next(order: tuple[Mark, Mark]) -> None:
    state = decode_file(bytes(file_of(*order)))
    assert state.mark == NEW
    assert order[state.next_copy] == OLD


@pytest.mark.parametrize("torn", [0, 1])
def test_a_torn_write_leaves_the_other_copy(torn: int) -> None:
    data = file_of(NEW, NEW)
    at = COPY_POSITIONS[torn]
    data[at + 8 : at + COPY_BYTES] = encode(OLD)[8:]
    state = decode_file(bytes(data))
    assert (state.mark, state.next_copy) == (NEW, torn)


def test_nothing_sound_is_no_mark() -> None:
    assert decode_file(b"").mark is None
    assert decode_file(bytes(FILE_BYTES)).mark is None


def test_copies_are_written_in_turn() -> None:
    disk = SimDisk()
    file = MarkFile(disk, "mark")
    file.create(Mark())
    for end in range(1, 6):
        file.write(Mark(end, end, end))
        state = decode_file(disk.content("mark"))
        assert state.mark == Mark(end, end, end)
    file.write_both(Mark(6, 6, 6, clean=True))
    assert decode_file(disk.content("mark")).mark == Mark(6, 6, 6, clean=True)
    disk.unlink("mark")
    file.write_both(Mark(7, 7, 7))
    assert decode_file(disk.content("mark")).mark == Mark(7, 7, 7)
