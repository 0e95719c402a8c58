"""Where the logs of deleted topics ended: the newest are known, also after a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock import limits
from penstock.broker.topics.deleted import ENDED_FILE, EndedTopics
from penstock.log.disk import OsDisk

from ..faults import FaultyDisk
from ..world import World


def opened(path: Path, count_max: int = 9) -> EndedTopics:
    ended = EndedTopics(OsDisk(), str(path), count_max)
    ended.open()
    return ended


def test_a_line_that_is_torn_or_rotten_is_passed_over(tmp_path: Path) -> None:
    ended = opened(tmp_path)
    for name in ("a", "b", "c"):
        ended.add(name, "one", [7])
    path = tmp_path / ENDED_FILE
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"x"')[:-9])
    again = opened(tmp_path)
    assert set(again.logs_of({"a", "b", "c", "x"})) == {"b"}
    again.add("d", "one", [1])
    assert set(opened(tmp_path).logs_of({"a", "b", "c", "d"})) == {"b", "d"}


def test_the_file_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ENDED_FILE_BYTES_MAX", 1000)
    ended = opened(tmp_path, 100)
    for number in range(100):
        ended.add(f"topic{number}", "one", [number])
        assert (tmp_path / ENDED_FILE).stat().st_size <= 1000
    known = opened(tmp_path).logs_of({"topic0", "topic98", "topic99"})
    assert known == {"topic98": {"one": {0: 98}}, "topic99": {"one": {0: 99}}}


def test_a_deleted_topic_is_known_after_a_restart_and_a_kill(start: Callable[..., World]) -> None:
    world = start()
    identity = world.broker.topic("orders").identity
    world.publish("orders", b"1", b"2")
    world.broker.topic("live#ephemeral")
    for name in ("orders", "live#ephemeral"):
        world.broker.delete_topic(name)
    world = world.killed()
    for again in (world, world.restart()):
        names = {"orders", "live#ephemeral"}
        assert again.broker.ended.logs_of(names) == {"orders": {identity: {0: 2}}}


def test_a_full_disk_keeps_no_topic_from_being_deleted(start: Callable[..., World]) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    for name in ("first", "second", "third"):
        world.publish(name, b"1")
    world.broker.delete_topic("first")
    disk.fail = {("pwritev", ENDED_FILE)}
    world.broker.delete_topic("second")
    assert "second" not in world.broker.topics
    disk.fail = set()
    world.broker.housekeeping()
    world = world.killed()
    assert set(world.broker.ended.logs_of({"first", "second", "third"})) == {"first", "second"}
