"""Each rule of forwarding taken away, and within how many histories that is noticed."""

from __future__ import annotations

from typing import NamedTuple

from penstock.cluster.forwarding import ALL, ForwardGuards
from penstock.sim.forwarding.world import Broken, World


class Switch(NamedTuple):
    off: str
    seeds_max: int

    def find(self) -> str | None:
        """The first seed that shows it, and what was broken."""
        return find(0, self.seeds_max, ALL._replace(**{self.off: False}))


SWITCHES = (
    Switch("stamp_picks_partition", 50),
    Switch("unknown_stays", 50),
    Switch("unknown_is_told", 50),
)


def find(first: int, count: int, guards: ForwardGuards = ALL) -> str | None:
    for seed in range(first, first + count):
        try:
            World(seed, guards).play()
        except Broken as error:
            return f"seed {seed}: {error}"
    return None
