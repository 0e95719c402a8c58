"""After the faults: nothing fails any more, and the partition has to be whole again.

| | within `ROUNDS_MAX` rounds |
|---|---|
| L-a | a replica is leading, by the record in force |
| L-b | it takes a publish and commits it |
| L-f | no frame is under way any more |
| L-c | every node that is wanted is a member, as its replica and its node are now |

One history in four ends so. In a round every node sees all that the coordinator has, every frame
arrives, every transaction is applied and answered, and every disk is synced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sim.histories import Breach

if TYPE_CHECKING:
    from sim.protocol.node import Node
    from sim.protocol.world import World

CALM_EVERY = 4  # histories: a calm end costs as much as the whole walk before it
ROUNDS_MAX = 40
EXCHANGES_MAX = 100  # of frames and syncs in a round: a learner may need one for each batch
FRAMES_MAX = 500  # in one of them


def calms_down(world: World, seed: int) -> None:
    """The end of the history with this seed. Where more was lost than may be, nothing follows."""
    if seed % CALM_EVERY == 0 and not world.reckless:
        calm(world)


def calm(world: World) -> None:
    missing = "L-a", "no replica is leading"
    for _ in range(ROUNDS_MAX):
        _restore(world)
        _exchange(world)
        world.observer.check_changes()
        missing = _missing(world)
        if missing[0] == "":
            return
    raise Breach(missing[0], f"{missing[1]} after {ROUNDS_MAX} calm rounds")


def _restore(world: World) -> None:
    """Every process runs, every replica is usable, every link is up."""
    for node in world.nodes:
        if not node.is_up:
            node.start(lost_memory=node.kept.memory_lost_generation < 0)
        if node.entry.incarnation != node.incarnation:
            node.register()
        if node.stopped:
            node.become_new(keep_log=node.kept.ended)
            world.unlink_all(node.number)
    world.late.clear()
    for one in range(len(world.nodes)):
        for other in range(one):
            world.link(one, other)


def _exchange(world: World) -> None:
    coordinator = world.coordinator
    while coordinator.pending:
        coordinator.apply(0, answered=True)
        world.observer.check_changes()
    for answer in coordinator.answers:
        node = world.nodes[answer.node]
        if node.incarnation == answer.incarnation:
            node.answered(answer)
    coordinator.answers.clear()
    reads, world.reads = world.reads, []
    for number, incarnation in reads:
        if world.nodes[number].incarnation == incarnation:
            world.nodes[number].read()
    for node in world.nodes:
        node.look(1 << 30)
    if leader_in_force(world) is None:
        _elect(world)
    else:
        for node in world.nodes:
            node.publish(1, fails=False)
    for _ in range(EXCHANGES_MAX):
        for node in world.nodes:
            node.sync()
        if _deliver_all(world) == 0:
            return
    raise Breach("L-f", "frames go to and fro without an end")


def _elect(world: World) -> None:
    record = world.coordinator.record
    leader = record.leader
    if leader is not None and not _is_gone(world, leader.node, leader.incarnation, leader.replica):
        return
    for number in record.wanted:
        node = world.nodes[number]
        node.elect(frozenset())
        if node.electing is not None:
            return
    reports = [node.report() for node in world.nodes]
    for node in world.nodes:
        node.elect_last([report for report in reports if report is not None])


def _is_gone(world: World, number: int, incarnation: int, replica: int) -> bool:
    """A leader that does not say that it is leading is replaced."""
    node = world.nodes[number]
    return node.incarnation != incarnation or node.kept.replica != replica or node.machine is None


def _deliver_all(world: World) -> int:
    """Returns how many frames there were."""
    frames = 0
    while frames < FRAMES_MAX and world.deliver_one():
        frames += 1
    return frames


def leader_in_force(world: World) -> Node | None:
    record = world.coordinator.record
    for node in world.nodes:
        machine = node.machine
        if machine is not None and machine.record.epoch == record.epoch and not node.stopped:
            return node
    return None


def _missing(world: World) -> tuple[str, str]:
    node = leader_in_force(world)
    if node is None or node.machine is None:
        return "L-a", "no replica is leading"
    log = node.kept.log
    if log.written_end == 0 or len(world.observer.truth) < log.written_end:
        return "L-b", "a publish is not committed"
    members = {(m.node, m.replica, m.generation) for m in world.coordinator.record.members}
    for number in node.machine.record.wanted:
        kept = world.nodes[number].kept
        if (number, kept.replica, kept.generation) not in members:
            return "L-c", f"node {number} is no member"
    return "", ""
