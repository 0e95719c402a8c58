"""What is said of a channel journal that has rotted, or that the disk does not take."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from penstock import limits
from penstock.log.disk import OsDisk
from penstock.log.fold import decode_record
from penstock.log.inspect import find
from penstock.log.verify import verify

from .faults import FaultyDisk
from .world import World, bodies

Start = Callable[..., World]


def journal_path(world: World, number: int = 0) -> Path:
    return world.path / "topics" / "news" / "0" / f"channels.{number}"


def records(data: bytes) -> list[int]:
    """Where they begin."""
    found, position = [], 0
    while (record := decode_record(data, position)) is not None:
        found.append(position)
        position += record.length
    return found


def consumed(start: Start, **options: object) -> World:
    """Four messages, finished one by one."""
    world = start(**options)
    consumer = world.consumer("news", "a")
    for number in range(4):
        world.publish("news", b"%d" % number)
        consumer.finish(*consumer.take())
    return world


def test_a_rotten_record_with_sound_ones_behind_it_is_reported(start: Start) -> None:
    world = consumed(start, journal_bytes_max=600)
    world.close()
    path = journal_path(world)
    data = bytearray(path.read_bytes())
    third = records(data)[2]
    data[third + 50] ^= 1
    path.write_bytes(data)
    found = verify(OsDisk(), find(OsDisk(), str(world.path))).findings
    assert [(finding.path, finding.position) for finding in found] == [(str(path), third)]
    world = world.restart()
    said = f"{path}: the record at byte {third} is corrupt"
    assert world.broker.health.startswith(f"OK - warning: topic news: {said}")
    consumer = world.consumer("news", "a")
    again = consumer.take()
    assert bodies(again)[-1:] == [b"3"]  # what was said behind it is lost
    consumer.finish(*again)
    for number in range(20):  # until the file is begun anew
        world.publish("news", b"%d" % number)
        consumer.finish(*consumer.take())
        world.pass_ns(2 * limits.SECOND)
    assert world.broker.health == "OK"
    assert verify(OsDisk(), find(OsDisk(), str(world.path))).findings == []


def test_a_rotten_snapshot_is_reported(start: Start) -> None:
    world = consumed(start)
    world.close()
    path = journal_path(world)
    data = bytearray(path.read_bytes())
    data[45] ^= 1
    path.write_bytes(data)
    world = world.restart()
    assert f"{path}: the record at byte 0 is corrupt" in world.broker.health
    assert len(world.consumer("news", "a").take()) == 4


def test_a_record_that_was_cut_short_is_ordinary(start: Start) -> None:
    world = consumed(start)
    path = journal_path(world)
    data = path.read_bytes()
    last = records(data)[-1]
    for torn in (data[: last + 20], data[:last] + bytes(20), data[:last] + bytes(len(data))):
        path.write_bytes(torn)
        world = world.killed()
        assert world.broker.health == "OK"
        path = journal_path(world)


def test_a_write_lost_before_others_by_a_power_loss_is_ordinary(start: Start) -> None:
    """It left zeros. What stands behind it does not count."""
    world = consumed(start)
    path = journal_path(world)
    data = bytearray(path.read_bytes())
    third, fourth = records(data)[2:4]
    data[third:fourth] = bytes(fourth - third)
    path.write_bytes(data)
    assert world.killed().broker.health == "OK"


def test_a_journal_that_cannot_be_synced_is_shown_until_it_was(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk, durability="os")
    consumer = world.consumer("news", "a")
    world.publish("news", b"1")
    disk.fail.add(("sync", "channels."))
    consumer.finish(*consumer.take())
    for _ in range(6):  # records are written all the while
        world.pass_ns(limits.SECOND)
    said = "NOK - topic news: the state of the channels cannot be stored"
    assert world.broker.health.startswith(said)
    world.publish("news", b"2")
    consumer.finish(*consumer.take())
    assert world.broker.health.startswith(said)
    disk.fail.clear()
    world.turn()
    assert world.broker.health.startswith(said)  # it is healed by a sync, not by a write
    for _ in range(6):
        world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"


def test_a_journal_that_cannot_be_opened_for_its_sync_is_shown(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk, durability="os")
    world.consumer("news", "a")
    world.publish("news", b"1")
    journal = world.broker.find_topic("news").leader().cursors
    assert journal is not None
    journal._journal.close()
    disk.fail.add(("open", "channels."))
    for _ in range(3):
        world.pass_ns(limits.SECOND)
    assert "the state of the channels cannot be stored" in world.broker.health
    disk.fail.clear()
    for _ in range(6):
        world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"


def test_a_mark_that_cannot_be_written_is_shown_until_it_was(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    world.publish("news", b"1")
    disk.fail.add(("write", "/mark"))
    for _ in range(5):
        world.pass_ns(limits.SECOND)
    assert "NOK - topic news: the write failed" in world.broker.health
    assert world.publish("news", b"2").stored  # this heals nothing
    assert "NOK - topic news: the write failed" in world.broker.health
    disk.fail.clear()
    for _ in range(5):
        world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
