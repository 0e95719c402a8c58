"""What goes wrong in a cluster of brokers.

Trouble comes at random times of a history's first part, each kind as often as this history likes
it. A disk loses what it had only while all replicas are whole, so that the others have it.
"""

import errno
from collections.abc import Callable, Iterator

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, RevisionIs, Transaction
from penstock.cluster.documents import RECORD
from penstock.cluster.keys import PartitionName
from penstock.limits import SECOND
from penstock.replication.record import arranged
from sim.brokers.node import JoinedNode
from sim.brokers.topics import PLANS
from sim.brokers.world import BrokersWorld
from sim.disk import Fault
from sim.troubles import Kind, draw_troubles

TROUBLE_S = 60.0
Trouble = Callable[[BrokersWorld], None]


def any_node(world: BrokersWorld) -> JoinedNode:
    """One that leads as often as all others together."""
    leader = world.cluster.leader(*_any_partition(world))
    if leader is not None and world.dice.random() < 0.5:
        return leader
    return world.dice.choice(world.cluster.nodes)


def _any_partition(world: BrokersWorld) -> PartitionName:
    return world.dice.choice(list(world.topics.partitions_of(world.dice.choice(PLANS))))


# --- processes ---


def kill(world: BrokersWorld) -> None:
    _end(world, any_node(world), power=False)


def lose_power(world: BrokersWorld) -> None:
    _end(world, any_node(world), power=True)


def all_lose_power(world: BrokersWorld) -> None:
    for node in world.cluster.up():
        _end(world, node, power=True)


def _end(world: BrokersWorld, node: JoinedNode, power: bool) -> None:
    if not node.is_up:
        return
    world.cluster.kill(node.number, power)
    world.note_ended(node.incarnation)
    if world.dice.random() < 0.7:
        world.later(6, lambda: _start(world, node.number))


def _start(world: BrokersWorld, number: int) -> None:
    if not world.cluster.nodes[number].is_up:
        world.cluster.start(number)


def start(world: BrokersWorld) -> None:
    for node in world.cluster.nodes:
        _start(world, node.number)


def hang(world: BrokersWorld) -> None:
    node = any_node(world)
    if node.is_up:
        world.cluster.hang(node.number)
        world.later(15, lambda: world.cluster.wake(node.number))


def set_clock(world: BrokersWorld) -> None:
    """Of a machine: by an operator, or by a time server that is wrong for a while."""
    clock = world.dice.choice(world.cluster.clocks)
    world.note_clock_set()
    clock.wall_step_ns = world.dice.choice((-3600, -1, 1, 60)) * SECOND


# --- disks ---


def fill_disk(world: BrokersWorld) -> None:
    node = any_node(world)
    fault = Fault("write", errno.ENOSPC, ".log", written=world.dice.random(), times=0)
    disk = node.disk
    disk.inject(fault)

    def has_room() -> None:
        if fault in disk.faults:
            disk.faults.remove(fault)

    world.later(6, has_room)


def fail_sync(world: BrokersWorld) -> None:
    """A disk loses what was written since the last sync: the replica there is given up."""
    if world.is_sound():
        any_node(world).disk.inject(Fault("sync", path_part=".log"))


def wipe(world: BrokersWorld) -> None:
    """An operator sets the machine up again, with an empty disk."""
    node = any_node(world)
    if world.is_sound() and node.is_up:
        world.cluster.kill(node.number)
        world.note_ended(node.incarnation)
        world.cluster.wipe(node.number)


def roll_back(world: BrokersWorld) -> None:
    """A snapshot of a machine is taken, and it starts again. Some time later it is set back to the
    snapshot; then it is refused, and set up again."""
    cluster, node = world.cluster, any_node(world)
    if not world.is_sound():
        return
    snapshot, number = cluster.snapshot(node.number), node.number
    _restart(world, number)

    def set_back() -> None:
        if world.may_lose(number):
            cluster.kill(number)
            world.note_ended(cluster.nodes[number].incarnation)
            cluster.roll_back(number, snapshot)
            world.rolled_back += 1

    world.later(30, set_back)


