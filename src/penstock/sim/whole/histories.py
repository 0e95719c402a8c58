"""Histories of the whole world: one by its seed, and what happened in it."""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from typing import NamedTuple

from penstock.sim.protocol.histories import Found, own_garbage_only
from penstock.sim.protocol.observer import Breach
from penstock.sim.whole.world import KERNELS, WholeWorld, calm

BLOCK = 50  # histories that one process plays before it reports
WORLDS_KEPT_MAX = 10  # before the garbage is collected: their disks are a few MiB


class WholeTally(NamedTuple):
    """So that a run in which nothing happens is seen to be void."""

    histories: int = 0
    answered: int = 0  # messages that were answered OK
    offices: int = 0
    growths: int = 0
    cuts: int = 0

    def plus(self, other: WholeTally) -> WholeTally:
        return WholeTally(*(one + two for one, two in zip(self, other, strict=True)))


class Played(NamedTuple):
    tally: WholeTally
    digest: str  # of all logs at the end: the same seed gives the same bytes


@contextmanager
def quiet() -> Iterator[None]:
    """Injected faults are no news."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def play(
    seed: int,
    kernel: str = "",
    canary: bool = False,
    make: Callable[[int, str, bool], WholeWorld] = WholeWorld,
) -> Played:
    """One history. Raises `Breach`. Without a kernel, odd seeds have the plain one."""
    with quiet():
        world = make(seed, kernel or KERNELS[(seed + 1) % 2], canary)
        try:
            world.happened(0, "the beginning")
            for number, event in enumerate(world.draw(), 1):
                world.step(event)
                world.happened(number, event.__name__.replace("_", " "))
            leader = calm(world)
            world.happened(number + 1, "the end")
            world.observer.check_kept(leader)
            return Played(_tally(world), _digest(world))
        finally:
            world.close()


def _tally(world: WholeWorld) -> WholeTally:
    seen = world.observer
    return WholeTally(1, len(seen.ok), seen.offices, seen.growths, seen.cuts)


def _digest(world: WholeWorld) -> str:
    made = hashlib.blake2b(digest_size=16)
    for machine in world.machines:
        log = machine.log
        made.update(b"%d %d" % (log.start_offset, log.written_end))
        for _, data in log.batches(log.start_offset):
            made.update(data)
    return made.hexdigest()


def play_some(first: int, count: int, canary: bool = False) -> tuple[WholeTally, list[Found]]:
    tally, found = WholeTally(), []
    with own_garbage_only() as collect:
        for seed in range(first, first + count):
            try:
                tally = tally.plus(play(seed, canary=canary).tally)
            except Breach as breach:
                found.append(Found(seed, breach.invariant, str(breach)))
            if seed % WORLDS_KEPT_MAX == 0:
                collect()
    return tally, found


class WholeBlock(NamedTuple):
    tally: WholeTally
    found: tuple[Found, ...]
    cpu_seconds: float


def play_block(first: int, count: int) -> WholeBlock:
    begun = time.process_time()
    tally, found = play_some(first, count)
    return WholeBlock(tally, tuple(found), time.process_time() - begun)


def play_many(first: int, count: int, processes: int = 0) -> Iterator[WholeBlock]:
    """On all cores, a block at a time."""
    starts = range(first, first + count, BLOCK)
    sizes = [min(BLOCK, first + count - start) for start in starts]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        yield from pool.map(play_block, starts, sizes)
