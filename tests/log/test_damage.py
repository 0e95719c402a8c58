"""A log whose files are corrupt: what it says, what it still serves, what it refuses."""

from collections.abc import Sequence

import pytest

from penstock.errors import LogDamaged, StorageError
from penstock.limits import SECOND
from penstock.log.damage import Damage, DamageList, LostRange
from penstock.log.partition import PartitionLog
from penstock.log.segment import SegmentInfo
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, PATH, SMALL, Writer, bodies_from, body, contents, corrupt, new_log


def closed_log(disk: SimDisk) -> Sequence[SegmentInfo]:
    """Its segments."""
    log, writer = new_log(disk, PATH)
    for n in range(60):
        writer.fill(1, NOW_NS + n * SECOND)
    log.close()
    return log.segments


def reopened(disk: SimDisk) -> PartitionLog:
    return PartitionLog.open(disk, PATH, SMALL)


def test_retention_passes_corrupt_segments(disk: SimDisk) -> None:
    closed_log(disk)
    corrupt(disk, 10)
    log = reopened(disk)
    with pytest.raises(LogDamaged):
        log.message(10)
    newest = log.segments[-1].from_offset
    assert log.retain(180, NOW_NS + 10**6 * SECOND, 1, 0) > 1
    assert log.start_offset >= newest
    assert log.damaged == []  # it is gone, and nothing is left to report


def test_retention_by_age_passes_segments_whose_time_cannot_be_read(disk: SimDisk) -> None:
    """The age of a segment is read from the one behind it."""
    for segment in closed_log(disk)[1:3]:
        disk.flip(segment.path, 90, 5)
    log = reopened(disk)
    fourth = log.segments[3].from_offset
    written_ns = log.message(fourth).timestamp_ns
    assert log.retain(180, written_ns + SECOND - 1, SECOND, 10**9) == 0
    assert log.retain(180, written_ns + SECOND, SECOND, 10**9) == 3
    assert log.start_offset == fourth


def test_searches_find_messages_before_a_corrupt_segment(disk: SimDisk) -> None:
    closed_log(disk)
    log = reopened(disk)
    ids = [log.message(n).id for n in range(180)]
    bases = [segment.from_offset for segment in log.segments]
    log.close()
    intact = [True] * 180
    for base in bases[1:-1]:
        corrupt(disk, base)
        intact[base : base + 3] = [False] * 3
        log = reopened(disk)
        assert [log.find_id(id) for id in ids] == [n if intact[n] else None for n in range(180)]
        for second in range(60):
            found = log.find_time(NOW_NS + second * SECOND)
            # Nothing is skipped.
            assert found <= min(n for n in range(3 * second, 180) if intact[n])
            assert found >= 3 * second
        log.close()


def test_writing_goes_on_behind_a_corrupt_batch_when_the_end_is_sound(disk: SimDisk) -> None:
    closed_log(disk)
    corrupt(disk, 175)
    log = reopened(disk)
    assert [(start, end) for start, end, _ in log.damaged] == [(174, 177)]
    assert log.refusal is None
    Writer(log).fill(4)
    with pytest.raises(LogDamaged):
        log.read(175, 1000)
    assert bodies_from(log, 177) == [body(n) for n in range(177, 192)]
    log.validate()
    log.close()
    log = reopened(disk)
    assert bodies_from(log, 177) == [body(n) for n in range(177, 192)]


def test_an_unfinished_write_behind_a_corrupt_batch_is_cut(disk: SimDisk) -> None:
    log, writer = new_log(disk, PATH)
    writer.fill(4)
    log.sync()
    writer.fill(2)  # the fifth batch says that the fourth was synced
    path = log.segments[0].path
    end = len(disk.content(path).rstrip(b"\0"))
    disk.kill()
    disk.flip(path, 90, 5)
    disk.replace(path, disk.content(path)[: end - 8])  # and the last one is torn
    log = reopened(disk)
    assert [(start, end) for start, end, _ in log.damaged] == [(0, 3)]
    assert log.refusal is None
    assert log.removed_tail is not None
    assert log.written_end == 15
    Writer(log).fill(1)
    assert bodies_from(log, 3) == [body(n) for n in range(3, 18)]


def test_damage_at_the_end_stops_writing_and_changes_nothing(disk: SimDisk) -> None:
    closed_log(disk)
    for offset in (175, 178):
        corrupt(disk, offset)
    before = contents(disk)
    log = reopened(disk)
    assert [(start, end) for start, end, _ in log.damaged] == [(174, 180)]
    assert log.removed_tail is None
    assert (log.written_end, log.synced_end) == (180, 180)
    with pytest.raises(LogDamaged) as caught:
        Writer(log).fill(1)
    assert (caught.value.from_offset, caught.value.to_offset) == (174, 180)
    with pytest.raises(LogDamaged):
        log.read(175, 1000)
    assert [log.message(n).body for n in range(165, 174)] == [body(n) for n in range(165, 174)]
    log.mark(NOW_NS + 10**6 * SECOND)
    log.close()
    assert contents(disk) == before


