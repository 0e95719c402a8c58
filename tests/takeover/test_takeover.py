"""The data path of an official nsqd becomes ours."""

import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.tripwire import Stop, Tripwire
from cases import each, examples, seeds
from penstock.errors import DirectoryLocked, StorageError
from penstock.log.disk import OsDisk
from penstock.log.segment import LogSettings
from penstock.takeover import topicbuild
from penstock.takeover.diskqueue import Record
from penstock.takeover.takeover import Takeover
from penstock.takeover.topicbuild import BuildSettings, Progress
from sim.clock import START_WALL_NS, FakeClock
from sim.disk import Call, Fault, SimDisk

from .olddata import joined, record, records, write_file, write_old_path, write_queue
from .oldworld import PATH, everything, expected, open_world, served, tree

pytestmark = pytest.mark.usefixtures("quiet")

SEVERAL = {
    "orders": records([20, 21]),
    "orders:mail": records(range(8)),
    "orders:stock": [*records(range(4, 10)), record(30, attempts=3)],
    "empty:idle": [],
    "lone": records(range(50, 55)),
    "none": [],
}


def settings_of(**values: object) -> BuildSettings:
    return BuildSettings(node_id=5, clock=FakeClock(), **values)  # type: ignore[arg-type]


def take_over(disk: SimDisk, **values: object) -> None:
    Takeover(disk, PATH, PATH, settings_of(**values)).run()


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    write_old_path(disk, PATH, SEVERAL, paused=["orders:mail"])
    return disk


# --- what comes over ---


def test_the_old_files_are_kept_aside(disk: SimDisk) -> None:
    before = tree(disk, PATH)
    open_world(disk).close()
    moved = {path.replace("/nsqd-old/", "/"): data for path, data in tree(disk, PATH).items()}
    assert before.items() <= moved.items()
    assert {name for name in disk.listdir(PATH) if "nsqd" in name} == {"nsqd-old"}
    assert "takeover-report.json" in disk.listdir(PATH)
    assert not {"takeover.tmp", "takeover.json"} & set(disk.listdir(PATH))


def test_new_ids_are_above_those_that_came_in() -> None:
    disk = SimDisk()
    ahead = record(1)._replace(id=((START_WALL_NS + 10**9 >> 20) - 1288834974288) << 22)
    broken = record(2)._replace(id=0x7FFF_FFFF_FFFF_FFFF)
    write_old_path(disk, PATH, {"t:a": [ahead, broken]})
    world = open_world(disk)
    world.publish("t", b"new")
    found = {one.body: one.id for one in everything(world)["t:a"]}
    assert ahead.id < found[b"new"] < broken.id
    world.close()


def test_a_message_whose_id_is_lost_gets_another() -> None:
    disk = SimDisk()
    write_old_path(disk, PATH, {"t:a": []})
    data = bytearray(joined([record(1, b"body")]))
    data[20] = 0
    write_file(disk, PATH, "t:a.diskqueue.000000.dat", bytes(data))
    world = open_world(disk)
    (found,) = everything(world)["t:a"]
    assert (found.timestamp_ns, found.body) == (record(1).timestamp_ns, b"body")
    world.close()


def test_queues_that_nsqd_dat_does_not_name(disk: SimDisk) -> None:
    write_queue(disk, PATH, "orders:lost", records([1]))
    write_queue(disk, PATH, "orders:gone", [])
    write_queue(disk, PATH, "unknown", records([2]))
    write_queue(disk, PATH, "unknown:x#ephemeral", records([2]))
    world = open_world(disk)
    found = everything(world)
    assert found["orders:lost"] == sorted([*records([1]), *SEVERAL["orders"]])
    assert found["unknown"] == records([2])
    assert "orders:gone" not in found
    assert "unknown:x#ephemeral" not in found
    world.close()


def test_without_nsqd_dat_files_name_the_channels(disk: SimDisk) -> None:
    disk.unlink(f"{PATH}/nsqd.dat")
    assert served(disk) == expected(SEVERAL)


def test_sorting_with_files_and_small_segments(
    disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topicbuild, "PART_BYTES", 100)
    monkeypatch.setattr(topicbuild, "BUFFER_BYTES", 50)
    reply: list[Progress] = []
    take_over(disk, log=LogSettings(segment_bytes_max=500), on_progress=reply.append)
    assert reply[-1].bytes_done == reply[-1].bytes_total
    assert served(disk) == expected(SEVERAL)


# --- what is refused ---


def test_while_nsqd_runs(disk: SimDisk) -> None:
    disk.lock(PATH)
    before = tree(disk, PATH)
    with pytest.raises(DirectoryLocked, match="official nsqd is running"):
        take_over(disk)
    assert tree(disk, PATH) == before


def test_two_sets_of_data(disk: SimDisk) -> None:
    open_world(disk).close()
    write_queue(disk, PATH, "orders:mail", records([77]))
    with pytest.raises(StorageError, match="and it is unknown which are newer"):
        open_world(disk)


def test_an_nsqd_that_was_started_by_mistake(disk: SimDisk) -> None:
    """It has left an nsqd.dat without topics."""
    open_world(disk).close()
    write_file(disk, PATH, "nsqd.dat", b'{"topics":[],"version":"1.3.0"}')
    assert served(disk) == expected(SEVERAL)
    assert "nsqd.dat" in disk.listdir(PATH)


