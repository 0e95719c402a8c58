"""Stages before they are committed: names, restarts, expiry, and what is refused."""

import errno
from typing import Any

import pytest

from penstock import limits
from penstock.broker.commits.apps import Ref
from penstock.errors import Refused, StageDamaged, StageExists, StageSuperseded, WriteRefused
from sim.disk import Fault, SimDisk

from ..staging import Answers, Block, begin, block, commit, done, on, pass_ns, put, settle, stored
from ..world import Start, World

pytestmark = pytest.mark.usefixtures("quiet")


def files(world: World) -> list[str]:
    path = str(world.path / "stages")
    return sorted(world.disk.listdir(path)) if world.disk.exists(path) else []


def test_the_same_name_while_it_is_written(world: World) -> None:
    world.threads.held = True
    answers = [Answers(), Answers(), Answers()]
    for text, one in zip((b"a", b"a", b"b"), answers, strict=True):
        begin(world, "t", block("x", text), one)
    world.threads.held = False
    world.threads.run()
    settle(world)
    assert [one.answers for one in answers[:2]] == [[None], [None]]
    assert isinstance(answers[2].error, StageExists)


def test_a_start_removes_corrupt_stages(disk: SimDisk) -> None:
    world = on(disk)
    for name in ("x", "y", "z"):
        put(world, "t", block(name, b"a"))
    world.close()
    disk.flip("/data/stages/0000000000000001.stage", 5, 0)
    path = "/data/stages/0000000000000002.stage"
    disk.replace(path, disk.content(path)[:-1])
    disk.create("/data/stages/0000000000000009.stage.tmp")
    disk.create("/data/stages/notes")
    world = on(disk)
    settle(world)
    assert files(world) == ["0000000000000003.stage", "notes"]
    assert put(world, "t", block("x", b"b")).answers == [None]
    assert world.broker.commits.stages.count == 2


@pytest.mark.parametrize("sent_again", [False, True])
def test_an_unreadable_stage_is_kept_at_the_start(disk: SimDisk, sent_again: bool) -> None:
    world = on(disk)
    put(world, "t", block("x", b"a"))
    world.close()
    fault = disk.inject(Fault("read", errno.EIO, "stages", times=0))
    world = on(disk)
    assert "a stage cannot be read" in world.broker.health
    assert world.broker.commits.stages.count == 0
    if sent_again:
        assert put(world, "t", block("x", b"b")).answers == [None]
    disk.faults.remove(fault)
    pass_ns(world)
    assert (world.broker.health, len(files(world))) == ("OK", 1)
    assert commit(world, "app", 0, ("t", "x")).answers == done(1)
    assert stored(world, "t") == [b"b" if sent_again else b"a"]


