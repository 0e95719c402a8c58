"""Stages and commits: what is seen when, and what is refused."""

import pytest

from penstock import limits
from penstock.broker.commits.apps import Ref
from penstock.broker.commits.commit import Committed
from penstock.errors import NotFound, Refused, StageDamaged, TopicChanged
from sim.disk import SimDisk

from ..staging import (
    REPEATED,
    Answers,
    block,
    commit,
    done,
    on,
    put,
    settle,
    stage_in_both,
    step_by_step,
    stored,
)
from ..world import Start, World

pytestmark = pytest.mark.usefixtures("quiet")


def begin(world: World, app: str, version: int, *refs: tuple[str, str]) -> Answers:
    """Asked for, and nothing more."""
    answers = Answers()
    world.broker.commits.commit(app, version, [Ref(*ref) for ref in refs], answers)
    return answers


def ends(world: World, *topics: str) -> list[int]:
    return [world.broker.topic(topic).leader().tail.committed_end for topic in topics]


# --- what is seen ---


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_commit_is_visible_in_all_topics_in_one_turn(start: Start, durability: str) -> None:
    world = start(durability=durability)
    stage_in_both(world, *(b"%d" % n for n in range(7)))
    world.threads.held = True
    answers = begin(world, "app", 1, ("a", "x"), ("b", "x"))
    seen = step_by_step(world, answers, lambda: (*ends(world, "a", "b"), bool(answers.answers)))
    assert seen == {(0, 0, False), (7, 7, True)}
    assert answers.answers == done(14)


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_other_publishes_wait_and_come_behind(start: Start, durability: str) -> None:
    world = start(durability=durability)
    put(world, "t", block("x", b"a", b"b"))
    world.threads.held = True
    answers = begin(world, "app", 0, ("t", "x"))
    world.threads.run()
    world.turn()  # the stage was read: from here on the log's end is the commit's
    waiting = [world.publish("t", b"one"), world.publish("t", b"two")]
    elsewhere = world.publish("other", b"x")
    assert not [one.answers for one in waiting if one.answers]
    world.threads.held = False
    for _ in range(20):
        world.threads.run()
        world.turn()
    assert (answers.answers, [one.answers for one in waiting]) == (done(2), [[None], [None]])
    assert elsewhere.answers == [None]
    assert stored(world, "t") == [b"a", b"b", b"one", b"two"]


