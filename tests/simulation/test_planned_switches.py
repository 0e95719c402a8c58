"""The table of the plan's switches in docs/simulation.md says what the worlds do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from sim.authority import switches as authority
from sim.controllers import switches as controllers
from sim.forwarding import switches as forwarding
from sim.ids import switches as ids
from sim.journals import switches as journals
from sim.producers import switches as producers
from sim.protocol import switches as protocol
from sim.timed import scenarios as timed
from tests.cluster import test_rotten as rotten
from tests.cluster import test_slow_view as slow_view
from tests.cluster import test_starts as starts
from tests.cluster import test_watching_restored as watching
from tests.cluster.commits import test_world as commits
from tests.log import test_replica_power_loss as power_loss

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "simulation.md"
ROW = re.compile(r"\| M(\d+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|")
PLANNED = 72
CANARY = 72
NOT_SHOWN = {32}

WORLDS: dict[str, dict[str, int]] = {
    "protocol": {one.off: one.seeds_max for one in protocol.SWITCHES},
    "journals": {one.off: one.seeds_max for one in journals.SWITCHES},
    "producers": {one.off: one.seeds_max for one in producers.SWITCHES},
    "timed": {one.off: one.seeds_max for one in timed.SWITCHES},
    "ids": {one.off: one.seeds_max for one in ids.SWITCHES},
    "authority": {one.off: one.seeds_max for one in authority.SWITCHES},
    "controllers": {one.off: one.seeds_max for one in controllers.SWITCHES},
    "forwarding": {one.off: one.seeds_max for one in forwarding.SWITCHES},
    "commits": {one.off: one.seeds_max for one in commits.SWITCHES},
    "rotten": {one.off: one.seeds_max for one in rotten.SWITCHES},
    "power loss": {one.off: one.seeds_max for one in power_loss.SWITCHES},
    "slow view": {one.off: one.seeds_max for one in slow_view.SWITCHES},
    "starts": dict(starts.SWITCHES),
    "watching": dict(watching.SWITCHES),
}


class Row(NamedTuple):
    number: int
    world: str
    switch: str
    seeds_max: str


def rows() -> list[Row]:
    found = ROW.findall(DOCUMENT.read_text())
    return [Row(int(number), *rest) for number, _, *rest in found]


def test_every_planned_switch_has_a_row() -> None:
    assert [row.number for row in rows()] == list(range(1, PLANNED + 1))


def test_each_row_names_a_switch_of_its_world_and_its_number() -> None:
    for row in rows():
        if row.number in NOT_SHOWN or row.number == CANARY:
            continue
        known = WORLDS[row.world]
        assert row.seeds_max == f"{known[row.switch.strip('`')]:,}", f"M{row.number}"


def test_no_switch_stands_for_two() -> None:
    named = [(row.world, row.switch) for row in rows() if row.number not in NOT_SHOWN]
    assert len(set(named)) == len(named)


def test_what_no_world_shows_is_said() -> None:
    assert {row.number for row in rows() if row.world == "–"} == NOT_SHOWN
