"""Each rule of the journal taken away, and within how many histories that is noticed."""

from __future__ import annotations

from typing import NamedTuple

from penstock.replica.journalline import ALL, JournalGuards
from penstock.sim.journals.node import Broken
from penstock.sim.journals.world import World


class Switch(NamedTuple):
    off: str
    seeds_max: int

    def guards(self) -> JournalGuards:
        return ALL._replace(**{self.off: False})

    def find(self) -> str | None:
        """The first seed that shows it, and what was broken."""
        return find(0, self.seeds_max, self.guards())


SWITCHES = (
    Switch("generations_have_epochs", 50),
    Switch("older_refused", 2_000),
    Switch("begun_by_snapshot", 50),
    Switch("answered_when_held", 50),
    Switch("held_when_synced", 500),
    Switch("syncs_asked_for", 50),
    Switch("dropped_when_held", 200),
    Switch("starts_end_with_generation", 50),
    Switch("level_with_set", 100),
    Switch("ordered_when_held", 50),
    Switch("start_from_leader", 50),
)


def find(first: int, count: int, guards: JournalGuards = ALL) -> str | None:
    for seed in range(first, first + count):
        try:
            World(seed, guards).play()
        except Broken as error:
            return f"seed {seed}: {error}"
    return None
