"""The rule of a controller's transactions taken away, and how soon that is noticed."""

from __future__ import annotations

from penstock.cluster.controller import ALL
from sim.controllers.world import Broken, World
from sim.switching import Harness, Switch

HARNESS = Harness(lambda seed, rules: World(seed, rules).play(), Broken, ALL)
SWITCHES = (Switch("key_compared", 400),)