def test_a_missing_newest_segment_is_damage(disk: SimDisk) -> None:
    *_, last = closed_log(disk)
    first_lost = last.from_offset
    disk.unlink(last.path)
    log = reopened(disk)
    assert [(start, end) for start, end, _ in log.damaged] == [(first_lost, 180)]
    assert [log.message(n).body for n in range(log.start_offset, first_lost)] == [
        body(n) for n in range(first_lost)
    ]
    with pytest.raises(LogDamaged):
        log.read(first_lost, 100)


def test_a_segment_missing_in_the_middle_is_named_when_it_is_read(disk: SimDisk) -> None:
    lost = closed_log(disk)[1]
    start, end = lost.from_offset, lost.to_offset
    disk.unlink(lost.path)
    log = reopened(disk)
    with pytest.raises(LogDamaged) as caught:
        log.read(start + 1, 100)
    assert (caught.value.from_offset, caught.value.to_offset) == (start, end)
    assert bodies_from(log, end) == [body(n) for n in range(end, 180)]


@pytest.mark.parametrize("what", ["missing", "short", "junk", "of another log"])
def test_a_wrong_index_is_put_right(disk: SimDisk, what: str) -> None:
    closed_log(disk)
    indexes = [f"{PATH}/{n}" for n in sorted(disk.listdir(PATH)) if n.endswith(".index")]
    intact = {path: disk.content(path) for path in indexes}
    for path in indexes:
        content = intact[path]
        if what == "missing":
            disk.unlink(path)
        elif what == "short":
            disk.replace(path, content[:40])
        elif what == "junk":
            disk.replace(path, content[:32] + b"\xff" * (len(content) - 32))
        else:  # plausible as a table, and wrong in every entry but the first
            wrong = bytearray(content)
            for at in range(32, len(wrong), 32):
                wrong[at : at + 8] = (int.from_bytes(wrong[at : at + 8], "little") + 1).to_bytes(
                    8, "little"
                )
            disk.replace(path, bytes(wrong))
    log = reopened(disk)
    for offset in range(180):
        message = log.message(offset)
        assert message.body == body(offset)
        assert log.find_id(message.id) == offset
        assert log.find_time(message.timestamp_ns) == offset // 3 * 3
    log.close()
    assert {path: disk.content(path) for path in indexes} == intact


def test_a_disk_that_does_not_read_is_an_error_of_ours(disk: SimDisk) -> None:
    closed_log(disk)
    log = reopened(disk)
    disk.inject(Fault("read"))
    with pytest.raises(StorageError, match="cannot be read"):
        log.read(0, 100)
    assert bodies_from(log, 0)[:3] == [body(n) for n in range(3)]
    log.close()
    disk.inject(Fault("read", path_part=".log"))
    with pytest.raises(StorageError, match="cannot be opened"):
        reopened(disk)


# --- the list ---


def test_ranges_that_touch_become_one() -> None:
    known = DamageList([(30, 40, "a"), (10, 20, "a")])
    received: list[Damage] = []
    known.on_added = received.append
    known.add(12, 15, "another reason")  # inside: nothing new
    assert (received, known.ranges) == ([], [(10, 20, "a"), (30, 40, "a")])
    known.add(20, 25, "b")
    assert known.ranges == [(10, 20, "a"), (20, 25, "b"), (30, 40, "a")]
    known.add(20, 30, "a")
    assert known.ranges == list(known) == [(10, 40, "a"), (20, 25, "b")]
    assert received == [(20, 25, "b"), (10, 40, "a")]
    assert len(known) == 2


def test_damaged_ranges_are_half_open_and_go_with_retention() -> None:
    known = DamageList([(10, 20, "a"), (30, 40, "b")])
    assert [offset for offset in (9, 10, 19, 20, 39, 40) if known.holds(offset)] == [10, 19, 39]
    known.forget(0, 20)
    assert known.ranges == [(30, 40, "b")]


def test_lost_ranges_are_reported_where_replicas_may_have_them() -> None:
    known = DamageList(lost=[LostRange(10, 20, "given up", 0), LostRange(20, 25, "later", 0)])
    known.lost_is_news = True
    known.add(12, 20, "a")
    assert known.ranges == [(12, 20, "a")]
    assert [known.given_up_until(offset) for offset in (9, 10, 24, 25)] == [9, 25, 25, 25]
