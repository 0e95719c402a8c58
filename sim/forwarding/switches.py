"""Each rule of forwarding taken away, and within how many histories that is noticed."""

from __future__ import annotations

from penstock.cluster.forwarding import ALL
from sim.forwarding.world import Broken, World
from sim.switching import Harness, Switch

HARNESS = Harness(lambda seed, rules: World(seed, rules).play(), Broken, ALL)
SWITCHES = (
    Switch("stamp_picks_partition", 50),
    Switch("unknown_stays", 50),
    Switch("unknown_is_told", 50),
)
