"""What is handed on stands once, what is refused not at all; without one of the rules it may."""

from __future__ import annotations

from collections import Counter

import pytest

from penstock.cluster.forwarding import ALL
from sim.forwarding.switches import HARNESS, SWITCHES
from sim.forwarding.world import World
from sim.switching import Switch

HISTORIES = 4_000


def test_what_is_handed_on_stands_once() -> None:
    assert HARNESS.find(0, HISTORIES) is None


def test_the_histories_have_in_them_what_they_are_about() -> None:
    seen: Counter[str] = Counter()
    for seed in range(100):
        world = World(seed)
        world.play()
        seen += world.seen
    least = {"OK": 1000, "REFUSED": 5, "UNKNOWN": 50, "stamped OK": 1000, "repeats": 300}
    assert {name: count for name, count in least.items() if seen[name] < count} == {}


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.off)
def test_its_absence_is_found(switch: Switch) -> None:
    assert HARNESS.without(switch) is not None, (
        f"{switch.seeds_max} histories do without {switch.off}"
    )


def test_every_rule_has_a_switch() -> None:
    assert [switch.off for switch in SWITCHES] == list(ALL._fields)
