"""A watch over coordinators that are restored from backups, at random: the view never shows a part
of one history behind a part of another."""

import random

from penstock.cluster import keys
from penstock.cluster.documents import CLUSTER, RECORD, Cluster
from penstock.cluster.keys import PartitionName
from penstock.cluster.view import View
from penstock.cluster.watch import Phase, Watching
from penstock.limits import WATCH_PROGRESS_NS
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.brokers.port import Port
from sim.store import Backup, Store

PARTITIONS = 4
STEPS = 80
BACK_MIN = 15  # revisions: fewer may be overtaken before the watch is asked how far it is
EXCHANGES = 6
ALL_COUNT = 1 << 30


class Breach(Exception):
    pass


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.now_ns = 0
        self.store = Store()
        self.epochs = [0] * PARTITIONS
        self.backup: Backup | None = None
        self.restored = False
        self.was_frozen = False
        self.store.put("cluster", CLUSTER.encode(Cluster(5, 1, 1, 0)))
        self.coordinator = Port(self.store)
        self.view = View()
        self.watching = Watching(self.coordinator, self.view)

    def step(self) -> None:
        throw = self.dice.random()
        if throw < 0.08 and not self.restored:
            self.backup = self.store.backup()
        elif throw < 0.2 and not self.restored:
            self.restore()
        else:
            self.change(self.dice.randrange(PARTITIONS))
        self.follow()
        self.check()

    def change(self, partition: int) -> None:
        """An election. Epochs rise over all histories, so no record seems to be an older one."""
        self.epochs[partition] += 1
        members = (Member(1, 101, 1), Member(2, 102, 1))
        record = PartitionRecord(7, self.epochs[partition], LeaderId(1, 1, 101), members, 1, (1, 2))
        self.store.put(keys.partition("t", partition), RECORD.encode(record))

    def restore(self) -> None:
        if self.backup is not None and self.store.revision - self.backup.revision >= BACK_MIN:
            self.store.restore(self.backup)
            self.restored = True

    def follow(self) -> None:
        self.now_ns += WATCH_PROGRESS_NS // 2
        self.watching.tick(self.now_ns)
        for _ in range(EXCHANGES):
            self.coordinator.run(self.now_ns)
            self.view.apply(ALL_COUNT)
            self.was_frozen = self.was_frozen or bool(self.view.frozen)

    def check(self) -> None:
        """Where the view says that it is at the coordinator's revision, it shows what is there."""
        is_current = self.watching.phase is Phase.WATCHING and not self.view.frozen
        if not is_current or self.view.revision != self.store.revision:
            return
        for partition in range(PARTITIONS):
            name = PartitionName("t", partition)
            if self.view.refusal(name):  # its records are compared one by one
                continue
            entry = self.store.entries.get(keys.partition(*name))
            held = self.view.partitions.get(name)
            there = RECORD.decode(entry.key, entry.value) if entry is not None else None
            if there != (held.document if held is not None else None):
                raise Breach(f"I8: the view shows {held} of partition {partition}, not {there}")


def play(seed: int) -> World:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    return world


def test_no_view_shows_two_histories() -> None:
    played = [play(seed) for seed in range(200)]
    restored = [world for world in played if world.restored]
    assert len(restored) > 50
    assert all(world.was_frozen for world in restored[:20])
