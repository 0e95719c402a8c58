"""Two controllers: what a replaced one may still do, which is nothing."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.cluster.controller import ALL
from sim.controllers.switches import HARNESS, SWITCHES
from sim.controllers.world import World
from sim.switching import Switch

HISTORIES = 400
CALM_HISTORIES = 60


def test_a_controller_that_was_replaced_changes_nothing() -> None:
    assert HARNESS.find(0, HISTORIES) is None


def test_after_all_failures_everything_is_where_it_should_be() -> None:
    seen: Counter[str] = Counter()
    for seed in range(CALM_HISTORIES):
        world = World(seed)
        world.play(is_calm_after=True)
        seen += world.seen
    assert seen["in place"] > 5 * seen["waits for an operator"]


def test_the_histories_have_in_them_what_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(50):
        world = World(seed)
        world.play()
        seen += world.seen
    least = {"offices": 150, "applied": 300, "refused": 300, "late": 10}
    assert {name: count for name, count in least.items() if seen[name] < count} == {}


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.off)
def test_its_absence_is_found(switch: Switch) -> None:
    assert HARNESS.without(switch) is not None, (
        f"{switch.seeds_max} histories do without {switch.off}"
    )


def test_every_rule_has_a_switch() -> None:
    assert [switch.off for switch in SWITCHES] == list(ALL._fields)
