"""Each rule of the ids taken away, and within how many histories that is noticed."""

from __future__ import annotations

from penstock.cluster.idfloor import ALL
from sim.ids.world import Broken, World
from sim.switching import Harness, Switch

HARNESS = Harness(lambda seed, rules: World(seed, rules).play(), Broken, ALL)
SWITCHES = (
    Switch("above_log", 50),
    Switch("above_floor", 50),
    Switch("reserved_first", 50),
)
