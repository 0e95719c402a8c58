"""Ids rise and are unique over clocks, failovers and replacements; without a rule they are not."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.cluster.idfloor import ALL
from sim.ids.switches import HARNESS, SWITCHES
from sim.ids.world import World
from sim.switching import Switch

HISTORIES = 4_000


def test_ids_rise_and_are_unique() -> None:
    assert HARNESS.find(0, HISTORIES) is None


def test_the_histories_have_in_them_what_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        world = World(seed)
        world.play()
        seen += world.seen
    least = {"made": 3000, "waited": 100, "elected": 500, "replaced": 200, "lost": 50}
    assert {name: count for name, count in least.items() if seen[name] < count} == {}


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.off)
def test_its_absence_is_found(switch: Switch) -> None:
    assert HARNESS.without(switch) is not None, (
        f"{switch.seeds_max} histories do without {switch.off}"
    )


def test_every_rule_has_a_switch() -> None:
    assert [switch.off for switch in SWITCHES] == list(ALL._fields)
