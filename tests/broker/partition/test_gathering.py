"""When a row waits for publishers that were just answered."""

import pytest

from penstock import limits
from penstock.broker.partition.gathering import Gathering, RowGathering
from penstock.clock import NEVER_NS
from sim.clock import FakeClock

TOOK_NS = limits.ROW_GATHER_NS // 2


class Writer:
    def write(self, wall_ns: int) -> None:
        raise NotImplementedError


class World:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.gathering = Gathering()
        self.row = RowGathering(self.gathering, self.clock)
        self.writer = Writer()

    def commit(self, count: int, length: int = 1_000, waiting: int = 0) -> None:
        self.row.wrote()
        self.clock.pass_ns(TOOK_NS)
        self.row.committed(count, length, waiting)

    def waits(self, count: int, length: int = 1_000) -> bool:
        return bool(self.row.due_ns) and self.row.waits(self.writer, count, length)


@pytest.fixture
def world() -> World:
    return World()


def test_a_row_waits_until_most_of_those_who_were_answered_have_published_again(
    world: World,
) -> None:
    world.commit(24, waiting=26)
    assert world.waits(26)
    assert world.waits(46)
    assert not world.waits(47)  # three may have nothing more to say
    assert not world.waits(1)  # it was written


def test_it_waits_as_long_as_the_last_row_took_and_is_written_then(world: World) -> None:
    world.commit(24)
    assert world.waits(1)
    due_ns = world.gathering.due_ns
    assert due_ns == world.clock.mono_ns() + TOOK_NS
    assert world.gathering.take(due_ns - 1) == []
    world.clock.pass_ns(TOOK_NS)
    assert world.gathering.take(due_ns) == [world.writer]
    assert world.gathering.take(due_ns) == []
    assert world.gathering.due_ns == NEVER_NS
    assert not world.waits(1)


def test_a_slow_row_is_waited_for_no_longer_than_the_limit(world: World) -> None:
    world.row.wrote()
    world.clock.pass_ns(limits.SECOND)
    world.row.committed(24, 1_000, 0)
    assert world.waits(1)
    assert world.gathering.due_ns == world.clock.mono_ns() + limits.ROW_GATHER_NS


def test_for_publishers_who_do_not_come_rows_wait_ever_more_seldom(world: World) -> None:
    waited = []
    for number in range(15):
        world.commit(24)
        if world.waits(1):
            waited.append(number)
            world.clock.pass_ns(TOOK_NS)
            assert not world.waits(1)
    assert waited == [0, 2, 6, 14]
    for _ in range(15):
        world.commit(24)
    assert not world.waits(24)  # they came this time
    world.commit(24)
    assert world.waits(1)


@pytest.mark.parametrize(
    ("count", "length"),
    [(limits.ROW_GATHER_COUNT_MIN - 1, 100), (24, limits.ROW_GATHER_BYTES_MAX)],
    ids=["few messages", "many bytes"],
)
def test_after_a_row_of_few_messages_or_many_bytes_none_waits(
    world: World, count: int, length: int
) -> None:
    world.commit(count, length)
    assert not world.waits(1)


def test_a_row_of_many_bytes_is_not_held_back(world: World) -> None:
    world.commit(24)
    assert not world.waits(1, limits.ROW_GATHER_BYTES_MAX)
