"""A node of the walk: it reads the coordinator's changes when the dice say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.replica.effects import Propose
from penstock.replica.frames import Target
from sim.protocol.coordinator import Entry
from sim.whole.machine import Machine

if TYPE_CHECKING:
    from sim.whole.world import WholeWorld


class Walker(Machine):
    def __init__(self, world: WholeWorld, number: int, replica: int) -> None:
        self.walk = world
        self.entry = Entry(0, 0, 0)
        self.lives: dict[int, int] = {}
        self.place = 0  # in the coordinator's changes
        self.electing = False
        super().__init__(world, number, replica)

    def start(self) -> None:
        super().start()
        self.electing = False
        self.place, self.lives = 0, {}

    def written_generation(self) -> int:
        return self.walk.coordinator.entries[self.number].generation

    def register(self) -> None:
        self.entry = Entry(self.generation, self.memory_lost_generation, self.life)
        self.walk.coordinator.register(self.number, self.entry)
        self.active = True

    def propose(self, target: Target, proposal: Propose) -> None:
        self.walk.submit(self, *proposal)

    def read(self, target: Target) -> None:
        self.walk.reads.append((self.number, self.life))
