"""Each rule of the journal taken away, and within how many histories that is noticed."""

from __future__ import annotations

from penstock.replica.journalline import ALL
from sim.journals.node import Broken
from sim.journals.world import World
from sim.switching import Harness, Switch

HARNESS = Harness(lambda seed, rules: World(seed, rules).play(), Broken, ALL)
SWITCHES = (
    Switch("generations_have_epochs", 50),
    Switch("older_refused", 2_000),
    Switch("begun_by_snapshot", 50),
    Switch("answered_when_held", 50),
    Switch("held_when_synced", 500),
    Switch("syncs_asked_for", 50),
    Switch("dropped_when_held", 200),
    Switch("starts_end_with_generation", 50),
    Switch("level_with_set", 400),
    Switch("stages_before_place", 2_500),
    Switch("ordered_when_held", 50),
    Switch("start_from_leader", 50),
)
