"""Each rule of a leader's authority taken away, and within how many histories that is noticed."""

from __future__ import annotations

from typing import NamedTuple

from penstock.replica.authority import ALL, AuthorityGuards
from penstock.sim.authority.world import Broken, World


class Switch(NamedTuple):
    off: str
    seeds_max: int

    def find(self) -> str | None:
        """The first seed that shows it, and what was broken."""
        return find(0, self.seeds_max, ALL._replace(**{self.off: False}))


SWITCHES = (
    Switch("authority_needed", 50),
    Switch("lone_leader_bounded", 50),
)


def find(first: int, count: int, guards: AuthorityGuards = ALL) -> str | None:
    for seed in range(first, first + count):
        try:
            World(seed, guards).play()
        except Broken as error:
            return f"seed {seed}: {error}"
    return None
