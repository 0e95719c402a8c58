"""A topic.json that cannot be written: health names it until the disk has taken it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.broker.settings import TopicSettings
from penstock.broker.topicfile import TOPIC_FILE, read_topic_file
from penstock.errors import StorageError
from penstock.log.disk import File

from .faults import FaultyDisk
from .world import World

Start = Callable[..., World]

CHANGES: dict[str, Callable[[World], object]] = {
    "settings": lambda world: world.broker.topic("t").configure({"max_depth": 1}),
    "a channel": lambda world: world.broker.topic("t").channel("new"),
    "a channel's end": lambda world: world.broker.topic("t").delete_channel("c"),
    "a pause": lambda world: world.broker.topic("t").pause(),
    "a deletion": lambda world: world.broker.delete_topic("t"),
}


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_directory"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_refused_change_is_named_until_the_file_is_written(
    start: Start, change: str, call: str
) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    world.broker.topic("t").channel("c")
    disk.fail.add((call, TOPIC_FILE if call != "sync_directory" else "topics/t"))
    with pytest.raises(StorageError):
        CHANGES[change](world)
    for _ in range(3):
        assert world.broker.health.startswith("NOK - topic t: ")
        assert TOPIC_FILE in world.broker.health
        world.pass_ns(limits.SECOND)
    disk.fail.clear()
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    topic = world.killed().broker.find_topic("t")
    assert (topic.paused, topic.settings) == (False, TopicSettings())
    assert list(topic.channels) == ["c"]


def test_what_could_not_be_put_back_is_set_right_later(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    topic = world.broker.topic("t")
    disk.fail.add(("sync_directory", "topics/t"))
    create = disk.create

    def create_once(path: str) -> File:
        file = create(path)
        if TOPIC_FILE in path:
            disk.fail.add(("create", TOPIC_FILE))  # so the old content cannot be put back
        return file

    disk.create = create_once  # type: ignore[method-assign]
    with pytest.raises(StorageError):
        world.broker.delete_topic("t")
    disk.create = create  # type: ignore[method-assign]
    assert read_topic_file(disk, topic.directory).deleted
    disk.fail.clear()
    world.pass_ns(limits.SECOND)
    assert not read_topic_file(disk, topic.directory).deleted
    assert world.broker.health == "OK"


def test_a_file_that_no_start_could_read_is_no_trouble_of_the_disk(start: Start) -> None:
    world = start()
    topic = world.broker.topic("t")
    with pytest.raises(StorageError):
        topic.configure({"max_depth": "many"})
    assert world.broker.health == "OK"
    assert topic.settings == TopicSettings()
