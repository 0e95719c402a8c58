import random
import struct

import pytest

from cases import each
from penstock.errors import LogDamaged
from penstock.kernel import crc32c, encode_batch
from penstock.log.disk import OsDisk
from penstock.log.index import ENTRY_BYTES
from penstock.log.inspect import NothingThere, find
from penstock.log.mark import Mark, MarkFile
from penstock.log.partition import PartitionLog
from penstock.log.seal import seal
from penstock.log.verify import VerifyReport, verify
from sim.disk import SimDisk

from .helpers import NOW_NS, PATH, SMALL, body, first_offset, new_log, put, segments


def check(disk: SimDisk | OsDisk, path: str = "data") -> VerifyReport:
    return verify(disk, find(disk, path))


def journal_record(generation: int, sequence: int, entries: int = 2) -> bytes:
    groups = struct.pack("<II", 1, entries) + bytes(32 * entries)
    length = 40 + len(groups)
    covered = struct.pack("<IIQQQ", length, int(sequence == 0), generation, sequence, 7) + groups
    return b"PSJ1" + struct.pack("<I", crc32c(covered)) + covered


def small_directory() -> SimDisk:
    """A data directory after a clean stop: four segments, a journal in its second generation."""
    disk = SimDisk()
    disk.mkdir(PATH)
    log, writer = new_log(disk, PATH)
    writer.fill(40)
    log.close()
    put(disk, "data/node.json", seal(b'{"version": 1}'))
    put(disk, "data/topics/orders/topic.json", seal(b'{"name": "orders"}'))
    put(disk, f"{PATH}/producers", seal(b'{"end":9,"producers":[[1,0,3,5]],"version":1}'))
    put(disk, f"{PATH}/channels.0", journal_record(1, 0) + journal_record(1, 1))
    put(disk, f"{PATH}/channels.1", journal_record(2, 0) + journal_record(2, 1, 5))
    return disk


def bits_of_small_files_and_some_of_large_ones() -> list[tuple[str, int, int]]:
    disk = small_directory()
    rng = random.Random(1)
    found = []
    for name in disk.listdir(PATH):
        path = f"{PATH}/{name}"
        size = disk.size(path)
        positions = range(size) if size < 1000 else sorted(rng.sample(range(size), 300))
        found += [(path, position, rng.randrange(8)) for position in positions]
    return found


@pytest.fixture
def disk() -> SimDisk:
    return small_directory()


def test_any_flipped_bit_is_found_and_never_read_as_intact(disk: SimDisk) -> None:
    bodies = [body(n) for n in range(120)]
    flips = bits_of_small_files_and_some_of_large_ones()
    assert len(flips) > 2000
    for path, position, bit in flips:
        disk.flip(path, position, bit)
        findings = check(disk).findings
        assert findings, (path, position, bit)
        stem = path[:-6] if path.endswith(".index") else path
        assert any(stem[:-4] in f.path or f.path == PATH for f in findings)
        if path.endswith(".log"):
            read_around(disk, bodies)
        disk.flip(path, position, bit)
    assert check(disk).findings == []


def read_around(disk: SimDisk, bodies: list[bytes]) -> None:
    """Every message is read as it was written, or refused; all but one batch can be read."""
    unread = 0
    log = PartitionLog.open(Readonly(disk), PATH, SMALL)  # type: ignore[arg-type]
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


def test_bytes_behind_the_tail_of_a_cleanly_closed_log(disk: SimDisk) -> None:
    path = segments(disk)[-1]
    size = disk.size(path)
    disk.replace(path, disk.content(path) + bytes(100) + b"\1")
    (finding,) = check(disk).findings
    assert (finding.path, finding.position) == (path, size)
    disk.replace(path, disk.content(path)[:-1])
    assert check(disk).findings == []  # zeros say nothing


def test_a_missing_segment_and_a_lost_tail(disk: SimDisk) -> None:
    for number, end in ((1, first_offset(segments(disk)[2])), (-1, 120)):
        disk = small_directory()
        lost = segments(disk)[number]
        disk.unlink(lost)
        (finding,) = check(disk).findings
        assert (finding.from_offset, finding.to_offset) == (first_offset(lost), end)


def test_a_live_log_is_intact_with_an_unfinished_tail() -> None:
    disk = SimDisk()
    disk.mkdir(PATH)
    log, writer = new_log(disk, PATH)
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


def test_an_older_journal_may_end_torn_but_not_corrupt(disk: SimDisk) -> None:
    path = f"{PATH}/channels.0"
    whole = disk.content(path)
    disk.replace(path, whole[:-10])
    report = check(disk)
    assert (report.findings, [n.path for n in report.notes]) == ([], [path])
    disk.replace(path, whole)
    disk.flip(path, 150, 1)
    assert [f.path for f in check(disk).findings] == [path]


@each(
    "path",
    [
        "data/topics",
        "data/topics/orders",
        PATH,
        f"{PATH}/00000000000000000000.log",
        f"{PATH}/00000000000000000000.index",
        f"{PATH}/mark",
        f"{PATH}/channels.0",
        f"{PATH}/producers",
        "data/node.json",
    ],
)
def test_a_part_can_be_looked_at_alone(path: str) -> None:
    assert check(small_directory(), path).findings == []


def test_an_empty_directory(disk: SimDisk) -> None:
    disk.mkdir("empty")
    for path in ("gone", "empty"):
        with pytest.raises(NothingThere):
            find(disk, path)
    with pytest.raises(NothingThere):
        find(disk, "data/topics", topic="other")
    assert find(disk, "data", topic="orders", partition=0).directories


