"""Commits over several leaders at random: promises hold, and a rule that is gone is missed."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from penstock.cluster.commits.committer import Verdict
from penstock.cluster.commits.safeguards import ALL, Safeguards
from tests.cluster.commits.partition import Breach
from tests.cluster.commits.world import Focus, play

HISTORIES = 250  # of each block


@pytest.mark.parametrize("first", range(0, 4 * HISTORIES, HISTORIES))
def test_every_promise_holds(first: int) -> None:
    worlds = [play(seed) for seed in range(first, first + HISTORIES)]
    # A run in which nothing happens shows nothing.
    assert sum(len(world.decided) for world in worlds) > HISTORIES
    assert sum(world.fail_overs_in_a_part for world in worlds) > HISTORIES // 20
    for verdict in Verdict:
        assert sum(world.answers[verdict] for world in worlds) > HISTORIES // 2


def test_the_same_seed_is_the_same_history() -> None:
    one, two = play(4711), play(4711)
    assert one.answers == two.answers
    assert one.decided == two.decided
    assert [p.own.log for p in one.partitions.values()] == [
        p.own.log for p in two.partitions.values()
    ]


class Switch(NamedTuple):
    off: str
    seeds_max: int
    invariants: tuple[str, ...]
    focus: Focus = ()


SWITCHES = (
    Switch("parts_marked", 200, ("I32", "I33"), (("fail_over", 60),)),
    Switch("visible_outside_parts", 200, ("I32",)),
    Switch("whole_before_done", 200, ("I33",)),
    Switch("pinned_stages_kept", 200, ("I34",)),
    Switch("identities_compared", 200, ("I33",), (("make_again", 8),)),
    Switch("prepare_compared", 200, ("I33",)),
    Switch("version_compared", 50, ("I33",)),
    Switch("pins_with_set", 50, ("I33",)),
    Switch("unknown_settled_by_change", 400, ("I33",), (("give_up", 20), ("lose", 15))),
    Switch("stored_in_order", 100, ("I34",)),
    Switch("nothing_between", 300, ("I32",), (("publish", 60),)),
    Switch("later_view_only", 50, ("I33",)),
)


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.off)
def test_the_absence_of_a_rule_is_found(switch: Switch) -> None:
    guards = ALL._replace(**{switch.off: False})
    found = find(guards, switch)
    assert found is not None, f"{switch.seeds_max} histories do without {switch.off}"
    assert found.invariant in switch.invariants


@pytest.mark.parametrize("switch", [s for s in SWITCHES if s.focus], ids=lambda switch: switch.off)
def test_with_the_rule_in_its_place_the_same_histories_hold(switch: Switch) -> None:
    assert find(ALL, switch) is None


def find(guards: Safeguards, switch: Switch) -> Breach | None:
    for seed in range(switch.seeds_max):
        try:
            play(seed, guards, switch.focus)
        except Breach as breach:
            return breach
    return None


def test_every_rule_has_a_switch() -> None:
    assert [switch.off for switch in SWITCHES] == list(ALL._fields)
