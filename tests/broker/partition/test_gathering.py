"""When an append waits for publishers that were just answered."""

from typing import Any

import pytest

from penstock import limits
from penstock.broker.partition.gathering import Gathering, RowGathering
from penstock.clock import NEVER_NS
from sim.clock import FakeClock

from ..world import Outcome, World
from .test_group_commit import writes

TOOK_NS = limits.APPEND_GATHER_NS // 2


class Gathered:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.gathering = Gathering()
        self.append = RowGathering(self.gathering, self.clock)
        self.writer: Any = object()  # it is not asked for anything

    def commit(self, count: int, length: int = 1_000, waiting: int = 0) -> None:
        self.append.wrote()
        self.clock.pass_ns(TOOK_NS)
        self.append.committed(count, length, waiting)

    def waits(self, count: int, length: int = 1_000) -> bool:
        return bool(self.append.due_ns) and self.append.waits(self.writer, count, length)


@pytest.fixture
def one() -> Gathered:
    return Gathered()


def test_an_append_waits_for_most_of_the_answered_publishers(one: Gathered) -> None:
    one.commit(24, waiting=26)
    assert one.waits(26)
    assert one.waits(46)
    assert not one.waits(47)  # three may have nothing more to say
    assert not one.waits(1)  # it was written


def test_an_append_waits_at_most_as_long_as_the_last_one_took(one: Gathered) -> None:
    one.commit(24)
    assert one.waits(1)
    due_ns = one.gathering.due_ns
    assert due_ns == one.clock.mono_ns() + TOOK_NS
    assert one.gathering.take(due_ns - 1) == []
    one.clock.pass_ns(TOOK_NS)
    assert one.gathering.take(due_ns) == [one.writer]
    assert one.gathering.take(due_ns) == []
    assert one.gathering.due_ns == NEVER_NS
    assert not one.waits(1)


def test_a_wait_behind_a_slow_append_is_limited(one: Gathered) -> None:
    one.append.wrote()
    one.clock.pass_ns(limits.SECOND)
    one.append.committed(24, 1_000, 0)
    assert one.waits(1)
    assert one.gathering.due_ns == one.clock.mono_ns() + limits.APPEND_GATHER_NS


def test_waits_become_rare_without_returning_publishers(one: Gathered) -> None:
    waited = []
    for number in range(15):
        one.commit(24)
        if one.waits(1):
            waited.append(number)
            one.clock.pass_ns(TOOK_NS)
            assert not one.waits(1)
    assert waited == [0, 2, 6, 14]
    for _ in range(15):
        one.commit(24)
    assert not one.waits(24)  # they came this time
    one.commit(24)
    assert one.waits(1)


@pytest.mark.parametrize(
    ("count", "length"),
    [(limits.APPEND_GATHER_COUNT_MIN - 1, 100), (24, limits.APPEND_GATHER_BYTES_MAX)],
    ids=["few messages", "many bytes"],
)
def test_nothing_waits_after_small_or_large_appends(one: Gathered, count: int, length: int) -> None:
    one.commit(count, length)
    assert not one.waits(1)


def test_a_large_append_does_not_wait(one: Gathered) -> None:
    one.commit(24)
    assert not one.waits(1, limits.APPEND_GATHER_BYTES_MAX)


def test_a_stop_stores_and_answers_gathered_publishes(world: World) -> None:
    world.broker.topic("t").channel("a")
    world.threads.held = True
    for number in range(10):
        world.publish("t", b"%d" % number)
    for _ in range(2):
        world.clock.pass_ns(TOOK_NS)
        world.threads.run()
        world.turns()
    late = world.publish("t", b"late")
    assert world.broker.gathering.due_ns != NEVER_NS
    assert not late.answers
    world.close()
    assert late.stored


def test_publishers_who_wait_for_each_answer_share_a_sync(
    monkeypatch: pytest.MonkeyPatch, world: World
) -> None:
    world.broker.topic("t").channel("a")
    seen = writes(world, monkeypatch)

    def publish(count: int) -> list[Outcome]:
        return [world.publish("t", b"%d" % number) for number in range(count)]

    def end_sync() -> None:
        world.clock.pass_ns(TOOK_NS)
        world.threads.run()
        world.turns()

    world.threads.held = True
    publish(1)
    half = publish(20)
    end_sync()
    other = publish(20)
    end_sync()
    assert all(one.stored for one in half)
    assert seen == [1, 20]  # else the other half were an append by themselves
    publish(18)
    assert seen == [1, 20, 38]
    end_sync()
    assert all(one.stored for one in other)
    late = publish(3)
    world.clock.pass_ns(TOOK_NS)
    world.turn()
    assert seen == [1, 20, 38, 3]
    end_sync()
    assert all(one.stored for one in late)