# --- each file for itself ---

FIRST = f"{PATH}/00000000000000000000"


def reasons(disk: SimDisk, path: str = "data") -> list[tuple[str, str]]:
    return [(finding.path, finding.reason) for finding in check(disk, path).findings]


def stage(disk: SimDisk, head: bytes, body: bytes) -> str:
    disk.mkdir("data/stages")
    path = "data/stages/0000000000000001.stage"
    put(disk, path, seal(head) + b"\n" + body)
    return path


def test_a_stage_is_checked_batch_by_batch(disk: SimDisk) -> None:
    body = encode_batch([b"a"], 0, 0, 0) * 2
    path = stage(disk, b'{"bytes":%d}' % len(body), body)
    assert reasons(disk) == reasons(disk, path) == []
    first_line = disk.content(path).index(b"\n") + 1
    disk.flip(path, first_line + len(body) // 2 + 75, 1)
    (finding,) = check(disk).findings
    assert finding.position == first_line + len(body) // 2
    assert finding.reason == "no intact batch where one must be"


def test_a_stage_whose_first_line_is_wrong(disk: SimDisk) -> None:
    body = encode_batch([b"a"], 0, 0, 0)
    path = stage(disk, b'{"bytes":7}', body)
    size = f"{len(body)} bytes of batches, and its line says otherwise"
    assert reasons(disk) == [(path, size)]
    disk.flip(path, 2, 1)
    assert reasons(disk) == [(path, "its checksum does not match")]


class Going(Readonly):
    """A disk from which a running daemon removes a file after its name was read."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        super().__init__(disk)
        self._path = path

    def open(self, path: str, write: bool = False) -> object:
        if path == self._path:
            raise FileNotFoundError(path)
        return self._disk.open(path, write)


def test_files_that_go_meanwhile_are_no_findings(disk: SimDisk) -> None:
    path = stage(disk, b'{"bytes":0}', b"")
    for gone in (path, f"{FIRST}.log"):
        report = verify(Going(disk, gone), find(disk, "data"))  # type: ignore[arg-type]
        assert report.findings == []
        assert [(note.path, note.reason) for note in report.notes] == [
            (gone, "the file is gone meanwhile")
        ]


def test_a_mark_that_is_missing_or_of_another_size(disk: SimDisk) -> None:
    path = f"{PATH}/mark"
    whole = disk.content(path)
    disk.replace(path, whole + b"\0")
    assert [reason for _, reason in reasons(disk)] == [f"the mark is not {len(whole)} bytes long"]
    between = bytearray(whole)
    between[len(whole) // 2 - 1] = 1
    disk.replace(path, bytes(between))
    assert reasons(disk) == [(path, "bytes between the copies are not zero")]
    disk.unlink(path)
    assert reasons(disk) == [(path, "there is no mark")]


def test_faults_of_an_index(disk: SimDisk) -> None:
    path = f"{FIRST}.index"
    whole = disk.content(path)
    entry = whole[ENTRY_BYTES : 2 * ENTRY_BYTES]
    offset, position, timestamp_ns, id = struct.unpack("<QQqQ", entry)
    other_id = struct.pack("<QQqQ", offset, position, timestamp_ns, id + 1)
    nowhere = struct.pack("<QQqQ", offset, position + 8, timestamp_ns, id)
    rest = whole[2 * ENTRY_BYTES :]
    for content, reason in (
        (whole + b"\0", "the index ends inside an entry"),
        (whole[:ENTRY_BYTES] + entry + entry + rest, "two entries for one position"),
        (
            whole[:ENTRY_BYTES] + other_id + rest,
            f"the entry for position {position} is not what the segment says",
        ),
        (
            whole[:ENTRY_BYTES] + nowhere + rest,
            f"the entry for position {position + 8} points to no batch",
        ),
    ):
        disk.replace(path, content)
        assert reasons(disk) == [(path, reason)]
    disk.replace(path, entry + whole)
    assert reasons(disk, path) == [(path, "the offsets of the index do not rise")]
    disk.unlink(path)
    report = check(disk)
    assert report.findings == []
    assert [note.reason for note in report.notes] == ["no index; it will be rebuilt"]


# --- what batches say of each other ---


def test_batches_that_contradict_each_other() -> None:
    """Each is intact for itself: a bug wrote them, not a disk."""
    disk = SimDisk()
    disk.mkdir(PATH)
    log, writer = new_log(disk, PATH)
    writer.write([b"a"])
    log.close()
    path = f"{FIRST}.log"
    first = disk.content(path)
    id = int.from_bytes(first[24:32], "little")
    for batch, reason in (
        (encode_batch([b"b"], 1, id, NOW_NS, 0), "ids do not rise"),
        (encode_batch([b"b"], 1, id + 1, NOW_NS, 2), "the synced end is ahead of the log"),
    ):
        disk.replace(path, first + batch)
        MarkFile(disk, f"{PATH}/mark").write_both(Mark(2, 2, id + 1, clean=True))
        assert (path, reason) in reasons(disk)
    disk.replace(path, first + encode_batch([b"b", b"c"], 1, id + 1, NOW_NS, 0))
    put(disk, f"{PATH}/{2:020d}.log", encode_batch([b"c"], 2, id + 9, NOW_NS, 0))
    found = [finding for finding in check(disk).findings if finding.path == path]
    assert [(f.reason, f.from_offset, f.to_offset) for f in found] == [
        ("offsets appear twice", 2, 3)
    ]
