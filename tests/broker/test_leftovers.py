"""Files of a log that no promise hangs on: what fails with them is reported, and stops nothing."""

from __future__ import annotations

from typing import Any

from penstock import limits

from .faults import FaultyDisk
from .world import bodies


def test_what_cannot_be_removed_does_not_stop_a_start(start: Any) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    world.broker.topic("t").channel("ch")
    assert world.publish("t", b"a").stored
    partition = world.path / "topics" / "t" / "0"
    index = next(partition.glob("*.log")).with_suffix(".index").name
    orphan = index.replace("0" * 8, "9" * 8, 1)
    for name in ("spare-0.log", orphan):
        (partition / name).write_bytes(b"old")
    disk.fail |= {("unlink", "spare-0.log"), ("unlink", orphan)}
    world = world.restart()
    said = world.broker.health
    assert said.startswith("OK - warning: topic t: ")
    assert "spare-0.log cannot be removed: Input/output error" in said
    assert f"{orphan} cannot be removed: Input/output error" in said
    assert bodies(world.consumer("t", "ch").take()) == [b"a"]
    assert world.publish("t", b"b").stored
    disk.fail.clear()
    world = world.restart()  # it is tried again
    assert not (partition / "spare-0.log").exists()
    assert not (partition / orphan).exists()
    assert world.broker.health == "OK"


def test_an_index_that_cannot_be_written_is_reported(start: Any) -> None:
    disk = FaultyDisk()
    world = start(disk=disk, segment_bytes_max=4096)
    topic = world.broker.topic("t")
    topic.channel("ch")
    log = topic.leader().log
    disk.fail |= {("create", ".index"), ("open", ".index")}
    while not log.index_failures:
        assert world.publish("t", b"x" * 1000).stored
    world.pass_ns(limits.SECOND)
    said = world.broker.health
    assert said.startswith("OK - warning: topic t: ")
    assert ".index cannot be written: Input/output error" in said
    failures = log.index_failures
    disk.fail.clear()
    segments = len(log.segments)
    while len(log.segments) == segments:
        assert world.publish("t", b"x" * 1000).stored
    world.pass_ns(limits.SECOND)
    assert (world.broker.health, log.index_failures) == ("OK", failures)
