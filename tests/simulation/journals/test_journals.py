"""Journals of three nodes keep what was answered, and each rule that is taken away is missed."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.replica.journalline import ALL
from sim.journals.switches import HARNESS, SWITCHES
from sim.journals.world import World
from sim.switching import Switch

HISTORIES = 500
HISTORIES_PER_TEST = 125


@pytest.mark.parametrize("first", range(0, HISTORIES, HISTORIES_PER_TEST))
def test_nothing_that_was_answered_is_undone(first: int) -> None:
    assert HARNESS.find(first, HISTORIES_PER_TEST) is None


def test_the_histories_have_in_them_what_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        world = World(seed)
        world.play()
        seen += world.seen
    least = {
        "elected": 300,
        "answered": 100,
        "late": 100,
        "stopped": 300,
        "wiped": 50,
        "shrunk": 30,
    }
    least |= {"grown": 3, "asked": 1, "held": 1000}
    assert {name: count for name, count in least.items() if seen[name] < count} == {}


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.off)
def test_its_absence_is_found(switch: Switch) -> None:
    assert HARNESS.without(switch) is not None, (
        f"{switch.seeds_max} histories do without {switch.off}"
    )


def test_every_rule_has_a_switch() -> None:
    assert [switch.off for switch in SWITCHES] == list(ALL._fields)


def test_a_seed_plays_the_same_history_again() -> None:
    def played() -> tuple[object, ...]:
        world = World(7)
        world.play()
        return world.books, world.seen, world.answered, world.epoch

    assert played() == played()
