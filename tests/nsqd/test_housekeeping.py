"""What a node does each second, on a loop whose time stands still."""

from typing import Any

import pytest

from penstock import limits
from penstock.nsqd.assembly import Housekeeping
from sim.clock import FakeClock
from sim.loop import FakeLoop


class World:
    """Broker and turn in one that take notes."""

    def __init__(self) -> None:
        clock = FakeClock()
        self.loop: Any = FakeLoop(clock)
        self.notes: list[tuple[int, str]] = []
        self.slices = 0  # of a search, that are left
        self.faults: list[str] = []
        self._clock = clock
        me: Any = self
        self.delays = me
        self.house = Housekeeping(
            self.loop, me, me, lambda: self._note("each second"),
            lambda error: self.faults.append(str(error)),
        )  # fmt: skip

    def pass_s(self, seconds: float) -> list[tuple[int, str]]:
        """What was done meanwhile, each with its millisecond."""
        self.notes.clear()
        self.loop.pass_ns(int(seconds * limits.SECOND), lambda: None)
        return self.notes

    def _note(self, what: str) -> None:
        self.notes.append((self._clock.since_ns // limits.MS, what))

    def housekeeping(self) -> None:
        self._note("housekeeping")

    def slice(self) -> bool:
        self._note("search")
        self.slices -= 1
        return self.slices > 0

    def tick(self) -> None:
        self._note("tick")

    def soon(self) -> None:
        self._note("soon")


@pytest.fixture
def world() -> World:
    world = World()
    world.house.start()
    return world


def test_each_second_begins_at_once(world: World) -> None:
    everything = ("each second", "housekeeping", "search", "tick")
    assert world.notes == [(0, what) for what in everything]
    assert world.pass_s(2) == [(at, what) for at in (1_000, 2_000) for what in everything]


def test_a_search_goes_in_slices_with_a_pause_and_a_turn_between_them(world: World) -> None:
    world.slices = 3
    searches = [at for at, what in world.pass_s(1.999) if what == "search"]
    pause_ms = limits.SEARCH_PAUSE_NS // limits.MS
    assert searches == [1_000, 1_000 + pause_ms, 1_000 + 2 * pause_ms]
    assert [at for at, what in world.notes if what == "soon"] == searches[:2]


def test_a_search_that_lasts_is_not_begun_twice(world: World) -> None:
    world.slices = 1 << 30
    searches = [at for at, what in world.pass_s(3.0) if what == "search"]
    assert len(searches) == len(set(searches)) > 3


@pytest.mark.parametrize("place", ["housekeeping", "slice"])
def test_a_fault_is_reported(world: World, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    def broken() -> bool:
        raise RuntimeError("impossible")

    monkeypatch.setattr(world, place, broken)
    world.pass_s(1)
    assert world.faults == ["impossible"]
