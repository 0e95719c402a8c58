"""What a partition and each kind of its files say."""

import pytest

from penstock.kernel import id_to_hex
from penstock.log.fold import FLAG_SNAPSHOT, EntryKind, Group, cursor_entry, encode_record
from penstock.log.inspect import Row, dump_file, dump_partition, dump_segment
from penstock.log.partition import PartitionLog
from sim.disk import SimDisk

from .helpers import DIRECTORY, END, NOW_NS, PATH, SMALL, body, corrupt, filled_disk, new_log


@pytest.fixture
def disk() -> SimDisk:
    return filled_disk()


def offsets(rows: list[Row]) -> list[int]:
    return [row["offset"] for row in rows if "offset" in row]


def holes(rows: list[Row]) -> list[Row]:
    return [row for row in rows if "hole" in row]


# --- messages ---


def test_a_partition_is_a_row_per_message(disk: SimDisk) -> None:
    rows = list(dump_partition(disk, DIRECTORY))
    log = PartitionLog.open(disk, PATH, SMALL)
    wanted = log.message(100)
    log.close()
    assert offsets(rows) == list(range(END))
    assert [row["body"] for row in rows] == [body(n) for n in range(END)]
    row = rows[100]
    assert row["id"] == id_to_hex(wanted.id).decode()
    assert (row["timestamp_ns"], row["size"]) == (NOW_NS, len(body(100)))
    assert row["batch"] == wanted.header.base_offset


def test_a_dump_names_sections() -> None:
    disk = SimDisk()
    disk.mkdir(PATH)
    log, writer = new_log(disk, PATH)
    sections: dict[int, dict[int, int | bytes]] = {1: {1: 12345}, 2: {1: 4711}, 64: {0: b"key"}}
    writer.write([b"a", b"b"], sections=sections)
    plain_id = log.message(0).id
    log.close()
    plain, own = dump_partition(disk, DIRECTORY)
    assert plain["id"] == id_to_hex(plain_id).decode()
    assert plain["key"] == b"key"
    assert (plain["timestamp_ns"], own["timestamp_ns"]) == (NOW_NS, 12345)
    assert (own["id"], own["body"]) == (id_to_hex(4711).decode(), b"b")
    assert "key" not in own


# --- holes ---


def test_a_corrupt_batch_is_a_hole_between_the_messages_around_it(disk: SimDisk) -> None:
    path = corrupt(disk, 10)
    rows = list(dump_partition(disk, DIRECTORY))
    assert holes(rows) == [{"hole": [9, 12], "path": path}]
    assert rows.index({"hole": [9, 12], "path": path}) == 9
    assert offsets(rows) == [n for n in range(END) if not 9 <= n < 12]


def test_a_corrupt_end_of_a_sealed_segment_is_a_hole(disk: SimDisk) -> None:
    log = PartitionLog.open(disk, PATH, SMALL)
    end = log.segments[0].to_offset
    log.close()
    path = corrupt(disk, end - 1)
    assert holes(list(dump_partition(disk, DIRECTORY))) == [{"hole": [end - 3, end], "path": path}]
    assert holes(list(dump_segment(disk, path, 0, None))) == []  # alone it has no known end


def test_a_file_that_is_not_named_like_a_segment_is_refused(disk: SimDisk) -> None:
    with pytest.raises(ValueError, match="data/mark is not named like a segment"):
        list(dump_segment(disk, "data/mark", 0, None))


# --- one file ---


def test_an_index_is_a_row_per_entry(disk: SimDisk) -> None:
    rows = list(dump_file(disk, f"{PATH}/{0:020d}.index"))
    assert len(rows) > 1
    assert (rows[0]["offset"], rows[0]["position"], rows[0]["timestamp_ns"]) == (0, 0, NOW_NS)
    assert offsets(rows) == sorted(offsets(rows))


def test_a_mark_is_a_row_per_copy(disk: SimDisk) -> None:
    path = f"{PATH}/mark"
    rows = list(dump_file(disk, path))
    assert [row["copy"] for row in rows] == [0, 1]
    assert all((row["written_end"], row["clean"]) == (END, True) for row in rows)
    disk.flip(path, 20, 0)
    assert [row.get("sound", True) for row in dump_file(disk, path)] == [False, True]


def test_a_journal_is_a_row_per_record_and_its_problem(disk: SimDisk) -> None:
    groups = [Group(1, cursor_entry(EntryKind.CURSOR, 5, 9))]
    first = encode_record(FLAG_SNAPSHOT, 3, 0, 9, groups)
    second = encode_record(0, 3, 1, 12, groups)
    path = f"{PATH}/channels.0"
    disk.create(path)
    disk.replace(path, first + second)
    rows = list(dump_file(disk, path))
    assert [(row["sequence"], row["handed_end"], row["entries"]) for row in rows] == [
        (0, 9, 1),
        (1, 12, 1),
    ]
    disk.replace(path, first + second[:-1])
    assert list(dump_file(disk, path))[1:] == [
        {"position": len(first), "problem": "the file ends inside a record"}
    ]


def test_a_dump_of_an_unknown_file_reports_its_size(disk: SimDisk) -> None:
    path = f"{PATH}/notes"
    disk.create(path)
    disk.replace(path, b"mine")
    assert list(dump_file(disk, path)) == [{"path": path, "bytes": 4}]
