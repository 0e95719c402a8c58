"""Stages and commits: what is seen when, what is refused, and what is never given up."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock import limits
from penstock.broker.commitrun import Committed, Ref
from penstock.broker.stages import Block
from penstock.errors import (
    CommitUnfinished,
    NotFound,
    Refused,
    StageDamaged,
    StageMissing,
    StorageError,
    TopicChanged,
    WriteRefused,
)
from penstock.kernel import Section, encode_batch, load
from penstock.log.inspect import find
from penstock.log.verify import verify
from penstock.sim.disk import Fault, SimDisk

from .staging import REPEATED, Told, block, commit, done, put, settle, stage_and_commit, stored
from .world import World, bodies

Start = Callable[..., World]


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir("/data")
    disk.sync_directory("/")
    return disk


def on(disk: SimDisk, **options: object) -> World:
    return World.start(Path("/data"), load("compiled"), [], disk=disk, **options)


def begin(world: World, app: str, version: int, *refs: tuple[str, str]) -> Told:
    """Asked for, and nothing more."""
    told = Told()
    world.broker.commits.commit(app, version, [Ref(*ref) for ref in refs], told)
    return told


def ends(world: World, *topics: str) -> list[int]:
    return [world.broker.topic(topic).tail.committed_end for topic in topics]


# --- what is seen ---


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_all_topics_show_it_in_one_turn(start: Start, durability: str) -> None:
    world = start(durability=durability)
    for topic in ("a", "b"):
        put(world, topic, block("x", *(b"%d" % n for n in range(7))))
    world.threads.held = True
    told = begin(world, "app", 1, ("a", "x"), ("b", "x"))
    seen = set()
    for _ in range(200):
        world.turn()
        seen.add((*ends(world, "a", "b"), bool(told.told)))
        if told.told:
            break
        job = world.threads.waiting.pop(0)
        world.threads.held, rest, world.threads.waiting = False, world.threads.waiting, [job]
        world.threads.run()
        world.threads.held, world.threads.waiting = True, rest
    assert seen == {(0, 0, False), (7, 7, True)}
    assert told.told == done(14)


def test_consumers_get_it_and_what_comes_behind(start: Start) -> None:
    world = start()
    consumer = world.consumer("t", "c")
    world.publish("t", b"before")
    put(world, "t", block("x", b"a", b"b", b"c"))
    assert bodies(consumer.take()) == [b"before"]
    commit(world, "app", 0, ("t", "x"))
    world.publish("t", b"after")
    got = consumer.take()
    assert bodies(got) == [b"a", b"b", b"c", b"after"]
    ids = [message.id for message in consumer.received]
    assert ids == sorted(set(ids))
    consumer.finish(*consumer.received)
    assert world.broker.topic("t").channel("c").unfinished == 0


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_other_publishes_wait_and_come_behind(start: Start, durability: str) -> None:
    world = start(durability=durability)
    put(world, "t", block("x", b"a", b"b"))
    world.threads.held = True
    told = begin(world, "app", 0, ("t", "x"))
    world.threads.run()
    world.turn()  # the stage was read: from here on the log's end is the commit's
    waiting = [world.publish("t", b"one"), world.publish("t", b"two")]
    elsewhere = world.publish("other", b"x")
    assert not [one.told for one in waiting if one.told]
    world.threads.held = False
    for _ in range(20):
        world.threads.run()
        world.turn()
    assert (told.told, [one.told for one in waiting]) == (done(2), [[None], [None]])
    assert elsewhere.told == [None]
    assert stored(world, "t") == [b"a", b"b", b"one", b"two"]


def test_the_order_is_that_of_the_list(start: Start) -> None:
    world = start()
    put(world, "t", block("x", b"1", b"2", b"3"))
    put(world, "t", block("y", b"4"))
    commit(world, "app", 0, ("t", "y"), ("t", "x"))
    assert stored(world, "t") == [b"4", b"1", b"2", b"3"]


def test_a_large_commit_goes_in_slices(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGE_SLICE_BYTES", 1000)
    world = start(segment_bytes_max=4000)
    said = [b"%d" % n * 20 for n in range(200)]
    put(world, "t", block("x", *said))
    log = world.broker.topic("t").partition.log
    told = begin(world, "app", 0, ("t", "x"))
    steps = []
    while not told.told:
        before = log.written_end
        world.turn()
        steps.append(log.written_end - before)
    assert len([step for step in steps if step]) > 5
    assert max(steps) < 50
    assert stored(world, "t") == said


def test_the_log_verifies(disk: SimDisk) -> None:
    world = on(disk)
    world.publish("t", b"plain")
    put(world, "t", block("x", b"a", b"b", b"c"))
    put(world, "t", block("left", b"d"))
    commit(world, "app", 0, ("t", "x"))
    world.publish("t", b"plain")
    world.close()
    report = verify(disk, find(disk, "/data"))
    assert report.findings == []
    assert report.bytes_checked == disk.used_bytes()
    for name in ("stages", "commits"):
        (path,) = (f"/data/{name}/{file}" for file in disk.listdir(f"/data/{name}"))
        for position in range(disk.size(path)):
            disk.flip(path, position, position % 8)
            assert [found.path for found in verify(disk, find(disk, "/data")).findings] == [path]
            disk.flip(path, position, position % 8)
    assert verify(disk, find(disk, "/data/stages/0000000000000002.stage")).findings == []


def test_a_topic_with_stages_is_not_idle(start: Start) -> None:
    world = start(idle_topic_delete_ns=10 * limits.SECOND)
    put(world, "t", block("x", b"a"))
    world.broker.topic("u")
    for _ in range(5):
        world.pass_ns(5 * limits.SECOND)
    assert list(world.broker.topics) == ["t"]
    world.broker.commits.stages.abort([("t", "x")])
    for _ in range(5):
        world.pass_ns(5 * limits.SECOND)
    assert not world.broker.topics


def test_a_part_that_could_not_be_synced_is_not_done(disk: SimDisk) -> None:
    """The start finds all of it in the log, and its own sync fails: a power loss may take it."""
    world = on(disk)
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1", b"2", b"3"))
    disk.inject(Fault("sync", path_part="topics/b/0/0"))
    assert isinstance(commit(world, "app", 0, ("a", "x"), ("b", "x")).error, CommitUnfinished)
    disk.kill()
    disk.inject(Fault("sync", path_part="topics/b/0/0"))
    world = on(disk)
    assert world.broker.commits.unfinished_count == 1
    assert len(disk.listdir("/data/stages")) == 2
    disk.kill()
    world = on(disk)
    finished(world)
    world.close()


def test_a_delayed_message_waits(start: Start) -> None:
    world = start()
    consumer = world.consumer("t", "c")
    due_ns = world.clock.wall_ns() + 10 * limits.SECOND
    sections = {int(Section.DUE): {1: due_ns}}
    put(world, "t", Block("x", encode_batch([b"a", b"b", b"c"], 0, 0, 0, sections=sections), 3))
    commit(world, "app", 0, ("t", "x"))
    assert bodies(consumer.take()) == [b"a", b"c"]
    world.pass_ns(11 * limits.SECOND)
    assert bodies(consumer.take()) == [b"b"]


# --- versions ---


def test_versions_rise(start: Start) -> None:
    world = start()
    assert stage_and_commit(world, 5, t=b"a").told == done(1)
    assert commit(world, "app", 5, ("t", "none")).told == REPEATED
    assert commit(world, "app", 4).told == REPEATED
    assert commit(world, "other", 4).told == done(0)
    assert commit(world, "app", 6).told == done(0)
    world = world.restart()
    commits = world.broker.commits
    assert [commits.last(app) for app in ("app", "other", "new")] == [6, 4, None]
    assert commit(world, "app", 6).told == REPEATED


def test_the_same_commit_twice_at_a_time(start: Start) -> None:
    world = start()
    put(world, "t", block("x", b"a"))
    told = [begin(world, "app", 0, ("t", "x")) for _ in range(3)]
    other = begin(world, "other", 0)
    settle(world)
    assert [one.told for one in told] == [done(1), REPEATED, REPEATED]
    assert other.told == done(0)
    assert stored(world, "t") == [b"a"]


def test_too_many_at_a_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMITS_WAITING_MAX", 2)
    world = start()
    for app in ("a", "b", "c"):
        begin(world, app, 0)
    with pytest.raises(Refused, match="2 commits"):
        begin(world, "d", 0)
    settle(world)
    assert commit(world, "d", 0).told == done(0)


def test_unused_apps_are_forgotten(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPS_MAX", 2)
    world = start()
    for version in (2, 3):
        commit(world, "a", version)
    commit(world, "b", 3)
    assert isinstance(commit(world, "c", 3).error, Refused)
    world.clock.pass_ns(limits.APP_ONCE_FORGET_NS + 1)
    assert commit(world, "c", 3).told == done(0)
    world = world.restart()
    assert [world.broker.commits.last(app) for app in "abc"] == [3, None, 3]
    commit(world, "c", 4)
    assert isinstance(commit(world, "d", 3).error, Refused)
    world.clock.pass_ns(limits.APP_FORGET_NS + 1)
    assert commit(world, "d", 3).told == done(0)
    assert [world.broker.commits.last(app) for app in "abcd"] == [None, None, None, 3]


# --- refused whole ---


def refused(world: World, error: type[Exception], *refs: tuple[str, str]) -> None:
    """And nothing has happened."""
    before = ends(world, "a", "b")
    told = commit(world, "app", 0, *refs)
    assert isinstance(told.error, error), told.told
    assert ends(world, "a", "b") == before
    assert world.broker.commits.last("app") is None
    for topic in ("a", "b"):
        assert world.publish(topic, b"plain").stored
        partition = world.broker.topic(topic).partition
        assert partition.reserved_count == 0
    assert world.broker._context.reserved_bytes == 0
    assert world.broker.health == "OK"


def test_what_is_not_there(start: Start) -> None:
    world = start()
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1"))
    refused(world, StageMissing, ("a", "x"), ("b", "y"))
    refused(world, NotFound, ("a", "x"), ("none", "x"))
    assert commit(world, "app", 0, ("a", "x"), ("b", "x")).told == done(2)


def test_a_topic_made_anew(start: Start) -> None:
    world = start()
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1"))
    world.broker.delete_topic("b")
    world.clock.pass_ns(limits.SECOND)
    world.broker.topic("b")
    refused(world, TopicChanged, ("a", "x"), ("b", "x"))


@pytest.mark.parametrize("position", [5, 200, 400])
def test_a_damaged_stage(disk: SimDisk, position: int) -> None:
    world = on(disk)
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1" * 50, b"2" * 50, b"3" * 50))
    disk.flip("/data/stages/0000000000000002.stage", position, 0)
    if position == 5:  # the first line was read before
        assert commit(world, "app", 0, ("a", "x"), ("b", "x")).told == done(6)
    else:
        refused(world, StageDamaged, ("a", "x"), ("b", "x"))
    world.close()


def test_a_stage_that_is_cut_short(disk: SimDisk) -> None:
    world = on(disk)
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1" * 50, b"2" * 50, b"3" * 50))
    path = "/data/stages/0000000000000002.stage"
    whole = disk.content(path)
    for content in (whole[:-8], whole[:300], whole[: whole.rindex(b"PSB1")]):
        disk.replace(path, content)
        refused(world, StageDamaged, ("a", "x"), ("b", "x"))
    disk.unlink(path)
    refused(world, StageDamaged, ("a", "x"), ("b", "x"))
    world.close()


def test_the_depth_is_set_aside(start: Start) -> None:
    world = start(max_depth=4)
    for topic in ("a", "b"):
        world.broker.topic(topic).channel("c")
        put(world, topic, block("x", b"1", b"2", b"3"))
    world.publish("b", b"plain")
    world.threads.held = True
    told = begin(world, "app", 0, ("a", "x"), ("b", "x"))
    world.threads.run()
    world.turn()
    world.threads.run()
    world.turn()
    with pytest.raises(Refused, match="depth limit"):
        world.publish("b", b"too much")
    assert world.broker.topic("b").tail.append_end_max == 1  # for PUB
    world.threads.held = False
    world.threads.run()
    settle(world)
    assert told.told == done(6)
    with pytest.raises(Refused, match="depth limit"):
        put(world, "b", block("y", b"1"))
    put(world, "a", block("y", b"1"))
    world.publish("a", b"plain")
    assert isinstance(commit(world, "app", 1, ("a", "y")).error, Refused)


def test_the_disk_is_looked_at(disk: SimDisk) -> None:
    world = on(disk, disk_free_bytes_min=10_000)
    body = b"x" * 20_000
    disk.capacity_bytes = disk.used_bytes() + 10_000 + 15_000
    with pytest.raises(Refused, match="do not fit"):
        put(world, "t", block("x", body))
    disk.capacity_bytes += 15_000
    assert put(world, "t", block("x", body)).told == [None]
    told = commit(world, "app", 0, ("t", "x"))
    assert isinstance(told.error, Refused)
    assert "do not fit" in str(told.error)
    disk.capacity_bytes += 20_000
    assert commit(world, "app", 0, ("t", "x")).told == done(1)
    world.close()


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename"])
def test_a_record_that_cannot_be_written(disk: SimDisk, call: str) -> None:
    world = on(disk)
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1"))
    world.publish("a", b"plain")
    disk.inject(Fault(call, errno.ENOSPC, "commits/"))  # type: ignore[arg-type]
    refused(world, WriteRefused, ("a", "x"), ("b", "x"))
    assert commit(world, "app", 0, ("a", "x"), ("b", "x")).told == done(2)
    world.close()


# --- decided, and not to be finished just now ---


def unfinished(world: World) -> None:
    """It is neither lost nor seen, and the topics take nothing."""
    told = commit(world, "app", 0, ("a", "x"), ("b", "x"))
    assert isinstance(told.error, CommitUnfinished), told.told
    assert world.broker.health.startswith("NOK - commit 0 of app waits")
    assert world.broker.commits.last("app") is None
    assert stored(world, "a") == stored(world, "b") == []
    for topic in ("a", "b"):
        with pytest.raises(Refused, match="waits to be finished"):
            world.publish(topic, b"plain")
    assert world.publish("other", b"plain").stored
    again = commit(world, "app", 0, ("a", "x"), ("b", "x"))
    assert isinstance(again.error, CommitUnfinished)
    assert isinstance(commit(world, "app", 1).error, CommitUnfinished)


def finished(world: World) -> None:
    assert world.broker.health == "OK"
    assert commit(world, "app", 0, ("a", "x"), ("b", "x")).told == REPEATED
    for topic in ("a", "b"):
        assert world.publish(topic, b"plain").stored
        assert stored(world, topic) == [b"1", b"2", b"3", b"plain"]
        assert world.broker.topic(topic).partition.reserved_count == 0
    assert world.broker.commits.stages.count == 0
    assert world.broker._context.reserved_bytes == 0


STORING = [
    Fault("sync_directory", path_part="/data/commits", times=0),
    Fault("write", path_part="topics/a/0/0", times=0),
    Fault("write", path_part="topics/b/0/0", times=0, skip=1, written=0.5),
    Fault("open", path_part="stages/", times=0, skip=2),
]


@pytest.mark.parametrize("fault", STORING, ids=lambda fault: f"{fault.call} {fault.path_part}")
@pytest.mark.parametrize("how", ["again", "restart", "kill", "kill twice"])
def test_it_is_tried_again(disk: SimDisk, fault: Fault, how: str) -> None:
    world = on(disk)
    disk.mkdir("/data/commits")
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1", b"2", b"3"))
    disk.faults.append(Fault(fault.call, path_part=fault.path_part, skip=fault.skip,
                             times=fault.times, written=fault.written))  # fmt: skip
    unfinished(world)
    if "commits" not in fault.path_part:
        assert commit(world, "free", 0).told == done(0)  # others go on
    world.pass_ns(limits.SECOND)
    settle(world)
    assert world.broker.commits.unfinished_count == 1
    disk.faults.clear()
    if how == "again":
        world.pass_ns(limits.SECOND)
        settle(world)
    elif how == "restart":
        world.close()
    for _ in range(how.count("kill") + how.count("twice")):
        disk.kill()
    if how != "again":
        world = on(disk)
    finished(world)
    world.close()


def test_a_failed_sync_is_for_the_next_start(disk: SimDisk) -> None:
    world = on(disk)
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1", b"2", b"3"))
    disk.inject(Fault("sync", path_part="topics/b/0/0"))
    told = commit(world, "app", 0, ("a", "x"), ("b", "x"))
    assert isinstance(told.error, CommitUnfinished)
    world.pass_ns(limits.SECOND)
    assert world.broker.commits.unfinished_count == 1
    assert stored(world, "a") == []
    world.close()
    world = on(disk)
    finished(world)
    world.close()


def decided_and_killed(disk: SimDisk) -> None:
    """The record is there, and nothing of the commit in the logs."""
    world = on(disk)
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1", b"2", b"3"))
    world.publish("free", b"plain")
    disk.inject(Fault("write", path_part="topics/", times=0))
    assert isinstance(commit(world, "app", 0, ("a", "x"), ("b", "x")).error, CommitUnfinished)
    disk.kill()


def test_a_start_that_cannot_finish_serves_the_rest(disk: SimDisk) -> None:
    decided_and_killed(disk)
    path = "/data/stages/0000000000000002.stage"
    whole = disk.content(path)
    disk.unlink(path)
    world = on(disk)
    assert "waits to be finished" in world.broker.health
    assert world.publish("free", b"plain").stored
    for topic in ("a", "b"):
        with pytest.raises(Refused, match="waits to be finished"):
            world.publish(topic, b"plain")
    assert isinstance(commit(world, "app", 0).error, CommitUnfinished)
    world.close()
    world = on(disk)
    disk.create(path)
    disk.replace(path, whole)  # somebody has found it
    world.pass_ns(limits.SECOND)
    settle(world)
    finished(world)
    world.close()


def test_deleting_the_topic_gives_its_part_up(disk: SimDisk) -> None:
    decided_and_killed(disk)
    disk.unlink("/data/stages/0000000000000002.stage")
    world = on(disk)
    world.broker.delete_topic("b")
    world.pass_ns(limits.SECOND)
    settle(world)
    assert world.broker.commits.last("app") == 0
    assert stored(world, "a") == [b"1", b"2", b"3"]
    assert stored(world, "b") == []
    assert world.publish("b", b"plain").stored
    world.close()


def test_a_record_that_cannot_be_read_stops_the_start(disk: SimDisk) -> None:
    decided_and_killed(disk)
    (name,) = disk.listdir("/data/commits")
    disk.flip(f"/data/commits/{name}", 20, 0)
    with pytest.raises(StorageError, match="cannot be read"):
        on(disk)


def test_a_log_that_lost_what_came_before_is_left_alone(disk: SimDisk) -> None:
    world = on(disk)
    world.publish("b", b"before")
    world.close()
    decided_and_killed(disk)
    log_name = "00000000000000000000.log"
    for name in disk.listdir("/data/topics/b/0"):
        if name != log_name:
            disk.unlink(f"/data/topics/b/0/{name}")
    disk.replace(f"/data/topics/b/0/{log_name}", b"")
    world = on(disk)
    assert "what was stored before is lost" in world.broker.health
    assert stored(world, "b") == []
    world.close()


# --- deletion and the stop, in the middle ---


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize("after", range(12))
def test_a_topic_deleted_under_a_commit(start: Start, after: int, durability: str) -> None:
    world = start(durability=durability)
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1", b"2", b"3"))
    told = begin(world, "app", 0, ("a", "x"), ("b", "x"))
    for _ in range(after):
        world.turn()
    world.broker.delete_topic("b")
    settle(world)
    world.broker.topic("b")
    if told.told == done(6):
        assert stored(world, "a") == [b"1", b"2", b"3"]
    else:
        assert isinstance(told.error, NotFound)
        assert stored(world, "a") == []
    assert world.publish("a", b"plain").stored
    assert world.publish("b", b"plain").stored
    assert stored(world, "b") == [b"plain"]
    assert world.broker.health == "OK"


@pytest.mark.parametrize("after", range(10))
def test_a_stop_under_a_commit(start: Start, after: int) -> None:
    world = start()
    for topic in ("a", "b"):
        put(world, topic, block("x", b"1", b"2", b"3"))
    told = begin(world, "app", 0, ("a", "x"), ("b", "x"))
    waiting = begin(world, "other", 0, ("a", "x"))
    for _ in range(after):
        world.turn()
    behind = world.publish("a", b"plain") if after < 3 else None
    world = world.restart()
    assert len(told.told) == len(waiting.told) == 1
    assert behind is None or behind.stored
    whole = [b"1", b"2", b"3"]
    found = [[one for one in stored(world, topic) if one != b"plain"] for topic in ("a", "b")]
    assert found == ([whole, whole] if told.told == done(6) else [[], []])
    assert isinstance(told.told[0], Committed) or isinstance(told.error, Refused)
