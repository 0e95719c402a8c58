"""Topics that cannot be made, and files of deleted ones that cannot be removed: health names both
until it was done, and a start after a crash finds nothing that it cannot open."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.errors import StorageError

from .faults import FaultyDisk
from .world import World, bodies

Start = Callable[..., World]

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
def test_a_topic_that_cannot_be_made_is_named_until_it_could_be(
    start: Start, fault: tuple[str, str]
) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    disk.fail.add(fault)
    fail_to_make(world)
    for _ in range(3):
        assert world.broker.health.startswith("NOK - topic t: it could not be made: ")
        world.pass_ns(limits.SECOND)
    disk.fail.clear()
    world.pass_ns(limits.SECOND)  # though nobody asks for it again
    assert world.broker.health == "OK"
    assert not (world.path / "topics" / "t").exists()
    assert world.publish("t", b"1").stored


@pytest.mark.parametrize("fault", CREATION_FAULTS)
def test_what_is_left_of_it_keeps_no_start_from_working(
    start: Start, fault: tuple[str, str]
) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    disk.fail |= {fault, ("unlink", "topics/t")}
    fail_to_make(world)
    world.pass_ns(limits.SECOND)
    disk.fail.clear()
    world = world.killed()
    assert world.broker.health == "OK"
    assert world.publish("t", b"1").stored


def test_of_very_many_only_some_are_tried_again(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    disk.fail.add(("rename", "topic.json"))
    for number in range(limits.TOPICS_RETRIED_MAX + 5):
        with pytest.raises(StorageError):
            world.broker.topic(f"t{number}")
    disk.failed.clear()
    world.pass_ns(limits.SECOND)
    assert len(disk.failed) == limits.TOPICS_RETRIED_MAX
    disk.fail.clear()
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    assert list((world.path / "topics").iterdir()) == []


@pytest.mark.parametrize("fault", [("unlink", "topics/t/0/"), ("unlink", "topic.json")])
def test_files_of_a_deleted_topic_are_named_until_they_are_gone(
    start: Start, fault: tuple[str, str]
) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    world.publish("t", b"1")
    disk.fail.add(fault)
    world.broker.delete_topic("t")
    for _ in range(3):
        assert "topic t: files of the deleted topic are left" in world.broker.health
        world.pass_ns(limits.SECOND)
    disk.fail.clear()
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    assert not (world.path / "topics" / "t").exists()


def test_a_topic_that_is_made_again_keeps_its_files(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    world.publish("t", b"old")
    disk.fail.add(("unlink", ".log"))
    world.broker.delete_topic("t")
    fail_to_make(world)  # its directory cannot be cleared
    world.pass_ns(limits.SECOND)
    world = world.killed()  # the deletion is decided: no start brings it back, or stumbles on it
    assert "files of the deleted topic are left" in world.broker.health
    assert world.broker.topics == {}
    disk.fail.clear()
    assert world.publish("t", b"new").stored
    assert world.broker.health == "OK"
    world.pass_ns(limits.SECOND)
    world = world.killed()
    assert bodies(world.consumer("t", "c").take()) == [b"new"]
