"""Retries over failovers store nothing twice, and each rule that is taken away is missed."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.replica.producerline import ALL
from sim.producers.switches import HARNESS, SWITCHES
from sim.producers.world import World
from sim.switching import Switch

HISTORIES = 1000
HISTORIES_PER_TEST = 250


@pytest.mark.parametrize("first", range(0, HISTORIES, HISTORIES_PER_TEST))
def test_a_message_is_stored_once_and_what_is_answered_is_stored(first: int) -> None:
    assert HARNESS.find(first, HISTORIES_PER_TEST) is None


def test_the_histories_have_in_them_what_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        world = World(seed)
        world.play()
        seen += world.seen
    least = {"elected": 300, "inherited": 100, "PENDING": 300, "STORED": 50, "cut": 50}
    least |= {"grown": 30, "wiped": 30, "shipped": 5}
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
        return world.committed, world.seen, world.epoch

    assert played() == played()