def test_a_large_commit_goes_in_slices(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGE_SLICE_BYTES", 1000)
    world = start(segment_bytes_max=4000)
    text = [b"%d" % n * 20 for n in range(200)]
    put(world, "t", block("x", *text))
    log = world.broker.topic("t").leader().log
    answers = begin(world, "app", 0, ("t", "x"))
    steps = []
    while not answers.answers:
        before = log.written_end
        world.turn()
        steps.append(log.written_end - before)
    assert len([step for step in steps if step]) > 5
    assert max(steps) < 50
    assert stored(world, "t") == text


def test_a_topic_with_stages_is_not_idle(start: Start) -> None:
    world = start(idle_topic_delete_ns=10 * limits.SECOND)
    put(world, "t", block("x", b"a"))
    world.broker.topic("u")
    for _ in range(5):
        world.pass_ns(5 * limits.SECOND)
    assert list(world.broker.topics) == ["t"]
    world.broker.commits.stages.abort([Ref("t", "x")])
    for _ in range(5):
        world.pass_ns(5 * limits.SECOND)
    assert not world.broker.topics


# --- versions ---


def test_the_same_commit_twice_at_a_time(world: World) -> None:
    put(world, "t", block("x", b"a"))
    answers = [begin(world, "app", 0, ("t", "x")) for _ in range(3)]
    other = begin(world, "other", 0)
    settle(world)
    assert [one.answers for one in answers] == [done(1), REPEATED, REPEATED]
    assert other.answers == done(0)
    assert stored(world, "t") == [b"a"]


def test_too_many_at_a_time(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "COMMITS_WAITING_MAX", 2)
    world = start()
    for app in ("a", "b", "c"):
        begin(world, app, 0)
    with pytest.raises(Refused, match="2 commits"):
        begin(world, "d", 0)
    settle(world)
    assert commit(world, "d", 0).answers == done(0)


def test_unused_apps_are_forgotten(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "APPS_MAX", 2)
    world = start()
    for version in (2, 3):
        commit(world, "a", version)
    commit(world, "b", 3)
    assert isinstance(commit(world, "c", 3).error, Refused)
    world.clock.pass_ns(limits.APP_ONCE_FORGET_NS + 1)
    assert commit(world, "c", 3).answers == done(0)
    world = world.restart()
    assert [world.broker.commits.last(app) for app in "abc"] == [3, None, 3]
    commit(world, "c", 4)
    assert isinstance(commit(world, "d", 3).error, Refused)
    world.clock.pass_ns(limits.APP_FORGET_NS + 1)
    assert commit(world, "d", 3).answers == done(0)
    assert [world.broker.commits.last(app) for app in "abcd"] == [None, None, None, 3]


# --- refused whole ---


def refused(world: World, error: type[Exception], *refs: tuple[str, str]) -> None:
    """And nothing has happened."""
    before = ends(world, "a", "b")
    answers = commit(world, "app", 0, *refs)
    assert isinstance(answers.error, error), answers.answers
    assert ends(world, "a", "b") == before
    assert world.broker.commits.last("app") is None
    for topic in ("a", "b"):
        assert world.publish(topic, b"plain").stored
        assert world.broker.topic(topic).leader().group.reserved_count == 0
    assert world.broker.context.reserved_bytes == 0
    assert world.broker.health == "OK"


def test_a_topic_made_anew(world: World) -> None:
    stage_in_both(world, b"1")
    world.broker.delete_topic("b")
    world.clock.pass_ns(limits.SECOND)
    world.broker.topic("b")
    refused(world, TopicChanged, ("a", "x"), ("b", "x"))


@pytest.mark.parametrize("position", [5, 200, 400])
def test_a_damaged_stage(disk: SimDisk, position: int) -> None:
    world = on(disk)
    stage_in_both(world, b"1" * 50, b"2" * 50, b"3" * 50)
    disk.flip("/data/stages/0000000000000002.stage", position, 0)
    if position == 5:  # the first line was read before
        assert commit(world, "app", 0, ("a", "x"), ("b", "x")).answers == done(6)
    else:
        refused(world, StageDamaged, ("a", "x"), ("b", "x"))


def test_a_stage_that_is_cut_short(disk: SimDisk) -> None:
    world = on(disk)
    stage_in_both(world, b"1" * 50, b"2" * 50, b"3" * 50)
    path = "/data/stages/0000000000000002.stage"
    whole = disk.content(path)
    for content in (whole[:-8], whole[:300], whole[: whole.rindex(b"PSB1")]):
        disk.replace(path, content)
        refused(world, StageDamaged, ("a", "x"), ("b", "x"))
    disk.unlink(path)
    refused(world, StageDamaged, ("a", "x"), ("b", "x"))


def test_the_depth_is_set_aside(start: Start) -> None:
    world = start(max_depth=4)
    for topic in ("a", "b"):
        world.broker.topic(topic).channel("c")
        put(world, topic, block("x", b"1", b"2", b"3"))
    world.publish("b", b"plain")
    world.threads.held = True
    answers = begin(world, "app", 0, ("a", "x"), ("b", "x"))
    world.threads.run()
    world.turn()
    world.threads.run()
    world.turn()
    with pytest.raises(Refused, match="depth limit"):
        world.publish("b", b"too much")
    assert world.broker.topic("b").leader().tail.append_end_max == 1  # for PUB
    world.threads.held = False
    world.threads.run()
    settle(world)
    assert answers.answers == done(6)
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
    assert put(world, "t", block("x", body)).answers == [None]
    answers = commit(world, "app", 0, ("t", "x"))
    assert isinstance(answers.error, Refused)
    assert "do not fit" in str(answers.error)
    disk.capacity_bytes += 20_000
    assert commit(world, "app", 0, ("t", "x")).answers == done(1)


# --- deletion and the stop, in the middle ---


@pytest.mark.parametrize("durability", ["disk", "os"])
@pytest.mark.parametrize("after", range(12))
def test_a_topic_deleted_under_a_commit(start: Start, after: int, durability: str) -> None:
    world = start(durability=durability)
    stage_in_both(world, b"1", b"2", b"3")
    answers = begin(world, "app", 0, ("a", "x"), ("b", "x"))
    for _ in range(after):
        world.turn()
    world.broker.delete_topic("b")
    settle(world)
    world.broker.topic("b")
    if answers.answers == done(6):
        assert stored(world, "a") == [b"1", b"2", b"3"]
    else:
        assert isinstance(answers.error, NotFound)
        assert stored(world, "a") == []
    assert world.publish("a", b"plain").stored
    assert world.publish("b", b"plain").stored
    assert stored(world, "b") == [b"plain"]
    assert world.broker.health == "OK"


@pytest.mark.parametrize("after", range(10))
def test_a_stop_under_a_commit(after: int, world: World) -> None:
    stage_in_both(world, b"1", b"2", b"3")
    answers = begin(world, "app", 0, ("a", "x"), ("b", "x"))
    waiting = begin(world, "other", 0, ("a", "x"))
    for _ in range(after):
        world.turn()
    behind = world.publish("a", b"plain") if after < 3 else None
    world = world.restart()
    assert len(answers.answers) == len(waiting.answers) == 1
    assert behind is None or behind.stored
    whole = [b"1", b"2", b"3"]
    found = [[one for one in stored(world, topic) if one != b"plain"] for topic in ("a", "b")]
    assert found == ([whole, whole] if answers.answers == done(6) else [[], []])
    assert isinstance(answers.answers[0], Committed) or isinstance(answers.error, Refused)