def _restart(world: BrokersWorld, number: int) -> None:
    world.cluster.kill(number)
    world.note_ended(world.cluster.nodes[number].incarnation)
    world.cluster.start(number)


# --- links and the coordinator ---


def cut(world: BrokersWorld) -> None:
    one, other = world.dice.sample(range(len(world.cluster.nodes)), 2)
    world.cluster.cut_between(one, other)


def cut_off(world: BrokersWorld) -> None:
    world.cluster.cut_off(any_node(world).number)


def heal(world: BrokersWorld) -> None:
    world.cluster.heal()


def lose_coordinator(world: BrokersWorld) -> None:
    """One node, or all, do not reach it; for so long that another one leads, or not."""
    away = world.cluster.away
    numbers = {any_node(world).number}
    if world.dice.random() < 0.3:
        numbers = {node.number for node in world.cluster.nodes}
    away |= numbers
    world.later(world.dice.choice((12, 25)), lambda: away.difference_update(numbers))


def lose_calls(world: BrokersWorld) -> None:
    world.loses_calls = True

    def no_more() -> None:
        world.loses_calls = False

    world.later(10, no_more)


def compact(world: BrokersWorld) -> None:
    world.cluster.store.compact(world.cluster.store.revision)


# --- operators ---


def rearrange(world: BrokersWorld) -> None:
    """Another node is wanted as leader."""
    name = _any_partition(world)
    found = world.topics.record(name)
    if found is None or not world.topics.has(name.topic):
        return
    record, revision = found
    nodes = [node.number for node in world.cluster.nodes]
    world.dice.shuffle(nodes)
    key = keys.partition(*name)
    wanted = RECORD.encode(arranged(record, tuple(nodes), record.members_min))
    world.cluster.store.transact(Transaction((RevisionIs(key, revision),), (Put(key, wanted),)))


def grow(world: BrokersWorld) -> None:
    """A topic gets one more partition."""
    plan = world.dice.choice(PLANS)
    if world.topics.is_there(plan):
        world.topics.grow(plan)


def make_again(world: BrokersWorld) -> None:
    """A topic is deleted, and another one made under its name."""
    plan = PLANS[-1]
    if world.topics.is_there(plan):
        world.topics.make_again(plan)


def back_up(world: BrokersWorld) -> None:
    world.backup = dict(world.topics.incarnations), world.cluster.store.backup()


def restore(world: BrokersWorld) -> None:
    """The coordinator goes back to a backup, and what the nodes remember is put there again."""
    cluster = world.cluster
    if world.backup is None or len(cluster.running()) < len(cluster.nodes):
        return
    incarnations, backup = world.backup
    if incarnations == world.topics.incarnations and world.topics.are_all_there:
        cluster.restore_from_memories(backup)
        world.topics.count()


TROUBLE: dict[Trouble, Kind] = {
    kill: Kind(3, (0, 1, 2)),
    lose_power: Kind(2, (0, 1, 2)),
    all_lose_power: Kind(0.3, (0, 1)),
    start: Kind(2, (1,)),
    hang: Kind(1, (0, 1, 2)),
    set_clock: Kind(0.5, (0, 1)),
    fill_disk: Kind(1, (0, 0, 1)),
    fail_sync: Kind(1, (0, 0, 1)),
    wipe: Kind(0.7, (0, 0, 1)),
    roll_back: Kind(1, (0, 0, 1)),
    cut: Kind(2, (0, 1, 2)),
    cut_off: Kind(1, (0, 1)),
    heal: Kind(2, (1,)),
    lose_coordinator: Kind(1, (0, 1)),
    lose_calls: Kind(1, (0, 1)),
    compact: Kind(0.5, (0, 1)),
    rearrange: Kind(1, (0, 1)),
    grow: Kind(1, (0, 1)),
    make_again: Kind(0.7, (0, 1)),
    back_up: Kind(1, (0, 0, 1)),
    restore: Kind(1, (0, 1)),
}


def draw(world: BrokersWorld) -> Iterator[tuple[int, Trouble]]:
    return draw_troubles(world.dice, TROUBLE, TROUBLE_S)
