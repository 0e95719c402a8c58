from __future__ import annotations

import random
import struct
from pathlib import Path

import pytest

from penstock.errors import LogDamaged, StorageError
from penstock.kernel import crc32c
from penstock.log.disk import OsDisk
from penstock.log.inspect import NothingThere, find
from penstock.log.partition import PartitionLog
from penstock.log.sealed import seal
from penstock.log.verify import Report, verify
from penstock.sim.disk import SimDisk

from .helpers import NOW_NS, SMALL, Writer, bodies_from, body, new_log

PARTITION = "data/topics/orders/0"


def check(disk: SimDisk | OsDisk, path: str = "data") -> Report:
    return verify(disk, find(disk, path))


def journal_record(generation: int, sequence: int, entries: int = 2) -> bytes:
    groups = struct.pack("<II", 1, entries) + bytes(32 * entries)
    length = 40 + len(groups)
    covered = struct.pack("<IIQQQ", length, int(sequence == 0), generation, sequence, 7) + groups
    return b"PSJ1" + struct.pack("<I", crc32c(covered)) + covered


def small_directory(batches: int = 40) -> SimDisk:
    """A data directory after a clean stop: four segments, a journal in its second generation."""
    disk = SimDisk()
    disk.mkdir(PARTITION)
    log, writer = new_log(disk, PARTITION)
    writer.fill(batches)
    log.close()
    put(disk, "data/node.json", seal(b'{"version": 1}'))
    put(disk, "data/topics/orders/topic.json", seal(b'{"name": "orders"}'))
    put(disk, f"{PARTITION}/producers", seal(b'{"end":9,"producers":[[1,0,3,5]],"version":1}'))
    put(disk, f"{PARTITION}/channels.0", journal_record(1, 0) + journal_record(1, 1))
    put(disk, f"{PARTITION}/channels.1", journal_record(2, 0) + journal_record(2, 1, 5))
    return disk


def put(disk: SimDisk, path: str, content: bytes) -> None:
    disk.create(path).pwritev([content], 0, len(content))


def test_a_sound_directory_is_sound() -> None:
    disk = small_directory()
    report = check(disk)
    assert report.findings == []
    assert report.notes == []
    (summary,) = report.partitions
    assert (summary.topic, summary.partition, summary.clean) == ("orders", 0, True)
    assert (summary.from_offset, summary.to_offset, summary.batches) == (0, 120, 40)
    assert report.bytes_checked == disk.used_bytes()


def bits_of_small_files_and_some_of_large_ones() -> list[tuple[str, int, int]]:
    disk = small_directory()
    rng = random.Random(1)
    found = []
    for name in disk.listdir(PARTITION):
        path = f"{PARTITION}/{name}"
        size = disk.size(path)
        positions = range(size) if size < 1000 else sorted(rng.sample(range(size), 300))
        found += [(path, position, rng.randrange(8)) for position in positions]
    return found


def test_any_flipped_bit_is_found_and_never_read_as_sound() -> None:
    disk = small_directory()
    bodies = [body(n) for n in range(120)]
    flips = bits_of_small_files_and_some_of_large_ones()
    assert len(flips) > 2000
    for path, position, bit in flips:
        disk.flip(path, position, bit)
        findings = check(disk).findings
        assert findings, (path, position, bit)
        stem = path[:-6] if path.endswith(".index") else path
        assert any(stem[:-4] in f.path or f.path == PARTITION for f in findings)
        if path.endswith(".log"):
            read_around(disk, bodies)
        disk.flip(path, position, bit)
    assert check(disk).findings == []


def read_around(disk: SimDisk, bodies: list[bytes]) -> None:
    """Every message is read as it was written, or refused; all but one batch can be read."""
    unread = 0
    log = PartitionLog.open(Readonly(disk), PARTITION, SMALL)  # type: ignore[arg-type]
    for offset in range(0, 120, 3):
        try:
            block = log.message(offset)
        except LogDamaged as error:
            unread += error.from_offset <= offset < error.to_offset and bool(log.damaged)
        else:
            assert block.body == bodies[offset]
    assert unread == 1
    log._segments.close()


