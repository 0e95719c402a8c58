"""Histories of brokers: one by its seed, and what happened in it.

A history begins with three nodes and two topics, lets trouble come for a minute of its clock, and
ends in a calm (`calm`), in which every promise is checked. Its length in processor time is about a
second, most of which the brokers' own turns take.
"""

import hashlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.cluster import keys
from penstock.cluster.documents import RECORD
from penstock.limits import SECOND
from penstock.replication.record import PartitionRecord
from sim.brokers.calm import calm
from sim.brokers.topics import PLANS
from sim.brokers.trouble import TROUBLE_S, draw
from sim.brokers.world import BrokersWorld
from sim.histories import Kind, Tally
from sim.quiet import quiet

BEGINNING_S = 8.0  # until the nodes may act upon absence


class Played(NamedTuple):
    tally: Tally
    digest: str  # the same seed gives the same


def play(
    seed: int, canary: bool = False, make: Callable[[int, bool], BrokersWorld] = BrokersWorld
) -> Played:
    """One history. Raises `Breach`."""
    with quiet():
        world = make(seed, canary)
        try:
            world.run(BEGINNING_S)
            begun_ns = world.cluster.clock.since_ns
            for at_ns, trouble in draw(world):
                world.run_until(begun_ns + at_ns)
                trouble(world)
                world.happened(trouble.__name__.replace("_", " "))
            world.run_until(begun_ns + int(TROUBLE_S * SECOND))
            world.happened("everything is repaired")
            calm(world)
            world.happened("the end")
            return Played(_tally(world), _digest(world))
        finally:
            world.close()


def _tally(world: BrokersWorld) -> Tally:
    answered = sum(1 for _ in world.observer.answered())
    return Tally(1, answered, world.leaderships, world.growths, world.shrinks)


def _digest(world: BrokersWorld) -> str:
    """Of what clients saw, and of the records: the same seed gives the same."""
    made = hashlib.blake2b(digest_size=16)
    for feed, seen in world.observer.feeds.items():
        made.update(repr((feed, seen.received)).encode())
    for _, record in records(world):
        made.update(repr(record).encode())
    return made.hexdigest()


def records(world: BrokersWorld) -> Iterator[tuple[str, PartitionRecord]]:
    for plan in PLANS:
        for entry in world.cluster.store.entries_of(keys.PARTITIONS + plan.name + "/"):
            yield entry.key, RECORD.decode(entry.key, entry.value)


def tally_of(seed: int) -> Tally:
    return play(seed).tally


BROKERS = Kind(tally_of, block=5, kept_max=10)
