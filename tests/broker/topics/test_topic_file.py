"""A topic.json that cannot be written: health names it until the disk has taken it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cases import each
from penstock import limits
from penstock.broker.channels.skips import ANY, Skipped
from penstock.broker.topics import topic_file as topicfile
from penstock.broker.topics.directories import remove_tree
from penstock.broker.topics.settings import TopicSettings
from penstock.broker.topics.topic_file import (
    TOPIC_FILE,
    ChannelEntry,
    TopicFile,
    read_node_file,
    read_topic_file,
    write_topic_file,
)
from penstock.errors import StorageError
from penstock.log.disk import File, OsDisk
from penstock.log.seal import seal, unseal
from sim.disk import Fault, SimDisk

from ..world import Start, World, bodies


def state(world: World) -> tuple[Any, ...]:
    topic = world.broker.find_topic("t")
    channels = [(one.name, one.paused, one.skips.state.whole) for one in topic.channels.values()]
    return topic.paused, topic.settings, topic.leader().group.state.rule.waits, channels


CHANGES: dict[str, Callable[[World], object]] = {
    "a bound": lambda world: world.broker.topic("t").configure({"max_depth": 1}),
    "durability": lambda world: world.broker.topic("t").configure({"durability": "os"}),
    "a channel": lambda world: world.broker.topic("t").channel("new"),
    "a channel's end": lambda world: world.broker.topic("t").delete_channel("c"),
    "a pause": lambda world: world.broker.topic("t").set_paused(True),
    "a channel's pause": lambda world: world.channel("t", "c").set_paused(True),
    "a channel's skip": lambda world: world.channel("t", "c").skips.change(Skipped().begun(ANY, 1)),
    "a deletion": lambda world: world.broker.delete_topic("t"),
}


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_refused_change_is_named_until_the_file_is_written(
    simulate: Start, change: str, call: str
) -> None:
    world = simulate()
    world.broker.topic("t").channel("c")
    world.publish("t", b"1")
    before = state(world)
    assert before == (False, TopicSettings(), True, [("c", False, False)])
    world.fail(call, TOPIC_FILE if call != "sync_directory" else "topics/t")
    with pytest.raises(StorageError):
        CHANGES[change](world)
    assert state(world) == before
    for _ in range(3):
        assert world.broker.health.startswith("NOK - topic t: ")
        assert TOPIC_FILE in world.broker.health
        world.pass_ns(limits.SECOND)
    world.disk.faults.clear()
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    world = world.killed()
    assert state(world) == before
    assert bodies(world.consumer("t", "c").take()) == [b"1"]


def test_a_failed_rollback_is_completed_later(simulate: Start, disk: SimDisk) -> None:
    world = simulate()
    topic = world.broker.topic("t")
    world.fail("sync_directory", "topics/t")
    create = disk.create

    def create_once(path: str) -> File:
        file = create(path)
        if TOPIC_FILE in path:
            world.fail("create", TOPIC_FILE)  # so the old content cannot be put back
        return file

    disk.create = create_once  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        world.broker.delete_topic("t")
    disk.create = create  # type: ignore[method-assign]
    assert read_topic_file(disk, topic.directory).deleted
    disk.faults.clear()
    world.pass_ns(limits.SECOND)
    assert not read_topic_file(disk, topic.directory).deleted
    assert world.broker.health == "OK"


def test_a_file_that_no_start_could_read_is_no_trouble_of_the_disk(world: World) -> None:
    topic = world.broker.topic("t")
    with pytest.raises(StorageError):
        topic.configure({"max_depth": "many"})
    assert world.broker.health == "OK"
    assert topic.settings == TopicSettings()


# --- the small JSON files, and what is refused of them ---


FILE = TopicFile(
    name="news",
    identity="000-17",
    created_ns=17,
    paused=True,
    channel_number_next=4,
    settings=TopicSettings(durability="os"),
    channels=[ChannelEntry("a", 3, 18, True)],
)


@pytest.mark.parametrize(
    "change",
    [
        {"version": 4},
        {"later": 1},
        {"name": 5},
        {"settings": {"durability": "maybe"}},
        {"settings": {"max_depth": -1}},
        {"settings": {"other": 1}},
        {"channels": [{"name": "a"}]},
        {"partitions": 0},
        {"partitions": 256},
        {"partitions": 2, "hash_partitions": 3},
        {"partitions": 2, "hash_partitions": 0},
    ],
)
def test_unknown_content_is_refused(tmp_path: Path, change: dict[str, object]) -> None:
    write_topic_file(OsDisk(), str(tmp_path), FILE)
    path = tmp_path / "topic.json"
    content = {**json.loads(unseal(path.read_bytes())), **change}
    path.write_bytes(seal(json.dumps(content).encode()))
    with pytest.raises(StorageError):
        read_topic_file(OsDisk(), str(tmp_path))


@each("wrong", [{"max_depth": 1 << 63}, {"trace_rate": 2.0}, {"durability": "ram"}])
def test_unreadable_settings_are_not_written(tmp_path: Path, wrong: dict[str, Any]) -> None:
    write_topic_file(OsDisk(), str(tmp_path), FILE)
    changed = msgspec.structs.replace(FILE, settings=TopicSettings(**wrong))
    with pytest.raises(StorageError, match="would not be valid"):
        write_topic_file(OsDisk(), str(tmp_path), changed)
    assert read_topic_file(OsDisk(), str(tmp_path)) == FILE


def test_a_file_that_would_be_too_large_to_read_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topicfile, "_DOCUMENT_BYTES_MAX", 100)
    with pytest.raises(StorageError, match="larger than 100 bytes"):
        write_topic_file(OsDisk(), str(tmp_path), FILE)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot be read"):
        read_node_file(OsDisk(), str(tmp_path))


# --- topics that cannot be made ---


CREATION_FAULTS = [
    ("create", "topics/t/0/"),
    ("write", "topics/t/0/mark"),
    ("sync", "topics/t/0/"),
    ("sync_directory", "topics/t"),
    ("create", "topic.json"),
    ("sync", "topic.json"),
    ("rename", "topic.json"),
    ("sync_directory", "/topics"),
]


def fail_to_make(world: World) -> None:
    with pytest.raises(StorageError):
        world.broker.topic("t")
    assert world.broker.topics == {}


@pytest.mark.parametrize("fault", CREATION_FAULTS)
def test_leftovers_of_a_failed_creation_do_not_stop_a_start(
    simulate: Start, fault: tuple[str, str]
) -> None:
    world = simulate()
    world.fail(*fault)
    world.fail("unlink", "topics/t")
    fail_to_make(world)
    world.pass_ns(limits.SECOND)
    world.disk.faults.clear()
    world = world.killed()
    assert world.broker.health == "OK"
    assert world.publish("t", b"1").stored


def test_retries_of_very_many_files_are_bounded(simulate: Start) -> None:
    world = simulate()
    fault = world.fail("rename", "topic.json")
    for number in range(limits.TOPICS_RETRIED_MAX + 5):
        with pytest.raises(StorageError):
            world.broker.topic(f"t{number}")
    fault.failed = 0
    world.pass_ns(limits.SECOND)
    assert fault.failed == limits.TOPICS_RETRIED_MAX
    world.disk.faults.clear()
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    assert world.disk.listdir("/data/topics") == []


@pytest.mark.parametrize("fault", [("unlink", "topics/t/0/"), ("unlink", "topic.json")])
def test_files_of_a_deleted_topic_are_named_until_they_are_gone(
    simulate: Start, fault: tuple[str, str]
) -> None:
    world = simulate()
    world.publish("t", b"1")
    world.fail(*fault)
    world.broker.delete_topic("t")
    for _ in range(3):
        assert "topic t: files of the deleted topic are left" in world.broker.health
        world.pass_ns(limits.SECOND)
    world.disk.faults.clear()
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    assert not world.disk.exists("/data/topics/t")


def test_a_topic_that_is_made_again_keeps_its_files(simulate: Start) -> None:
    world = simulate()
    world.publish("t", b"old")
    world.fail("unlink", ".log")
    world.broker.delete_topic("t")
    fail_to_make(world)  # its directory cannot be cleared
    world.pass_ns(limits.SECOND)
    world = world.killed()  # the deletion is decided: no start brings it back, or stumbles on it
    assert "files of the deleted topic are left" in world.broker.health
    assert world.broker.topics == {}
    world.disk.faults.clear()
    assert world.publish("t", b"new").stored
    assert world.broker.health == "OK"
    world.pass_ns(limits.SECOND)
    world = world.killed()
    assert bodies(world.consumer("t", "c").take()) == [b"new"]


def test_the_last_file_outlives_an_interrupted_removal(disk: SimDisk) -> None:
    disk.mkdir("/data/t/z/deep")
    for name in ("a", "b", "last", "z/c", "z/deep/d"):
        disk.create(f"/data/t/{name}")
    disk.inject(Fault("unlink", path_part="deep"))
    with pytest.raises(OSError, match="Input/output"):
        remove_tree(disk, "/data/t", last="last")
    assert disk.exists("/data/t/last")
    remove_tree(disk, "/data/t", last="last")
    assert disk.listdir("/data") == []
