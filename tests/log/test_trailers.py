"""Batches with a trailer are found by headers: all of them, checked, and little else is read."""

import random
from pathlib import Path

import pytest

from penstock import limits
from penstock.errors import LogDamaged
from penstock.kernel import Section, decode_header
from penstock.kernel.layout import FLAG_TRAILER
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog
from penstock.log.scan import Blocks

from .helpers import Writer, new_log


def bases(log: PartitionLog, offset: int = 0) -> list[int]:
    """Of the batches that are found from `offset` to the end."""
    found: list[int] = []
    while offset < log.written_end:
        blocks, following = log.trailers(offset, log.written_end)
        assert following > offset
        found += [decode_header(block, 0).base_offset for block in blocks]
        offset = following
    return found


def write(writer: Writer, trailer: bool, *bodies: bytes) -> None:
    writer.write(list(bodies), sections={Section.DUE: {0: 5}} if trailer else None)


@pytest.mark.parametrize("body_bytes", [10, 700, 40_000])
def test_all_trailers_are_found_from_any_offset(tmp_path: Path, body_bytes: int) -> None:
    log, writer = new_log(OsDisk(), tmp_path / "0")
    dice = random.Random(body_bytes)
    expected: list[tuple[int, int]] = []
    for _ in range(60):
        base, trailer = log.written_end, dice.random() < 0.3
        write(writer, trailer, *[bytes(body_bytes)] * dice.randrange(1, 4))
        if trailer:
            expected.append((base, log.written_end))
    for offset in range(log.written_end):
        assert bases(log, offset) == [base for base, end in expected if end > offset]
    log.close()


def test_a_slice_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, writer = new_log(OsDisk(), tmp_path / "0")
    for number in range(20):
        write(writer, number % 2 == 1, b"x")
    monkeypatch.setattr(limits, "SEARCH_SLICE_HEADERS", 5)
    blocks, following = log.trailers(0, log.written_end)
    assert (len(blocks), following) == (2, 5)
    assert log.trailers(5, 7)[1] == 7
    assert len(bases(log)) == 10
    log.close()


def test_large_batches_are_passed_over(tmp_path: Path) -> None:
    log = PartitionLog.create(OsDisk(), tmp_path / "0")
    writer = Writer(log)
    for number in range(16):
        write(writer, number == 9, bytes(1 << 20))
    assert bases(log) == [9]
    (path,) = (tmp_path / "0").glob("*.log")
    file = OsDisk().open(str(path))
    blocks, position = Blocks(file, log.bytes_stored, limits.SEARCH_WINDOW_BYTES), 0
    for number in range(16):
        head = blocks.head(position)
        assert head is not None
        assert head[1:3] == (FLAG_TRAILER if number == 9 else 0, number)
        position += head[0]
    assert blocks.bytes_read == 16 * limits.SEARCH_WINDOW_BYTES
    file.close()
    log.close()


@pytest.mark.parametrize("at", [4, 8, 16, 64, 200])
def test_a_corrupt_trailer_ends_the_walk(tmp_path: Path, at: int) -> None:
    """Checksum, length, offset, count or body: nothing is handed out on trust."""
    log, writer = new_log(OsDisk(), tmp_path / "0")
    sizes = [0]
    for _ in range(3):
        write(writer, True, bytes(300))
        sizes.append(log.bytes_stored)
    path = next((tmp_path / "0").glob("*.log"))
    data = bytearray(path.read_bytes())
    data[sizes[1] + at] ^= 1
    path.write_bytes(data)
    assert [decode_header(block, 0).base_offset for block in log.trailers(0, 3).blocks] == [0]
    assert log.trailers(0, 3).next_offset == 1
    with pytest.raises(LogDamaged) as caught:
        log.trailers(1, 3)
    assert (caught.value.from_offset, caught.value.to_offset) == (1, 2)
    assert bases(log, 2) == [2]
    log.close()


def test_a_file_that_is_cut_short_has_no_head_there(tmp_path: Path) -> None:
    log, writer = new_log(OsDisk(), tmp_path / "0")
    write(writer, True, bytes(300))
    (path,) = (tmp_path / "0").glob("*.log")
    file = OsDisk().open(str(path))
    blocks = Blocks(file, log.bytes_stored)
    start = log.bytes_stored - len(log.trailers(0, 1).blocks[0])
    assert blocks.head(start) is not None
    assert blocks.head(log.bytes_stored) is None
    assert blocks.head(start + 8) is None
    assert Blocks(file, log.bytes_stored - 8).head(start) is None
    file.close()
    log.close()
