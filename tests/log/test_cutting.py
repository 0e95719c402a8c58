"""Taking away the end of a log, or all of it; and what of it stays to be seen."""

import random

import pytest

from penstock import limits
from penstock.errors import LogDamaged, PartitionStopped, StorageError, WriteRefused
from penstock.kernel import decode_bodies, decode_header
from penstock.log import names
from penstock.log.damage import LostRange, read_lost, write_lost
from penstock.log.errors import CutRefused
from penstock.log.head import HEAD_BYTES, LogOwner, decode_head
from penstock.log.inspect import dump_file, find
from penstock.log.partition import PartitionLog
from penstock.log.segment import LogSettings
from penstock.log.verify import verify
from sim.disk import Call, Fault, SimDisk

from .helpers import NOW_NS, PATH, SMALL, Writer, bodies_from, body, contents, corrupt, durable_disk

OWNER = LogOwner("orders", 0, "005-18a26f9ac7a69000")


def filled(disk: SimDisk, batches: int = 60) -> PartitionLog:
    """Three messages a batch, an epoch every ten batches."""
    log = PartitionLog.create(disk, PATH, SMALL, OWNER)
    writer = Writer(log)
    for number in range(batches):
        end = log.written_end
        bodies = [body(end + n) for n in range(3)]
        writer.write(bodies, NOW_NS + number, epoch=number // 10 + 1, synced_end=0)
    return log


def files(disk: SimDisk) -> list[str]:
    return sorted(name for name in disk.listdir(PATH) if names.cut_number(name) is not None)


def kept_bodies(disk: SimDisk) -> dict[int, bytes]:
    """What the files of cuts hold, by offset."""
    found: dict[int, bytes] = {}
    for name in files(disk):
        content = disk.content(f"{PATH}/{name}")
        head = decode_head(content[:HEAD_BYTES])
        assert head is not None
        assert head.owner == OWNER
        assert f"{head.base_offset:020d}" in name
        position = HEAD_BYTES
        while position < len(content):
            header = decode_header(content, position)
            for n, one in enumerate(decode_bodies(content, position)):
                found[header.base_offset + n] = one
            position += header.length
    return found


def assert_is_cut(log: PartitionLog, offset: int) -> None:
    assert (log.written_end, log.synced_end, log.unsynced_bytes) == (offset, offset, 0)
    assert bodies_from(log, log.start_offset) == [body(n) for n in range(offset)]
    assert log.epochs() == tuple((n // 30 + 1, n) for n in range(0, offset, 30))
    if offset:
        assert log.last() == log.batch_at(offset - 1)[0]
        assert log.last_timestamp_ns == NOW_NS + offset // 3 - 1
    else:
        assert log.last() == (0, 0, 0)
    log.validate()


@pytest.mark.parametrize("synced", [False, True])
@pytest.mark.parametrize("offset", [0, 3, 60, 90, 93, 147, 177, 180])
def test_a_cut_log_is_as_if_the_rest_had_never_been(
    disk: SimDisk, offset: int, synced: bool
) -> None:
    log = filled(disk)
    if synced:
        log.sync()
        log.mark(NOW_NS + 10 * limits.SECOND)
    log.epochs()
    removed = log.cut(offset)
    assert removed[:2] == (offset, 180)
    if synced or offset < 180:
        assert_is_cut(log, offset)
    assert kept_bodies(disk) == {n: body(n) for n in range(offset, 180)}
    disk.crash(random.Random(offset))
    if synced or offset < 180:
        log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
        assert log.removed_tail is None
        assert_is_cut(log, offset)


def test_no_cut_between_the_messages_of_a_batch(disk: SimDisk) -> None:
    log = filled(disk, 5)
    before = contents(disk)
    for offset in (4, 5, 14, -1, 16):
        with pytest.raises(CutRefused, match=f"no cut at offset {offset}: "):
            log.cut(offset)
    assert log.written_end == 15
    assert contents(disk) == before


def test_only_an_unclean_cut_reaches_below_the_agreed_end(disk: SimDisk) -> None:
    log = filled(disk, 5)
    Writer(log).write([body(15)], epoch=1, synced_end=9)
    with pytest.raises(CutRefused, match="every member has synced all below 9"):
        log.cut(6)
    log.cut(9)
    log.cut(6, unclean=True)
    assert log.agreed_end == 6
    assert_is_cut(log, 6)


def test_no_cut_while_a_sync_is_under_way(disk: SimDisk) -> None:
    log = filled(disk, 5)
    job = log.sync_begin()
    assert job is not None
    with pytest.raises(StorageError, match="under way"):
        log.cut(3)
    with pytest.raises(StorageError, match="under way"):
        log.reset(3)
    job.run()
    log.sync_end(job, None)
    log.cut(3)
    assert_is_cut(log, 3)


# --- what goes wrong ---


@pytest.mark.parametrize("offset", [0, 33, 90, 177])
def test_a_power_loss_in_the_midst_of_a_cut_leaves_a_beginning(offset: int) -> None:
    """Whatever step it comes in, and whatever the headers tell."""
    lengths = set()
    for seed in range(120):
        rng = random.Random(seed)
        disk = durable_disk()
        log = PartitionLog.create(disk, PATH, SMALL, OWNER)
        writer = Writer(log)
        for _ in range(60):
            end = log.written_end
            writer.write([body(end + n) for n in range(3)], epoch=1)
            if rng.random() < 0.3:
                log.sync()
        log.sync()
        log.mark(NOW_NS + 10 * limits.SECOND)
        call: Call = rng.choice(("sync", "sync_directory", "truncate", "unlink", "rename", "write"))
        disk.inject(Fault(call, skip=rng.randint(0, 4), times=0))
        try:
            log.cut(offset, unclean=True)
        except (PartitionStopped, WriteRefused):
            disk.crash(rng)
        else:
            disk.faults.clear()
            disk.crash(rng)
            assert PartitionLog.open(disk, PATH, SMALL, owner=OWNER).written_end == offset
        log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
        assert log.damaged == []
        assert log.stopped is None
        assert offset <= log.written_end <= 180
        assert bodies_from(log, 0) == [body(n) for n in range(log.written_end)]
        lengths.add(log.written_end)
        log.cut(offset, unclean=True)
        assert log.written_end == offset
    assert len(lengths) > 1


def test_a_cut_that_is_not_finished_stops_the_partition(disk: SimDisk) -> None:
    log = filled(disk)
    disk.inject(Fault("truncate", skip=1))
    with pytest.raises(PartitionStopped, match="a cut was not finished"):
        log.cut(0)
    with pytest.raises(PartitionStopped):
        Writer(log).write([b"x"], epoch=9)


def test_a_cut_that_cannot_begin_changes_nothing(disk: SimDisk) -> None:
    log = filled(disk)
    log.sync()
    log.mark(NOW_NS + 10 * limits.SECOND)
    disk.inject(Fault("write", path_part="mark"))
    with pytest.raises(WriteRefused):
        log.cut(90)
    assert log.written_end == 180
    log.cut(90)
    assert_is_cut(log, 90)


def test_no_cut_behind_a_corrupt_batch(disk: SimDisk) -> None:
    filled(disk).close()
    corrupt(disk, 30)
    log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
    with pytest.raises(LogDamaged):
        log.cut(33)
    log.cut(30)
    assert_is_cut(log, 30)
    assert log.damaged == []


def test_a_cut_heals_a_corrupt_end(disk: SimDisk) -> None:
    filled(disk).close()
    corrupt(disk, 179)
    log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
    assert log.refusal is not None
    log.cut(177)
    assert (log.refusal, log.damaged) == (None, [])
    assert_is_cut(log, 177)
    Writer(log).write([b"x"], epoch=9)


def test_lost_ranges_are_forgotten_with_a_cut(disk: SimDisk) -> None:
    filled(disk).close()
    for offset in (30, 60):
        corrupt(disk, offset)
    ranges = [LostRange(30, 33, "rot", NOW_NS), LostRange(60, 63, "rot", NOW_NS)]
    write_lost(disk, PATH, ranges)
    log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
    log.cut(45)
    assert read_lost(disk, PATH) == ranges[:1]
    log.reset(0)
    assert read_lost(disk, PATH) == []
    Writer(log).fill(30)
    log.damage.add(30, 33, "new")
    assert [known[:2] for known in log.damaged] == [(30, 33)]


# --- what is kept ---


def test_kept_cuts_are_bounded_and_the_oldest_goes_first(disk: SimDisk) -> None:
    settings = LogSettings(4096, index_every_bytes=512, cut_kept_bytes_max=6000)
    log = PartitionLog.create(disk, PATH, settings, OWNER)
    writer = Writer(log)
    for round in range(20):
        writer.write([b"%d" % round * 100] * 8, epoch=round)
        log.cut(0)
    total = sum(disk.size(f"{PATH}/{name}") for name in files(disk))
    assert 4000 < total <= 6000
    numbers = sorted(n for name in files(disk) if (n := names.cut_number(name)) is not None)
    assert numbers == list(range(20 - len(numbers), 20))


def test_kept_cuts_go_when_the_log_begins_above_them(disk: SimDisk) -> None:
    log = filled(disk)
    log.cut(150)
    writer = Writer(log)
    for _ in range(60):
        writer.write([body(n) for n in range(3)], epoch=9)
    log.sync()
    for floor, is_kept in ((150, True), (log.written_end, False)):
        log.retain(floor, NOW_NS + 10**6 * limits.SECOND, 0, 0)
        assert bool(files(disk)) is is_kept


def test_nothing_is_kept_on_a_disk_that_is_almost_full(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = filled(disk)
    disk.capacity_bytes = disk.used_bytes() + 5000
    monkeypatch.setattr(limits, "DISK_FREE_BYTES_MIN", 6000)
    assert log.cut(90).kept == ()
    assert files(disk) == []
    assert_is_cut(log, 90)


def test_a_file_of_a_cut_can_be_looked_at(disk: SimDisk) -> None:
    log = filled(disk, 10)
    (path,) = log.cut(21).kept
    log.close()
    assert [one["offset"] for one in dump_file(disk, path)] == list(range(21, 30))
    assert verify(disk, find(disk, path)).findings == []
    assert [note.reason for note in verify(disk, find(disk, PATH)).notes] == [
        "ignored: what a cut has removed"
    ]


# --- a log that begins elsewhere ---


@pytest.mark.parametrize("start", [0, 60, 100, 180, 5000])
def test_a_log_that_is_reset_is_empty_at_its_new_start(disk: SimDisk, start: int) -> None:
    log = filled(disk)
    log.sync()
    log.retain(90, NOW_NS + 10**6 * limits.SECOND, 0, 0)
    assert 0 < log.start_offset <= 90
    last_id = log.last_id
    first = log.start_offset
    removed = log.reset(start)
    assert (removed.from_offset, removed.to_offset) == (first, 180)
    is_kept = start < 180  # what lies below the new start, retention has removed elsewhere
    assert kept_bodies(disk) == {n: body(n) for n in range(first, 180) if is_kept}
    for _ in range(2):
        assert (log.start_offset, log.written_end, log.synced_end) == (start, start, start)
        assert (log.epochs(), log.last()) == ((), (0, start, 0))
        assert log.last_id == last_id
        log.validate()
        disk.crash(random.Random(start))
        log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
    Writer(log).write([b"new"], epoch=1)
    assert log.epochs() == ((1, start),)
    log.close()
    assert verify(disk, find(disk, PATH)).findings == []


def test_an_unclean_reset_keeps_the_discarded_messages(disk: SimDisk) -> None:
    log = filled(disk)
    log.reset(5000, unclean=True)
    assert kept_bodies(disk) == {n: body(n) for n in range(180)}


def test_a_recycled_file_never_brings_back_offsets_of_a_log_that_was_reset(disk: SimDisk) -> None:
    """Retention makes spares of offsets that a log which begins lower will have again."""
    log = filled(disk)
    log.sync()
    log.retain(120, NOW_NS + 10**6 * limits.SECOND, 0, 0)
    assert any(names.kind_of(name) == "spare" for name in disk.listdir(PATH))
    log.reset(0)
    assert not any(names.kind_of(name) == "spare" for name in disk.listdir(PATH))
    Writer(log).write([b"new"], epoch=9)
    log.sync()
    disk.kill()
    log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
    assert bodies_from(log, 0) == [b"new"]


@pytest.mark.parametrize("start", [0, 60, 5000])
def test_a_power_loss_in_the_midst_of_a_reset_damages_nothing(start: int) -> None:
    starts = set()
    for seed in range(120):
        rng = random.Random(seed)
        disk = durable_disk()
        log = filled(disk, 40)
        log.sync()
        log.mark(NOW_NS + 10 * limits.SECOND)
        log.retain(50, NOW_NS + 10**6 * limits.SECOND, 0, 0)
        old_start = log.start_offset
        calls: tuple[Call, ...] = ("sync", "sync_directory", "create", "unlink", "rename", "write")
        disk.inject(Fault(rng.choice(calls), skip=rng.randint(0, 6), times=0))
        try:
            log.reset(start)
        except (PartitionStopped, WriteRefused):
            disk.crash(rng)
        else:
            disk.crash(rng)
            log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
            assert (log.start_offset, log.written_end) == (start, start)
        log = PartitionLog.open(disk, PATH, SMALL, owner=OWNER)
        assert (log.damaged, log.refusal, log.stopped) == ([], None, None)
        assert log.start_offset in (old_start, start)
        starts.add(log.start_offset)
        wanted = [body(n) for n in range(log.start_offset, log.written_end)]
        assert bodies_from(log, log.start_offset) == wanted
        log.reset(start)
        assert (log.start_offset, log.written_end) == (start, start)
    assert len(starts) == 2


def test_a_start_that_was_decided_elsewhere_removes_whole_segments(disk: SimDisk) -> None:
    log = filled(disk)
    assert log.drop_below(180) == 0  # what is not synced is not removed
    log.sync()
    bases = [info.from_offset for info in log.segments]
    assert log.drop_below(bases[1] - 1) == 0
    assert log.drop_below(bases[2] + 1) == 2
    assert log.start_offset == bases[2]
    assert log.epochs()[0].first_offset == bases[2]
    assert log.drop_below(bases[2] + 1) == 0
    assert bodies_from(log, bases[2]) == [body(n) for n in range(bases[2], 180)]
    disk.crash(random.Random(1))
    assert PartitionLog.open(disk, PATH, SMALL, owner=OWNER).start_offset == bases[2]
