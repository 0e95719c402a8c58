"""Our data path becomes one that an official nsqd can be started on."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from broker.staging import block, commit, put
from broker.world import World
from cases import examples
from penstock import limits
from penstock.broker.topics.topic_file import read_topic_file, write_topic_file
from penstock.errors import DirectoryLocked, StorageError
from penstock.takeover.diskqueue import OldChannel, OldTopic, Record, list_old_files, read_metadata
from penstock.takeover.diskrecords import Tally, read_queue
from penstock.takeover.takeover import Takeover
from penstock.takeover.topicbuild import BuildSettings
from penstock.takeover.writeback import WriteBack, WriteBackReport
from sim.clock import START_WALL_NS, FakeClock
from sim.disk import Fault, SimDisk

from .olddata import records, write_old_path
from .oldworld import PATH, open_world, served, tree

pytestmark = pytest.mark.usefixtures("quiet")

BACK = "/back"


@pytest.fixture
def world() -> Iterator[World]:
    disk = SimDisk()
    disk.mkdir(PATH)
    world = open_world(disk)
    yield world
    world.close()


def write_back(disk: SimDisk, file_bytes_max: int = 1 << 20) -> WriteBackReport:
    return WriteBack(disk, PATH, BACK, START_WALL_NS, file_bytes_max).run()


def queues_of(disk: SimDisk) -> dict[str, list[Record]]:
    found = {}
    for files in list_old_files(disk.listdir(BACK)).queues:
        tally = Tally()
        found[files.name] = list(read_queue(disk, BACK, files, tally))
        assert tally.bad_bytes == 0
        assert tally.expected_depth == tally.messages
    return found


def bodies_and_attempts(given_records: list[Record]) -> list[tuple[bytes, int]]:
    return [(one.body, one.attempts) for one in given_records]


def test_each_channel_gets_what_it_still_wants(world: World) -> None:
    topic = world.broker.topic("t")
    topic.channel("a")
    topic.channel("b").set_paused(True)
    world.publish("t", b"0", b"1", b"2", b"3", b"4")
    consumer = world.consumer("t", "a", rdy=4)
    first = consumer.take()
    consumer.finish(first[0], first[2])
    consumer.requeue(first[1])  # waits, with one attempt behind it; then it flies again
    world.broker.topic("x#ephemeral").channel("c")
    world.broker.topic("alone")
    world.publish("alone", b"kept")
    world.close()
    report = write_back(world.disk)
    found = queues_of(world.disk)
    assert found["t"] == []
    assert sorted(bodies_and_attempts(found["t:a"])) == [(b"1", 2), (b"3", 1), (b"4", 1)]
    assert bodies_and_attempts(found["t:b"]) == [(b"%d" % n, 0) for n in range(5)]
    assert {one.id for one in found["t:b"]} >= {one.id for one in found["t:a"]}
    assert bodies_and_attempts(found["alone"]) == [(b"kept", 0)]
    assert report.messages == 9
    metadata = read_metadata(world.disk, BACK, "nsqd.dat")
    assert metadata.topics == [
        OldTopic("alone", False, []),
        OldTopic("t", False, [OldChannel("a"), OldChannel("b", True)]),
    ]


def test_a_paused_topic_keeps_its_queue(world: World) -> None:
    topic = world.broker.topic("t")
    topic.channel("a")
    world.publish("t", b"before")
    topic.set_paused(True)
    world.publish("t", b"after")
    world.close()
    write_back(world.disk)
    found = queues_of(world.disk)
    assert [one.body for one in found["t"]] == [b"after"]
    assert [one.body for one in found["t:a"]] == [b"before"]


def test_delays_are_lost_and_counted(world: World) -> None:
    world.broker.topic("t").channel("a")
    world.publish("t", b"later", due_ns=START_WALL_NS + 60 * limits.SECOND)
    world.publish("t", b"put off")
    consumer = world.consumer("t", "a")
    (message,) = consumer.take()
    consumer.requeue(message, 60 * limits.SECOND)
    world.close()
    report = write_back(world.disk)
    assert [(q.name, q.messages, q.delayed) for q in report.topics[0].queues] == [
        ("t:a", 2, 2),
        ("t", 0, 0),
    ]
    assert sorted(bodies_and_attempts(queues_of(world.disk)["t:a"])) == [
        (b"later", 0),
        (b"put off", 1),
    ]


def test_damage_is_left_out_and_reported(world: World) -> None:
    world.broker.topic("t").channel("a")
    for number in range(3):
        world.publish("t", b"message %d" % number)
    world.close()
    path = f"{PATH}/topics/t/0/{0:020}.log"
    world.disk.flip(path, world.disk.content(path).index(b"message 1"), 3)
    report = write_back(world.disk)
    assert report.topics[0].damaged == [(0, 1, 2)]
    assert [one.body for one in queues_of(world.disk)["t:a"]] == [b"message 0", b"message 2"]


def test_a_live_directory_and_a_topic_of_a_cluster_are_refused(world: World) -> None:
    world.broker.topic("t")
    with pytest.raises(DirectoryLocked):
        write_back(world.disk)
    assert world.disk.listdir("/") == ["p"]
    world.close()
    directory = f"{PATH}/topics/t"
    file = replace(read_topic_file(world.disk, directory), version=3, replicated=True)
    write_topic_file(world.disk, directory, file)
    with pytest.raises(StorageError, match="of a cluster"):
        write_back(world.disk)


def test_a_target_that_holds_something_is_refused(world: World) -> None:
    world.close()
    world.disk.mkdir(BACK + "/x")
    with pytest.raises(StorageError, match="is there already"):
        write_back(world.disk)
    with pytest.raises(StorageError, match="no data path of Penstock"):
        WriteBack(world.disk, BACK, "/y", 0).run()


def test_an_unfinished_take_over_is_refused() -> None:
    disk = SimDisk()
    write_old_path(disk, PATH, {"t:a": records([1])})
    disk.inject(Fault("mkdir", path_part="nsqd-old"))
    with pytest.raises(StorageError):
        Takeover(disk, PATH, PATH, BuildSettings(0, FakeClock())).run()
    with pytest.raises(StorageError, match="is not finished"):
        write_back(disk)


def test_an_unfinished_commit_is_refused(world: World) -> None:
    put(world, "t", block("x", b"1"))
    fault = world.disk.inject(Fault("write", path_part="topics/", times=0))
    commit(world, "app", 0, ("t", "x"))
    assert fault.failed
    world.disk.kill()
    with pytest.raises(StorageError, match="a commit of staged blocks is not finished"):
        write_back(world.disk)
    world = open_world(world.disk)
    world.close()
    assert [one.messages for one in write_back(world.disk).topics[0].queues] == [1]


def test_an_error_leaves_no_target_and_the_next_run_makes_one(world: World) -> None:
    world.broker.topic("t").channel("a")
    world.publish("t", b"m")
    world.close()
    before = tree(world.disk, PATH)
    for skip in range(100):
        fault = world.disk.inject(Fault("create", path_part=BACK, skip=skip))
        if skip == 0:
            with pytest.raises(StorageError, match="cannot be written"):
                write_back(world.disk)
        else:
            try:
                write_back(world.disk)
            except StorageError:
                assert not world.disk.exists(BACK)
        if not fault.failed:
            break
        world.disk.faults.clear()
    assert skip > 2
    assert [one.body for one in queues_of(world.disk)["t:a"]] == [b"m"]
    assert tree(world.disk, PATH).keys() == before.keys()


@settings(max_examples=examples(60), deadline=None)
@given(st.integers(0, 1 << 30))
def test_any_history_comes_back(seed: int) -> None:
    """What channels want after a history is the same by our own restart and by nsqd's files."""
    rng = random.Random(seed)
    disk = SimDisk()
    disk.mkdir(PATH)
    world = open_world(disk, durability=rng.choice(["os", "disk"]))
    names = ["a", "b"][: rng.randint(1, 2)]
    for name in names:
        world.broker.topic("t", rng.choice([1, 3])).channel(name)
    for _ in range(rng.randint(1, 12)):
        world.publish("t", *(rng.randbytes(8) for _ in range(rng.randint(1, 4))))
        consumer = world.consumer("t", rng.choice(names), rdy=rng.randint(1, 5))
        for message in consumer.take():
            if rng.random() < 0.5:
                consumer.finish(message)
            elif rng.random() < 0.4:
                consumer.requeue(message)
        consumer.leave()
        if rng.random() < 0.3:
            world.close()
            world = open_world(disk)
    world.close()
    write_back(disk, 200)
    assert served(disk) == served(disk, BACK)
