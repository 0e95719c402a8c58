"""Stages by app: bounds of each, attempts that take the place of older ones, giving up."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import limits
from penstock.broker.commits.stageapps import NOBODY, Owner, Ref
from penstock.errors import Refused, StageSuperseded

from ..staging import Told, block, commit, done, put, settle, stored
from ..world import World

pytestmark = pytest.mark.usefixtures("quiet")

Start = Callable[..., World]


def staged(world: World, name: str, app: str, version: int = 0, attempt: str = "a") -> Any:
    """The error, or None."""
    one = block(name, name.encode())._replace(owner=Owner(app, version, attempt))
    return put(world, "t", one).told[0]


def names(world: World) -> list[str]:
    stages = world.broker.commits.stages
    found = [one for summary in stages.apps.summaries() for one in stages.apps.of(summary.app)]
    return sorted(stage.head.name for stage in found)


def test_a_newer_attempt_takes_the_place_of_an_older_one(start: Start) -> None:
    world = start()
    for name in ("x", "y"):
        staged(world, name, "job", 7, "first")
    staged(world, "other", "job", 8, "first")
    staged(world, "z", "job", 7, "second")
    assert names(world) == ["other", "z"]
    with pytest.raises(StageSuperseded, match="version 7 of job"):
        staged(world, "late", "job", 7, "first")
    staged(world, "w", "job", 7, "second")
    assert commit(world, "job", 7, ("t", "z"), ("t", "w")).told == done(2)
    assert stored(world, "t") == [b"z", b"w"]


@pytest.mark.parametrize("how", ["restart", "killed"])
def test_attempts_are_known_after_a_start(start: Start, how: str) -> None:
    world = start()
    staged(world, "x", "job", 7, "first")
    world = getattr(world, how)()
    staged(world, "y", "job", 7, "second")
    settle(world)
    world = getattr(world, how)()
    assert names(world) == ["y"]
    assert world.broker.commits.stages.count == 1


def test_what_a_crash_left_of_an_older_attempt_is_removed(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = start()
    staged(world, "x", "job", 7, "first")
    stages = world.broker.commits.stages
    monkeypatch.setattr(stages, "remove_files", lambda *_: None)
    staged(world, "y", "job", 7, "second")
    monkeypatch.undo()
    world = world.killed()
    settle(world)
    assert names(world) == ["y"]
    assert len(world.disk.listdir(str(world.path / "stages"))) == 1


def test_one_that_is_being_committed_is_not_taken_away(start: Start) -> None:
    world = start()
    staged(world, "x", "job", 7, "first")
    told = Told()
    world.threads.held = True
    world.broker.commits.commit("job", 7, [Ref("t", "x")], told)
    one = block("y", b"y")._replace(owner=Owner("job", 7, "second"))
    again = Told()
    world.broker.commits.stages.put(world.broker.topic("t"), one, again)
    world.threads.held = False
    world.threads.run()
    settle(world)
    assert (told.told, again.told) == (done(1), [None])
    assert stored(world, "t") == [b"x"]


def test_a_commit_removes_what_is_left_of_its_version(start: Start) -> None:
    world = start()
    for name, version in (("x", 6), ("y", 7), ("twice", 7), ("next", 8)):
        staged(world, name, "job", version)
    staged(world, "z", "other", 7)
    assert commit(world, "job", 7, ("t", "y")).told == done(1)
    settle(world)
    assert names(world) == ["next", "z"]


def test_an_app_has_a_bound_of_its_own(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGES_APP_MAX", 2)
    monkeypatch.setattr(limits, "STAGES_NAMELESS_MAX", 1)
    world = start()
    for name in ("x", "y"):
        staged(world, name, "job")
    with pytest.raises(Refused, match=r"app job has 2 stages already.*penstock stage abort"):
        staged(world, "z", "job")
    assert staged(world, "z", "other") is None
    assert put(world, "t", block("a", b"a")).told == [None]
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


def test_abort_by_app(start: Start) -> None:
    world = start()
    for name, app, version in (("x", "job", 1), ("y", "job", 2), ("z", "other", 1)):
        staged(world, name, app, version)
    put(world, "t", block("a", b"a"))
    stages = world.broker.commits.stages
    assert [(one.app, one.versions, one.stages) for one in stages.apps.summaries()] == [
        ("job", (1, 2), 2),
        ("", (-1,), 1),
        ("other", (1,), 1),
    ]
    assert stages.abort_app("job", 1) == 1
    assert stages.abort_app("job", None) == 1
    assert stages.abort_app(NOBODY.app, None) == 1
    settle(world)
    assert (names(world), stages.count) == (["z"], 1)
