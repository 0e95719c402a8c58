"""Histories of the protocol world: one by its seed, or many on all cores."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from penstock.replica.safeguards import ALL, Safeguards
from sim.protocol.calm import calms_down
from sim.protocol.observer import Breach
from sim.protocol.world import Focus, World

BLOCK = 1000  # histories that one process plays before it reports
WORLDS_KEPT_MAX = 100  # before the garbage is collected: a world is thousands of objects in cycles


class Tally(NamedTuple):
    """What happened in histories, so that a run in which nothing happens is seen to be void."""

    histories: int = 0
    committed: int = 0  # publishes that were answered OK
    offices: int = 0
    growths: int = 0
    shrinks: int = 0
    cuts: int = 0

    def plus(self, other: Tally) -> Tally:
        return Tally(*(one + two for one, two in zip(self, other, strict=True)))


class Found(NamedTuple):
    seed: int
    invariant: str
    text: str


class Block(NamedTuple):
    tally: Tally
    found: tuple[Found, ...]
    cpu_seconds: float


def play(seed: int, guards: Safeguards = ALL, reckless: bool = False, focus: Focus = ()) -> Tally:
    """One history. Raises `Breach`."""
    world = World(seed, guards, reckless, focus)
    world.run()
    calms_down(world, seed)
    seen = world.observer
    world.end()
    return Tally(1, seen.answered, seen.offices, seen.growths, seen.shrinks, seen.cuts)


def find(
    first: int,
    count: int,
    guards: Safeguards = ALL,
    reckless: bool = False,
    focus: Focus = (),
) -> Found | None:
    """The first breach among these seeds."""
    for seed in range(first, first + count):
        try:
            play(seed, guards, reckless, focus)
        except Breach as breach:
            return Found(seed, breach.invariant, str(breach))
    return None


def _collect_young() -> None:
    gc.collect(0)


@contextmanager
def own_garbage_only() -> Iterator[Callable[[], None]]:
    """By itself the collector would look at the living world over and over again, and at what else
    the process has. What is made in here is young until the call that is given out."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield _collect_young
    finally:
        if collects:
            gc.enable()


def play_block(first: int, count: int) -> Block:
    begun = time.process_time()
    tally, found = Tally(), []
    with own_garbage_only() as collect:
        for seed in range(first, first + count):
            try:
                tally = tally.plus(play(seed))
            except Breach as breach:
                found.append(Found(seed, breach.invariant, str(breach)))
            if seed % WORLDS_KEPT_MAX == 0:
                collect()
    return Block(tally, tuple(found), time.process_time() - begun)


def play_many(first: int, count: int, processes: int = 0) -> Iterator[Block]:
    """On all cores, a block at a time."""
    starts = range(first, first + count, BLOCK)
    sizes = [min(BLOCK, first + count - start) for start in starts]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        yield from pool.map(play_block, starts, sizes)
