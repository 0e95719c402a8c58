"""Each rule of a leader's authority taken away, and within how many histories that is noticed."""

from __future__ import annotations

from penstock.replica.authority import ALL
from sim.authority.world import Broken, World
from sim.switching import Harness, Switch

HARNESS = Harness(lambda seed, rules: World(seed, rules).play(), Broken, ALL)
SWITCHES = (
    Switch("authority_needed", 50),
    Switch("lone_leader_bounded", 50),
)
