"""A coordinator that is restored from a backup, under nodes that remember more."""

from __future__ import annotations

import pytest

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, Transaction
from penstock.cluster.documents import CLUSTER, RECORD, Cluster
from sim.timed.scenarios import become_whole, within
from sim.timed.world import World


@pytest.mark.parametrize("seed", range(5))
def test_nobody_is_elected_by_older_records_until_they_are_rebuilt(seed: int) -> None:
    world = World(seed)
    become_whole(world, 30)
    backup = world.store.backup()
    world.cut(0, 1)  # members are left out, and offices move
    world.cut(0, 2)
    world.run(20)
    world.store.restore(backup)
    world.mend()
    within(world, 15, all_frozen, "not frozen")
    world.kill(2)
    world.run(15)
    records = [entry for entry in backup.entries if entry.key.startswith(keys.PARTITIONS)]
    assert world.store.entries_of(keys.PARTITIONS) == records, "changed on older ground"
    world.nodes[2].start()
    within(world, 5, all_frozen, "a start is not frozen")

    rebuild(world)
    become_whole(world, 60)


def all_frozen(world: World) -> bool:
    return all("revision is" in node.view.frozen for node in world.nodes)


def rebuild(world: World) -> None:
    """What `restore-metadata` has to do: the newest record that any node remembers."""
    puts = [Put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 1)))]
    for name in world.names:
        held = max((node.records[name] for node in world.nodes), key=lambda one: one.revision)
        assert held.document == world.record(name)
        puts.append(Put(keys.partition(*name), RECORD.encode(held.document)))
    world.store.transact(Transaction((), tuple(puts)))
    world._seen = world.store.revision
