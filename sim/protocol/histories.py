"""Histories of the protocol world: one by its seed."""

from sim.histories import Kind, Tally
from sim.protocol.calm import calms_down
from sim.protocol.world import Focus, World


def play(seed: int, reckless: bool = False, focus: Focus = ()) -> Tally:
    """One history. Raises `Breach`."""
    world = World(seed, reckless, focus)
    world.run()
    calms_down(world, seed)
    seen = world.observer
    world.end()
    return Tally(1, seen.answered, seen.leaderships, seen.growths, seen.shrinks, seen.cuts)


PROTOCOL = Kind(play, block=1000, kept_max=100)
