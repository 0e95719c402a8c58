"""A history of the protocol world, moment by moment."""

from typing import Any

from penstock.replication.leader import PartitionLeader
from sim.histories import Breach
from sim.protocol.calm import calms_down
from sim.protocol.node import Node
from sim.protocol.world import World
from sim.timeline import Moments, Timeline, record_text


class _Recorded(World):
    """A world that remembers what was sent and what has changed."""

    def __init__(self, seed: int) -> None:
        self.moments = Moments()
        super().__init__(seed)

    def send(self, source: int, target: int, frame: Any) -> None:
        self.moments.sent(source, target, frame)
        super().send(source, target, frame)

    def happened(self, step: int, event: str) -> None:
        self.moments.happened(step, event, _record(self), [_state(node) for node in self.nodes])


def timeline(seed: int) -> Timeline:
    breach = ""
    world = _Recorded(seed)
    world.happened(0, "the beginning")
    try:
        for step, event in enumerate(world.draw(), 1):
            name = event.__name__.replace("_", " ")
            world.step(event)
            world.happened(step, name)
        name = "calm"
        calms_down(world, seed)
    except Breach as error:
        breach = str(error)
    moments = world.moments.found
    world.happened(len(moments) + 1, "the end" if not breach else name)
    waits = "disk" if world.waits else "os"
    summary = f"{len(world.nodes)} nodes, durability {waits}, {world.observer.answered} answered OK"
    return Timeline(seed, summary, tuple(moments), breach)


def _record(world: World) -> str:
    return f"{record_text(world.coordinator.record)}; committed {len(world.observer.truth)}"


def _state(node: Node) -> str:
    kept = node.kept
    ends = f"end {kept.log.written_end} synced {kept.log.synced_end}"
    return f"{_role(node)} r{kept.replica} g{kept.generation} e{kept.epoch} {ends}"


def _role(node: Node) -> str:
    if not node.is_up:
        return "down"
    if not node.active:
        return "starting"
    if node.stopped:
        return "STOPPED"
    return node.follower.state.name.lower() if node.machine is None else _leadership(node.machine)


def _leadership(machine: PartitionLeader) -> str:
    peers = " ".join(f"{n}:{p.counted}" for n, p in sorted(machine.peers.items()))
    return f"LEADS committed {machine.committed} [{peers}] sets {len(machine.possible_sets)}"
