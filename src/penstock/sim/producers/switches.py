"""Each rule of the producers' table taken away, and within how many histories that is noticed."""

from __future__ import annotations

from typing import NamedTuple

from penstock.replica.producerline import ALL, ProducerGuards
from penstock.sim.producers.world import Broken, World


class Switch(NamedTuple):
    off: str
    seeds_max: int

    def find(self) -> str | None:
        """The first seed that shows it, and what was broken."""
        return find(0, self.seeds_max, ALL._replace(**{self.off: False}))


SWITCHES = (
    Switch("committed_only", 50),
    Switch("saved_below_committed", 100),
    Switch("shipped_to_learners", 500),
)


def find(first: int, count: int, guards: ProducerGuards = ALL) -> str | None:
    for seed in range(first, first + count):
        try:
            World(seed, guards).play()
        except Broken as error:
            return f"seed {seed}: {error}"
    return None
