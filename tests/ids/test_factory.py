"""NSQ's guid factory: its ids, its three errors, and why worker ids are bounded."""

import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.lookupd import eventually
from penstock.errors import (
    ConfigError,
    IdBackwards,
    IdNotMade,
    IdPoolClosed,
    IdPoolEmpty,
    SequenceExpired,
    TimeBackwards,
)
from penstock.ids.factory import GuidFactory, IdPool
from penstock.ids.guid import SEQUENCES_PER_TICK, IdRange, make, parse, tick_of
from penstock.kernel import id_at, id_index
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


@pytest.mark.parametrize("now_ns", [0, 1_300_000_000 * 10**9, 1 << 63])
def test_a_clock_for_which_there_are_no_ids(now_ns: int) -> None:
    with pytest.raises(TimeBackwards):
        GuidFactory(3, FakeClock(now_ns)).new_id()


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


NOW_NS_GUID = 1_790_000_000 * 10**9

nodes = st.integers(0, 1023)
walls = st.one_of(
    st.integers(NOW_NS_GUID - 10**9, NOW_NS_GUID + 10**9), st.integers(-(10**18), 2**62)
)


def test_an_id_seen_on_a_real_nsqd() -> None:
    parts = parse(0x18A26F9AC7A69000)
    assert (parts.node, parts.sequence) == (617, 0)
    assert make(parts.tick, parts.node, parts.sequence) == 0x18A26F9AC7A69000
    assert tick_of(parts.time_ns) == parts.tick
    assert 2024 < 1970 + parts.time_ns / (365.25 * 86400e9) < 2030


@pytest.mark.parametrize("node_id", [-1, 1024, 10**9])
def test_a_node_id_out_of_range_is_a_config_error(node_id: int) -> None:
    with pytest.raises(ConfigError) as caught:
        IdRange(node_id)
    assert (caught.value.name, caught.value.value) == ("node-id", node_id)


@given(
    nodes,
    st.lists(
        st.tuples(st.integers(1, 20_000), walls, st.one_of(st.none(), nodes)),
        min_size=1,
        max_size=30,
    ),
)
def test_ids_rise_whatever_the_clock_does_and_whoever_goes_on(
    node: int, takes: list[tuple[int, int, int | None]]
) -> None:
    ids = IdRange(node)
    highest = 0
    for count, wall_ns, next_node in takes:
        if next_node is not None:  # a restart, perhaps under another node id
            ids = IdRange(next_node, ids.last_id)
        base = ids.take(count, wall_ns)
        assert base > highest
        assert parse(base).node == ids.node_id
        highest = id_at(base, count - 1)
        assert highest == ids.last_id
        assert id_index(base, count, highest) == count - 1


def test_taking_no_ids_returns_none() -> None:
    with pytest.raises(ValueError, match="at least one"):
        IdRange(0).take(0, NOW_NS_GUID)


# --- ids in stock: bounded, rising, and waited for ---


PATIENCE_S = 40.0


class Clock(FakeClock):
    def __init__(self, wall_ns: int = NOW_NS) -> None:
        super().__init__(wall_ns)
        self.reads = 0

    def wall_ns(self) -> int:
        self.reads += 1
        return super().wall_ns()


def pool_of(clock: Clock, count_max: int = 10) -> IdPool:
    return IdPool(GuidFactory(7, clock), clock, count_max)


def test_takers_wait_for_new_ids() -> None:
    """The clock stands still, so one tick's ids are all there are."""
    clock = Clock()
    with pool_of(clock) as pool:
        made = [pool.take() for _ in range(SEQUENCES_PER_TICK)]
        with pytest.raises(IdPoolEmpty, match=r"no id within 0\.01 s"):
            pool.take(0.01)
        with ThreadPoolExecutor(2) as threads:
            waiting = [threads.submit(pool.take) for _ in range(2)]
            assert not wait_for(waiting, 0.02).done
            clock.wall_step_ns += TICK_NS
            made += [one.result(PATIENCE_S) for one in waiting]
    assert len(set(made)) == SEQUENCES_PER_TICK + 2
    assert made[:SEQUENCES_PER_TICK] == sorted(made[:SEQUENCES_PER_TICK])


def test_a_clock_that_steps_back_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with pool_of(clock, 1) as pool:
        before = pool.take()
        eventually(lambda: len(pool) == 1)
        clock.wall_step_ns -= 5 * TICK_NS
        in_stock = pool.take()
        with pytest.raises(IdPoolEmpty):
            pool.take(0.05)
        clock.wall_step_ns += 6 * TICK_NS
        assert before < in_stock < pool.take(PATIENCE_S)
    text = [record.getMessage() for record in caplog.records]
    step = "tick 332411363597 comes after tick 332411363602"
    assert text == [f"ids: time went backwards: {step}; trying again"]  # once, however often


def test_close_wakes_waiting_threads() -> None:
    pool = pool_of(Clock(0))
    pool.start()
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(pool.take)
        pool.close()
        with pytest.raises(IdPoolClosed):
            waiting.result(PATIENCE_S)
    with pytest.raises(IdPoolClosed):
        pool.start()
    assert "penstock ids" not in [thread.name for thread in threading.enumerate()]


def test_a_pool_that_was_not_started_has_none() -> None:
    pool = pool_of(Clock())
    with pytest.raises(IdPoolClosed, match="not started"):
        pool.take()
    pool.close()
    with pytest.raises(ConfigError, match="count_max"):
        pool_of(Clock(), 0)


@given(st.integers(0, 2**41 - 1), nodes, st.integers(0, 4095))
def test_make_and_parse_are_inverse(tick: int, node: int, sequence: int) -> None:
    parts = parse(make(tick, node, sequence))
    assert parts[:3] == (tick, node, sequence)


def test_a_worker_id_has_ten_bits_because_wider_ones_collide() -> None:
    """What an early NSQ let happen: the upper two bits lie over the lowest two of the tick."""
    tick = 332411363600
    assert make(tick, 1024 + 7, 5) == make(tick + 1, 7, 5)
    within = {make(tick + n, worker, 5) for n in range(4) for worker in range(1024)}
    assert len(within) == 4 * 1024
    for worker in (-1, 1024):
        with pytest.raises(ConfigError, match="ten bits"):
            GuidFactory(worker, still())