class Readonly:
    """A disk that nothing is changed on."""

    def __init__(self, disk: SimDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> object:
        if name in ("create", "rename", "unlink", "mkdir"):
            raise AssertionError(f"{name} was called")
        return getattr(self._disk, name)


def test_looking_changes_nothing() -> None:
    disk = small_directory()
    disk.flip(f"{PARTITION}/00000000000000000000.log", 100, 0)
    assert verify(Readonly(disk), find(disk, "data")).findings  # type: ignore[arg-type]


def test_a_finding_names_file_position_and_offsets() -> None:
    disk = small_directory()
    path = f"{PARTITION}/00000000000000000000.log"
    log = PartitionLog.open(disk, PARTITION, SMALL)
    position = log._reader.locate(9).position
    log.close()
    disk.flip(path, position + 80, 3)
    (finding,) = check(disk).findings
    assert finding == (path, position, 9, 12, "no sound batch where one must be")


def test_bytes_behind_the_tail_of_a_cleanly_closed_log() -> None:
    disk = small_directory()
    last = sorted(n for n in disk.listdir(PARTITION) if n.endswith(".log"))[-1]
    path = f"{PARTITION}/{last}"
    size = disk.size(path)
    disk.replace(path, disk.content(path) + bytes(100) + b"\1")
    (finding,) = check(disk).findings
    assert (finding.path, finding.position) == (path, size)
    disk.replace(path, disk.content(path)[:-1])
    assert check(disk).findings == []  # zeros say nothing


def test_a_missing_segment_and_a_lost_tail() -> None:
    disk = small_directory()
    segments = sorted(n for n in disk.listdir(PARTITION) if n.endswith(".log"))
    disk.unlink(f"{PARTITION}/{segments[1]}")
    (finding,) = check(disk).findings
    assert (finding.from_offset, finding.to_offset) == (
        int(segments[1][:20]),
        int(segments[2][:20]),
    )
    disk = small_directory()
    disk.unlink(f"{PARTITION}/{segments[-1]}")
    assert [(f.from_offset, f.to_offset) for f in check(disk).findings] == [
        (int(segments[-1][:20]), 120)
    ]


def test_a_live_log_is_sound_with_its_tail_unfinished() -> None:
    disk = SimDisk()
    disk.mkdir(PARTITION)
    log, writer = new_log(disk, PARTITION)
    for _ in range(50):
        data = writer.write([body(log.written_end)])
        log.mark(NOW_NS + 10**10 * log.written_end)
        assert check(disk).findings == []
        if log.written_end % 7 == 0:
            log.sync()
    segment = log.segments[-1]
    disk.open(segment.path, write=True).pwritev([data[:60]], segment.bytes_stored, 60)
    report = check(disk)
    assert report.findings == []
    assert len(report.notes) == 1
    log.close()


def test_a_log_that_was_killed_is_sound() -> None:
    disk = small_directory()
    log = PartitionLog.open(disk, PARTITION, SMALL)
    Writer(log).fill(50)
    disk.kill()
    report = check(disk)
    assert report.findings == []
    assert not report.partitions[0].clean


def test_a_journal_that_an_append_cut_short() -> None:
    disk = small_directory()
    path = f"{PARTITION}/channels.1"
    whole = disk.content(path)
    disk.replace(path, whole[:-10])
    assert [f.path for f in check(disk).findings] == [path]  # after a clean stop: a loss
    disk = small_directory()
    log = PartitionLog.open(disk, PARTITION, SMALL)
    Writer(log).fill(1)
    disk.kill()
    disk.replace(path, whole[:-10])
    report = check(disk)
    assert report.findings == []  # after a kill: nothing to wonder at
    assert [note.path for note in report.notes] == [path]


def test_an_older_journal_may_end_torn_but_not_rotten() -> None:
    disk = small_directory()
    path = f"{PARTITION}/channels.0"
    whole = disk.content(path)
    disk.replace(path, whole[:-10])
    report = check(disk)
    assert (report.findings, [n.path for n in report.notes]) == ([], [path])
    disk.replace(path, whole)
    disk.flip(path, 150, 1)
    assert [f.path for f in check(disk).findings] == [path]


def test_settings_must_be_json() -> None:
    disk = small_directory()
    put(disk, "data/topics/orders/topic.json", b'{"name": \xff')
    assert [f.path for f in check(disk).findings] == ["data/topics/orders/topic.json"]


def test_spares_and_strangers_are_ignored_and_said_so() -> None:
    disk = small_directory()
    put(disk, f"{PARTITION}/spare-0.log", b"old")
    put(disk, f"{PARTITION}/notes.txt", b"mine")
    report = check(disk)
    assert report.findings == []
    assert sorted(note.path for note in report.notes) == [
        f"{PARTITION}/notes.txt",
        f"{PARTITION}/spare-0.log",
    ]


@pytest.mark.parametrize(
    "path",
    [
        "data/topics",
        "data/topics/orders",
        PARTITION,
        f"{PARTITION}/00000000000000000000.log",
        f"{PARTITION}/00000000000000000000.index",
        f"{PARTITION}/mark",
        f"{PARTITION}/channels.0",
        f"{PARTITION}/producers",
        "data/node.json",
    ],
)
def test_a_part_can_be_looked_at_alone(path: str) -> None:
    assert check(small_directory(), path).findings == []


def test_nothing_there() -> None:
    disk = small_directory()
    disk.mkdir("empty")
    for path in ("gone", "empty"):
        with pytest.raises(NothingThere):
            find(disk, path)
    with pytest.raises(NothingThere):
        find(disk, "data/topics", topic="other")
    assert find(disk, "data", topic="orders", partition=0).places


def test_real_files(tmp_path: Path) -> None:
    log, writer = new_log(OsDisk(), tmp_path / "topics" / "t" / "0")
    writer.fill(30)
    assert bodies_from(log, 0)
    assert check(OsDisk(), str(tmp_path)).findings == []
    log.close()
    assert check(OsDisk(), str(tmp_path)).findings == []


def test_the_damage_of_a_tail_is_refused_by_the_log_and_found_here() -> None:
    disk = small_directory()
    last = sorted(n for n in disk.listdir(PARTITION) if n.endswith(".log"))[-1]
    disk.flip(f"{PARTITION}/{last}", disk.size(f"{PARTITION}/{last}") - 20, 0)
    log = PartitionLog.open(disk, PARTITION, SMALL)
    assert log.damaged
    with pytest.raises(StorageError):
        Writer(log).fill(1)
    log.close()
    assert check(disk).findings
