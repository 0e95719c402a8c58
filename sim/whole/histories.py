"""Histories of the whole world: one by its seed, and what happened in it.

They are of two kinds. On a clock (`clocked`, `trouble`) everything is decided by the product's own
parts, and by time. In the walk (`world`) the dice decide what offices would: it plays some twenty
times as many histories of logs and roles in the same time, with timings that no clock produces.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import NamedTuple

from penstock.errors import LogDamaged
from penstock.limits import SECOND
from sim.protocol.histories import Found, own_garbage_only
from sim.protocol.observer import Breach
from sim.quiet import quiet
from sim.whole.clocked import ClockedWorld
from sim.whole.machine import Machine
from sim.whole.observer import WholeObserver
from sim.whole.trouble import TROUBLE_S, become_whole, draw
from sim.whole.world import KERNELS, WholeWorld, calm

BEGINNING_S = 8.0  # until the nodes may act upon absence
TROUBLE_NS = int((TROUBLE_S + 2) * SECOND)
WORLDS_KEPT_MAX = 10  # before the garbage is collected: their disks are a few MiB


class WholeTally(NamedTuple):
    """So that a run in which nothing happens is seen to be void."""

    histories: int = 0
    answered: int = 0  # messages that were answered OK
    offices: int = 0
    growths: int = 0
    shrinks: int = 0
    cuts: int = 0

    def plus(self, other: WholeTally) -> WholeTally:
        return WholeTally(*(one + two for one, two in zip(self, other, strict=True)))


class Played(NamedTuple):
    tally: WholeTally
    digest: str  # of all logs at the end: the same seed gives the same bytes


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
            return Played(_tally(world.observer), _digest(world.machines))
        finally:
            world.close()


def play_clocked(
    seed: int,
    kernel: str = "",
    canary: bool = False,
    make: Callable[[int, str, bool], ClockedWorld] = ClockedWorld,
) -> Played:
    """The same, on a clock."""
    with quiet():
        world = make(seed, kernel or KERNELS[(seed + 1) % 2], canary)
        try:
            world.run(BEGINNING_S)
            begun_ns = world.schedule.now_ns
            for at_ns, trouble in draw(world):
                world.schedule.play_until(begun_ns + at_ns)
                trouble(world)
                world.happened(trouble.__name__.replace("_", " "))
            world.schedule.play_until(begun_ns + TROUBLE_NS)
            world.happened("everything is repaired")
            leader = become_whole(world)
            world.happened("the end")
            world.observer.check_kept(leader)
            return Played(_tally(world.observer), _digest(world.machines))
        finally:
            world.close()


def _tally(seen: WholeObserver) -> WholeTally:
    return WholeTally(1, len(seen.ok), seen.offices, seen.growths, seen.shrinks, seen.cuts)


def _digest(machines: Sequence[Machine]) -> str:
    made = hashlib.blake2b(digest_size=16)
    for machine in machines:
        log = machine.log
        made.update(b"%d %d" % (log.start_offset, log.written_end))
        try:
            for _, data in log.batches(log.start_offset):
                made.update(data)
        except LogDamaged as error:
            text = f"node {machine.number} has not what it says: {error.reason}"
            raise Breach("I14", text) from error
    return made.hexdigest()


class Kind(NamedTuple):
    """Of histories."""

    play: Callable[..., Played]
    block: int  # that one process plays before it reports


WALK = Kind(play, 50)
CLOCKED = Kind(play_clocked, 10)


def play_some(
    first: int, count: int, canary: bool = False, kind: Kind = WALK
) -> tuple[WholeTally, list[Found]]:
    tally, found = WholeTally(), []
    with own_garbage_only() as collect:
        for seed in range(first, first + count):
            try:
                tally = tally.plus(kind.play(seed, canary=canary).tally)
            except Breach as breach:
                found.append(Found(seed, breach.invariant, str(breach)))
            if seed % WORLDS_KEPT_MAX == 0:
                collect()
    return tally, found


class WholeBlock(NamedTuple):
    tally: WholeTally
    found: tuple[Found, ...]
    cpu_seconds: float


def play_block(kind: Kind, first: int, count: int) -> WholeBlock:
    begun = time.process_time()
    tally, found = play_some(first, count, kind=kind)
    return WholeBlock(tally, tuple(found), time.process_time() - begun)


def play_many(
    first: int, count: int, processes: int = 0, kind: Kind = WALK
) -> Iterator[WholeBlock]:
    """On all cores, a block at a time."""
    starts = range(first, first + count, kind.block)
    sizes = [min(kind.block, first + count - start) for start in starts]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        yield from pool.map(partial(play_block, kind), starts, sizes)