def test_nsqd_has_run_between_commit_and_end(disk: SimDisk) -> None:
    fault = disk.inject(Fault("rename", path_part="takeover.tmp", skip=4))
    with pytest.raises(StorageError):
        take_over(disk)
    assert fault.failed
    disk.faults.clear()
    write_queue(disk, PATH, "orders:mail", records([77]))
    with pytest.raises(StorageError, match=r"has run here .*orders:mail"):
        open_world(disk)


def test_a_torn_nsqd_dat(disk: SimDisk) -> None:
    write_file(disk, PATH, "nsqd.dat", b'{"topics":[')
    with pytest.raises(StorageError, match=r"nsqd\.dat"):
        take_over(disk)


@each("call", ["write", "create", "sync", "read", "mkdir", "sync_directory"])
def test_an_error_of_the_disk_at_any_point(call: Call) -> None:
    """Before the commit all is as it was, but for what could not even be removed."""
    refused = 0
    for skip in range(1000):
        disk = SimDisk()
        write_old_path(disk, PATH, SEVERAL, paused=["orders:mail"])
        before = tree(disk, PATH)
        fault = disk.inject(Fault(call, skip=skip))
        try:
            take_over(disk)
        except StorageError:
            refused += 1
            if not {"takeover.json", "takeover-report.json"} & set(disk.listdir(PATH)):
                left = {path for path in tree(disk, PATH) if "takeover" not in path}
                assert left == before.keys()
        if not fault.failed:
            break
        disk.faults.clear()
        assert served(disk) == expected(SEVERAL)
    assert refused >= 3


# --- interrupted ---


def interrupted_at(step: int) -> tuple[Tripwire, bool]:
    """A take-over that ends before the change number `step`."""
    disk = Tripwire()
    write_old_path(disk, PATH, SEVERAL, paused=["orders:mail"])
    disk.lock(f"{PATH}/penstock.lock").release()
    disk.calls, disk.last = 0, step
    try:
        take_over(disk, log=LogSettings(segment_bytes_max=300))
    except Stop:
        ended = True
    else:
        ended = False
    disk.last = 0
    return disk, ended


def check_after(disk: Tripwire) -> None:
    world = open_world(disk)
    assert world.broker.find_topic("orders").find_channel("mail").paused
    assert everything(world) == expected(SEVERAL)
    world.close()
    left = set(disk.listdir(PATH))
    assert left == {"penstock.lock", "node.json", "topics", "nsqd-old", "takeover-report.json"}


@each("seed", [None, *seeds(1, 4)])
def test_ended_at_every_step_and_started_again(seed: int | None) -> None:
    """No seed: the process is killed. Else the power goes, and the seed says what is left."""
    step, ended = 0, True
    while ended:
        step += 1
        disk, ended = interrupted_at(step)
        if seed is None:
            disk.kill()
        else:
            disk.crash(random.Random(seed * 1000 + step))
        check_after(disk)
    assert step > 100


class Interrupted(OsDisk):
    """Renames up to one, and no further."""

    def __init__(self, renames: int) -> None:
        super().__init__()
        self.left = renames

    def rename(self, old: str, new: str) -> None:
        if self.left == 0:
            raise Stop
        self.left -= 1
        super().rename(old, new)


def test_the_link_that_nsqd_1_0_leaves(tmp_path: Path) -> None:
    """`nsqd.617.dat` leads to nsqd.dat, and nowhere when that was moved first."""
    path = tmp_path / "data"
    for renames in range(3, 20):
        shutil.rmtree(path, ignore_errors=True)
        write_old_path(OsDisk(), str(path), {"t:a": records([1, 2])})
        (path / "nsqd.617.dat").symlink_to(path / "nsqd.dat")
        try:
            Takeover(Interrupted(renames), str(path), str(path), settings_of()).run()
        except Stop:
            ended = False
        else:
            ended = True
        assert served(OsDisk(), str(path), disk_free_bytes_min=0) == {"t:a": records([1, 2])}
        assert (path / "nsqd-old" / "nsqd.617.dat").is_symlink()
        if ended:
            break
    assert ended
    assert renames > 6


# --- any data ---

NUMBERS = st.lists(st.integers(0, 30), unique=True, max_size=20)
HELD = st.builds(lambda numbers, attempts: records(numbers, attempts), NUMBERS, st.integers(0, 2))
QUEUES = st.dictionaries(
    st.sampled_from(["t", "t:a", "t:b", "t:c", "u", "u:a", ".", "v.diskqueue:x"]), HELD, max_size=6
)


@settings(max_examples=examples(150), deadline=None)
@given(QUEUES, st.integers(30, 400), st.data())
def test_any_data(
    queues: dict[str, list[Record]], file_bytes_max: int, data: st.DataObject
) -> None:
    disk = SimDisk()
    write_old_path(disk, PATH, queues, file_bytes_max=file_bytes_max)
    for name in queues:
        if data.draw(st.booleans()):  # killed before anything was synced
            disk.unlink(f"{PATH}/{name}.diskqueue.meta.dat")
        if data.draw(st.booleans()):
            tail = data.draw(st.sampled_from([b"\0\0", joined([record(99)])[:39], bytes(70)]))
            write_file(disk, PATH, f"{name}.diskqueue.000099.dat", tail)
    found = served(disk)
    for name, wanted in expected(queues).items():
        topic = name.partition(":")[0]
        own = {one.id for one in queues.get(topic, ())}
        held = {one.id: one for one in queues[name]}
        got = found.get(name, [])
        assert [one.id for one in got] == sorted({one.id for one in wanted}), name
        for one in got:  # a message's attempts are the queue's own
            assert one == held.get(one.id, one)
            assert one.id in own or one.id in held
