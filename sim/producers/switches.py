"""Each rule of the producers' table taken away, and within how many histories that is noticed."""

from __future__ import annotations

from penstock.replica.producerline import ALL
from sim.producers.world import Broken, World
from sim.switching import Harness, Switch

HARNESS = Harness(lambda seed, rules: World(seed, rules).play(), Broken, ALL)
SWITCHES = (
    Switch("committed_only", 50),
    Switch("saved_below_committed", 100),
    Switch("shipped_to_learners", 1_200),
)
