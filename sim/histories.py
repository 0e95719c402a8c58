"""Many histories of a world, on all cores, and what happened in them."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple


class Breach(Exception):
    """A promise is broken: which one, and how."""

    def __init__(self, invariant: str, text: str) -> None:
        super().__init__(f"{invariant}: {text}")
        self.invariant = invariant


class Tally(NamedTuple):
    """What happened in histories, so that a run in which nothing happens is seen to be void."""

    histories: int = 0
    answered: int = 0  # publishes, or messages, that were answered OK
    leaderships: int = 0
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


class Kind(NamedTuple):
    """Of histories."""

    play: Callable[[int], Tally]  # raises Breach
    block: int  # that one process plays before it reports
    kept_max: int  # worlds before the garbage is collected: they are objects in cycles


def find(play: Callable[[int], object], first: int, count: int) -> Found | None:
    """The first breach among these seeds."""
    for seed in range(first, first + count):
        try:
            play(seed)
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


def play_block(kind: Kind, first: int, count: int) -> Block:
    begun = time.process_time()
    tally, found = Tally(), []
    with own_garbage_only() as collect:
        for seed in range(first, first + count):
            try:
                tally = tally.plus(kind.play(seed))
            except Breach as breach:
                found.append(Found(seed, breach.invariant, str(breach)))
            if seed % kind.kept_max == 0:
                collect()
    return Block(tally, tuple(found), time.process_time() - begun)


def play_many(kind: Kind, first: int, count: int, processes: int = 0) -> Iterator[Block]:
    """On all cores, a block at a time."""
    starts = range(first, first + count, kind.block)
    sizes = [min(kind.block, first + count - start) for start in starts]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        yield from pool.map(partial(play_block, kind), starts, sizes)
