"""What goes wrong on the clock, and what must follow when nothing does any more.

Trouble comes at random times of a history's first part, each kind as often as this history likes
it. Losses stay within the atlas: each set that may be in force keeps a member whose disk has kept
its word. Then everything is repaired, and

| | within |
|---|---|
| L-a a leader is in office, and L-b commits | LED_S |
| L-c all that is wanted is in the set, and level | WHOLE_S |
| L-e, L-b and then for STILL_S no record changes, and publishes are answered | |
| L-f, L-g without publishes: no frames, nothing waits, each publish was answered | IDLE_S |
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator

from penstock.broker.roles import Stopped
from penstock.limits import SECOND
from sim.disk import Fault
from sim.protocol.observer import Breach
from sim.troubles import Kind, draw_troubles
from sim.whole.clocked import NODES, ClockedWorld
from sim.whole.node import Node

LED_S = 15.0
WHOLE_S = 150.0  # a node that was dropped often waits so long before it counts again
SETTLING_S = 3.0  # a member that was cut off for a moment may yet be dropped
STILL_S = 10.0
IDLE_S = 3.0
TROUBLE_S = 25.0
Trouble = Callable[[ClockedWorld], None]


def any_node(world: ClockedWorld) -> Node:
    """The leader as often as all others together."""
    leader = world.record().leader
    if leader is not None and world.dice.random() < 0.5:
        return world.machines[leader.node]
    return world.dice.choice(world.machines)


def _two(world: ClockedWorld) -> tuple[int, int]:
    one = any_node(world).number
    return one, (one + 1 + world.dice.randrange(NODES - 1)) % NODES


# --- processes ---


def kill(world: ClockedWorld) -> None:
    node = any_node(world)
    if node.is_up:
        node.kill()
        if world.dice.random() < 0.6:
            start_later(world, node)


def lose_power(world: ClockedWorld) -> None:
    node = any_node(world)
    if not node.is_up:
        return
    if not world.waits:
        if not world.observer.may_lose(node.number):
            return
        world.observer.forsake(node.number, node.own.replica, node.generation)
    node.lose_power()
    if world.dice.random() < 0.6:
        start_later(world, node)


def start_later(world: ClockedWorld, node: Node) -> None:
    def start() -> None:
        if not node.is_up and world.machines[node.number] is node:
            node.start()

    world.schedule.after(world.dice.randrange(4 * SECOND), start)


def start(world: ClockedWorld) -> None:
    for node in world.machines:
        if not node.is_up:
            node.start()
            return


def hang(world: ClockedWorld) -> None:
    """Its links are given up by the others, when it has said nothing for a while."""
    node = any_node(world)
    if not node.is_up or node.hangs:
        return
    node.hangs = True
    life = node.life

    def is_missed() -> None:
        if node.is_up and node.life == life and node.hangs:
            for other in range(NODES):
                world.break_link(node.number, other, 0)

    def goes_on() -> None:
        if node.is_up and node.life == life and node.hangs:
            node.wake()

    world.schedule.after(2 * SECOND, is_missed)
    world.schedule.after(world.dice.randrange(12 * SECOND), goes_on)


def set_clock(world: ClockedWorld) -> None:
    node = any_node(world)
    node.own_clock.wall_step_ns += world.dice.choice((-3600, -1, 1, 60)) * SECOND


# --- disks ---


def fail_sync(world: ClockedWorld) -> None:
    """What was written since the last one is gone, and the system's memory still shows it."""
    node = any_node(world)
    if node.is_up and not node.hangs and world.observer.may_lose(node.number):
        world.observer.forsake(node.number, node.own.replica)
        fault = node.disk.inject(Fault("sync", path_part=".log"))
        node.threads_end()
        if fault in node.disk.faults:
            node.disk.faults.remove(fault)


def fill_disk(world: ClockedWorld) -> None:
    node = any_node(world)
    if node.is_up:
        fault = Fault("write", errno.ENOSPC, ".log", written=world.dice.random(), times=0)
        node.disk.inject(fault)
        disk = node.disk

        def has_room() -> None:
            if fault in disk.faults:
                disk.faults.remove(fault)

        world.schedule.after(world.dice.randrange(5 * SECOND), has_room)


def wipe(world: ClockedWorld) -> None:
    """Another machine takes over the id, with an empty disk: as an operator sets it up."""
    node = any_node(world)
    if world.observer.may_lose(node.number):
        world.observer.forsake(node.number, node.own.replica)
        replace_machine(world, node)


def replace_machine(world: ClockedWorld, node: Node) -> None:
    if node.is_up:
        node.kill()
    generation = max(node.generation, node.first_generation)
    other = Node(world, node.number, world.new_replica())
    other.life, other.first_generation = node.life, generation
    other.memory_lost_generation = node.memory_lost_generation
    world.machines[node.number] = other
    world.observer.wiped(node.number)
    start_later(world, other)


# --- links and coordinator ---


def cut(world: ClockedWorld) -> None:
    one, other = _two(world)
    world.cuts.add(frozenset((one, other)))
    world.break_link(one, other)


def break_link(world: ClockedWorld) -> None:
    world.break_link(*_two(world))


