"""NSQ's guid factory: its ids, its three errors, and why worker ids are bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.errors import (
    ConfigError,
    IdBackwards,
    IdNotMade,
    SequenceExpired,
    TimeBackwards,
)
from penstock.ids.factory import GuidFactory
from penstock.ids.guid import SEQUENCES_PER_TICK, make, parse
from sim.clock import FakeClock

NOW_NS = 1_700_000_000 * 10**9
TICK_NS = 1 << 20


def still() -> FakeClock:
    return FakeClock(NOW_NS)


def test_the_ids_that_nsq_makes() -> None:
    """Worked out by hand: 1621246337890 - 1288834974288 ticks."""
    assert GuidFactory(7, still()).new_id() == 0x135950B844807000
    factory = GuidFactory(1023, still())
    last = [factory.new_id() for _ in range(SEQUENCES_PER_TICK)][-1]
    assert last == 0x135950B844BFFFFF


def test_ids_of_a_tick_and_of_the_next() -> None:
    clock = still()
    factory = GuidFactory(3, clock)
    first, second = factory.new_id(), factory.new_id()
    clock.wall_step_ns += TICK_NS
    third = factory.new_id()
    assert [parse(id).sequence for id in (first, second, third)] == [0, 1, 0]
    assert first < second < third == factory.last_id
    assert {parse(id).node for id in (first, second, third)} == {3}


def test_a_used_up_tick_and_what_comes_behind_it() -> None:
    clock = still()
    factory = GuidFactory(3, clock)
    made = [factory.new_id() for _ in range(SEQUENCES_PER_TICK)]
    assert made == sorted(set(made))
    with pytest.raises(SequenceExpired, match="all 4096 ids of tick"):
        factory.new_id()
    for _ in range(3):
        with pytest.raises(IdBackwards) as raised:
            factory.new_id()
        assert raised.value.last_id == made[-1]
    clock.wall_step_ns += TICK_NS
    assert factory.new_id() > made[-1]


def test_a_clock_that_steps_back() -> None:
    clock = still()
    factory = GuidFactory(3, clock)
    last = factory.new_id()
    clock.wall_step_ns -= TICK_NS
    with pytest.raises(TimeBackwards) as raised:
        factory.new_id()
    assert raised.value.tick == raised.value.last_tick - 1
    clock.wall_step_ns += TICK_NS
    assert factory.new_id() == last + 1


@pytest.mark.parametrize("now_ns", [0, 1_300_000_000 * 10**9, 1 << 63])
def test_a_clock_for_which_there_are_no_ids(now_ns: int) -> None:
    with pytest.raises(TimeBackwards):
        GuidFactory(3, FakeClock(now_ns)).new_id()


@pytest.mark.parametrize("worker_id", [-1, 1024, 4095])
def test_worker_ids_have_ten_bits(worker_id: int) -> None:
    with pytest.raises(ConfigError, match="between 0 and 1023"):
        GuidFactory(worker_id, still())


def test_worker_ids_of_12_bits_would_collide() -> None:
    """What an early NSQ let happen: the upper two bits lie over the lowest two of the tick."""
    tick = 332411363600
    assert make(tick, 1024 + 7, 5) == make(tick + 1, 7, 5)
    assert make(tick, 3 * 1024 + 7, 5) == make(tick + 3, 7, 5)
    within = {make(tick + n, worker, 5) for n in range(4) for worker in range(1024)}
    assert len(within) == 4 * 1024
    wider = [make(tick + n, worker, 5) for n in range(4) for worker in range(4096)]
    assert len(set(wider)) < len(wider)


def test_threads_get_different_ids() -> None:
    clock = still()
    factory = GuidFactory(3, clock)

    def some(_: int) -> list[int]:
        made = []
        while len(made) < 500:
            try:
                made.append(factory.new_id())
            except IdNotMade:
                clock.wall_step_ns += TICK_NS
        return made

    with ThreadPoolExecutor(4) as pool:
        made = [id for part in pool.map(some, range(16)) for id in part]
    assert len(set(made)) == 8000