def test_a_stage_read_late_expires_in_time(disk: SimDisk) -> None:
    world = on(disk)
    put(world, "t", block("x", b"a"))
    world.close()
    fault = disk.inject(Fault("read", errno.EIO, "stages", times=0))
    world = on(disk)
    put(world, "t", block("y", b"b"))
    disk.faults.remove(fault)
    world.pass_ns(limits.STAGE_EXPIRE_NS // 2)
    put(world, "t", block("z", b"c"))
    settle(world)
    assert names(world) == ["x", "y", "z"]
    pass_ns(world, limits.STAGE_EXPIRE_NS // 2 + limits.STAGE_SWEEP_NS)
    assert names(world) == ["z"]


def test_stages_of_a_deleted_topic_are_removed(world: World) -> None:
    put(world, "t", block("x", b"a"))
    world.broker.delete_topic("t")
    pass_ns(world, limits.STAGE_SWEEP_NS + limits.SECOND)
    assert files(world) == []
    assert world.broker.commits.stages.count == 0


@pytest.mark.parametrize("call", ["open", "read"])
def test_a_stage_that_cannot_be_compared_is_not_confirmed(disk: SimDisk, call: str) -> None:
    world = on(disk)
    put(world, "t", block("x", b"a"))
    fault = disk.inject(Fault(call, errno.EIO, "stages", times=0))  # type: ignore[arg-type]
    error = put(world, "t", block("x", b"a")).error
    assert isinstance(error, WriteRefused)
    assert "cannot be read" in str(error)
    for _ in range(3):
        assert "a stage cannot be read" in world.broker.health
        world.pass_ns(limits.SECOND)
    disk.faults.remove(fault)
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    assert put(world, "t", block("x", b"a")).answers == [None]


@pytest.mark.parametrize("gone", [False, True])
def test_a_stage_that_a_commit_could_not_read_is_read_again(disk: SimDisk, gone: bool) -> None:
    world = on(disk)
    for name in ("x", "y"):
        put(world, "t", block(name, b"a"))
    fault = disk.inject(Fault("read", errno.EIO, "stages", times=0))
    for version, name in enumerate(("x", "y")):
        assert isinstance(commit(world, "app", version, ("t", name)).error, StageDamaged)
    assert "a stage cannot be read" in world.broker.health
    if gone:
        world.broker.commits.stages.abort([Ref("t", "x"), Ref("t", "y")])
    else:
        disk.faults.remove(fault)
    world.pass_ns(limits.SECOND)
    assert "a stage cannot be read" in world.broker.health  # the second one
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"


def test_files_that_cannot_be_removed_are_reported(disk: SimDisk) -> None:
    world = on(disk)
    put(world, "t", block("x", b"a"))
    fault = disk.inject(Fault("unlink", errno.EIO, "stages", times=0))
    assert commit(world, "app", 0, ("t", "x")).answers == done(1)
    assert stored(world, "t") == [b"a"]
    put(world, "t", block("y", b"b"))
    for _ in range(3):
        world.pass_ns(limits.SECOND)
        assert "stages cannot be removed" in world.broker.health
    disk.faults.remove(fault)
    assert commit(world, "app", 1, ("t", "y")).answers == done(1)
    assert "stages cannot be removed" in world.broker.health  # another one was
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    assert files(world) == []


WRITE_CALLS = ["create", "write", "sync", "rename", "sync_directory"]


@pytest.mark.parametrize("call", WRITE_CALLS)
def test_a_write_that_fails_is_named_until_as_much_can_be_written(disk: SimDisk, call: str) -> None:
    world = on(disk)
    put(world, "t", block("first", b"a"))
    fault = disk.inject(Fault(call, errno.EIO, "stages", times=0))  # type: ignore[arg-type]
    assert isinstance(put(world, "t", block("x", b"a" * 5000)).error, WriteRefused)
    for _ in range(3):
        assert "a stage of" in world.broker.health
        world.pass_ns(limits.SECOND)
    disk.faults.remove(fault)
    assert put(world, "t", block("y", b"a")).answers == [None]
    assert "a stage of" in world.broker.health  # a shorter one
    world.pass_ns(limits.SECOND)  # though nobody stages
    world.pass_ns(limits.SECOND)
    assert world.broker.health == "OK"
    assert len(files(world)) == 2  # the probe is gone, and what the failed write left
    assert put(world, "t", block("x", b"a" * 5000)).answers == [None]
    world.close()
    world = on(disk)
    assert world.broker.commits.stages.count == 3


# --- stages by app: bounds of each, attempts that take the place of older ones, giving up ---


def staged(world: World, name: str, app: str, version: int = 0, attempt: str = "a") -> Any:
    """The error, or None."""
    head, body = block(name, name.encode())
    head.app, head.app_version, head.attempt = app, version, attempt
    return put(world, "t", Block(head, body)).answers[0]


def names(world: World) -> list[str]:
    stages = world.broker.commits.stages
    found = [one for row in stages.apps.rows() for one in stages.apps.of(row["app"])]
    return sorted(stage.head.name for stage in found)


def test_a_newer_attempt_replaces_an_older_one(world: World) -> None:
    for name in ("x", "y"):
        staged(world, name, "job", 7, "first")
    staged(world, "other", "job", 8, "first")
    staged(world, "z", "job", 7, "second")
    assert names(world) == ["other", "z"]
    with pytest.raises(StageSuperseded, match="version 7 of job"):
        staged(world, "late", "job", 7, "first")
    staged(world, "w", "job", 7, "second")
    assert commit(world, "job", 7, ("t", "z"), ("t", "w")).answers == done(2)
    assert stored(world, "t") == [b"z", b"w"]


def test_a_start_removes_stages_of_an_older_attempt(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    staged(world, "x", "job", 7, "first")
    stages = world.broker.commits.stages
    monkeypatch.setattr(stages, "remove_files", lambda *_: None)
    staged(world, "y", "job", 7, "second")
    monkeypatch.undo()
    world = world.killed()
    settle(world)
    assert names(world) == ["y"]
    assert len(world.disk.listdir(str(world.path / "stages"))) == 1


def test_an_app_has_a_bound_of_its_own(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGES_APP_MAX", 2)
    monkeypatch.setattr(limits, "STAGES_NAMELESS_MAX", 1)
    world = start()
    for name in ("x", "y"):
        staged(world, name, "job")
    with pytest.raises(Refused, match=r"app job has 2 stages already.*penstock stage abort"):
        staged(world, "z", "job")
    assert staged(world, "z", "other") is None
    assert put(world, "t", block("a", b"a")).answers == [None]
    with pytest.raises(Refused, match="name an app"):
        put(world, "t", block("b", b"b"))
    # A new attempt is not held up by what the older one has left.
    assert staged(world, "again", "job", 0, "second") is None
    assert names(world) == ["a", "again", "z"]


def test_an_idle_app_gives_way_when_all_is_full(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STAGES_MAX", 3)
    world = start()
    for name in ("x", "y"):
        staged(world, name, "killed")
    staged(world, "z", "other")
    with pytest.raises(Refused, match=r"3 stages of all apps.*penstock stage list"):
        staged(world, "w", "third")
    world.clock.pass_ns(limits.STAGE_IDLE_NS + 1)
    assert staged(world, "w", "third") is None
    assert names(world) == ["w", "z"]