def isolate(world: ClockedWorld) -> None:
    one = any_node(world).number
    for other in range(NODES):
        if other != one:
            world.cuts.add(frozenset((one, other)))
            world.break_link(one, other)


def mend(world: ClockedWorld) -> None:
    world.cuts.clear()


def slow_down(world: ClockedWorld) -> None:
    number = any_node(world).number
    world.slow[number] = world.dice.randrange(3 * SECOND)

    def is_quick() -> None:
        world.slow.pop(number, None)

    world.schedule.after(world.dice.randrange(5 * SECOND), is_quick)


def cut_off(world: ClockedWorld) -> None:
    """One node, or all, do not reach the coordinator."""
    numbers = range(NODES) if world.dice.random() < 0.4 else (any_node(world).number,)
    for number in numbers:
        world.cut_off.add(number)
        world.machines[number].port.is_cut = True


def reach(world: ClockedWorld) -> None:
    world.cut_off.clear()
    for node in world.machines:
        node.port.is_cut = False


def compact(world: ClockedWorld) -> None:
    world.watch_record()
    world.store.compact(world.store.revision)


TROUBLE: dict[Trouble, Kind] = {
    kill: Kind(3, (0, 1, 2)),
    lose_power: Kind(2, (0, 1, 2)),
    start: Kind(2, (1,)),
    hang: Kind(1, (0, 1, 2)),
    set_clock: Kind(0.5, (0, 1)),
    fail_sync: Kind(1, (0, 0, 1)),
    fill_disk: Kind(1, (0, 0, 1)),
    wipe: Kind(0.7, (0, 0, 1)),
    cut: Kind(2, (0, 1, 2)),
    break_link: Kind(2, (0, 1, 2)),
    isolate: Kind(1, (0, 1)),
    mend: Kind(2, (1,)),
    slow_down: Kind(1, (0, 1)),
    cut_off: Kind(1, (0, 1)),
    reach: Kind(1.5, (1,)),
    compact: Kind(0.5, (0, 1)),
}


def draw(world: ClockedWorld) -> Iterator[tuple[int, Trouble]]:
    return draw_troubles(world.dice, TROUBLE, TROUBLE_S)


# --- healing ---


def repair(world: ClockedWorld) -> None:
    world.is_calm = True
    mend(world)
    reach(world)
    world.slow.clear()
    for node in world.machines:
        node.disk.faults.clear()
        if node.is_up and node.hangs:
            node.wake()
    restart(world)


def restart(world: ClockedWorld) -> None:
    """What has ended, and replicas that have given themselves up: a start makes new ones."""
    for node in world.machines:
        if node.is_up and isinstance(node.assigned.role, Stopped):
            world.observer.forsake(node.number, node.own.replica)
            node.kill()
        if not node.is_up:
            node.start()


def become_whole(world: ClockedWorld) -> Node:
    """Returns who leads."""
    repair(world)
    _within(world, LED_S, is_led, "L-a")
    world.run(SETTLING_S)
    _within(world, WHOLE_S, why_not_whole, "L-c")
    changes, answered = world.changes_count, len(world.observer.ok)
    world.run(STILL_S)
    if world.changes_count != changes:
        raise Breach("L-e", "the record changes, and nothing is wrong")
    if len(world.observer.ok) == answered:
        raise Breach("L-b", "no publish is answered, and nothing is wrong")
    fall_idle(world)
    leader = world.serving()
    if leader is None:
        raise Breach("L-a", "the leader has left, and nothing is wrong")
    return leader


def _within(
    world: ClockedWorld, seconds: float, missing: Callable[[ClockedWorld], str], promise: str
) -> None:
    deadline_ns = world.schedule.now_ns + int(seconds * SECOND)
    while reason := missing(world):
        if world.schedule.now_ns >= deadline_ns:
            raise Breach(promise, f"{reason} after {seconds:g} s of calm")
        world.run(0.2)
        restart(world)


def is_led(world: ClockedWorld) -> str:
    """What is missing; empty: nothing."""
    node = _in_office(world)
    if node is None:
        return "no replica is in office"
    return "" if world.observer.end >= node.log.written_end > 0 else "a publish is not committed"


def _in_office(world: ClockedWorld) -> Node | None:
    for node in world.machines:
        office = node.assigned.office
        if node.group is not None and office is not None and office.line.record == world.record():
            return node
    return None


def why_not_whole(world: ClockedWorld) -> str:
    node, record = _in_office(world), world.record()
    if node is None:
        return "no replica is in office"
    if node.number != record.wanted[0]:
        return f"node {node.number} leads, and node {record.wanted[0]} is wanted first"
    members = {(m.node, m.replica, m.generation) for m in record.members}
    for other in world.machines:
        if (other.number, other.own.replica, other.generation) not in members:
            return f"node {other.number} is no member"
    return ""


def fall_idle(world: ClockedWorld) -> None:
    world.publishes = False
    world.run(IDLE_S)
    frames = world.frames_count
    world.run(IDLE_S)
    if world.frames_count != frames:
        raise Breach("L-f", "frames go to and fro without an end")
    for node in world.machines:
        if node.threads.waiting or node.log.written_end != world.observer.end:
            raise Breach("L-f", f"node {node.number} is not done")
    if world.observer.waiting:
        raise Breach("L-g", f"{len(world.observer.waiting)} publishes were never answered")
