"""Who sees everything: checks after each event what replication promises.

| | |
|---|---|
| I1 | an epoch and an offset name one content, on all disks |
| I2 | an epoch has one leader, which took over from a record |
| I3 | what leaders commit is one sequence |
| I4 | who takes over has all of it, if its record is still in force |
| I5 | so has every member of every set that is or may come into force, as durable as was asked |
| I6 | a commit rests on acknowledgements of this epoch and this link |
| I7 | nothing is appended or answered below an epoch that was promised; promises outlive crashes |
| I9 | a cut spares what is known to be committed |
| I10 | a follower knows of nothing as committed that is not |
| I11 | who is added has everything |
| I12 | each change of the record is a legal one |
| I14 | no replica stops or reports damage where no disk broke its word |
| I36 | what was refused is never stored |

A disk that breaks its word (wiped, set back, a failed sync, memory lost where the topic does not
wait for the disk) excuses the entries that its replica had: I5 does not ask for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.replication.effects import Acknowledge, ReportExtent
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import Member, PartitionRecord
from sim.histories import Breach
from sim.protocol.record_rules import broken_rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sim.protocol.modellog import Batch
    from sim.protocol.node import Node
    from sim.protocol.world import World

EVERY_GENERATION = 1 << 62
REPORTED = frozenset({"I7", "I9"})  # what holds even where too much was lost


class Observer:
    def __init__(self, world: World) -> None:
        self.world = world
        self.truth: list[int] = []  # the hash of everything up to each committed batch
        self.contents: dict[tuple[int, int], int] = {}
        self.leader_ids: dict[int, Any] = {}
        self.promised: dict[int, int] = {}
        self.never_stored: set[int] = set()
        self.broken: dict[tuple[int, int], int] = {}  # (node, replica) -> generation up to which
        self.acknowledgements: dict[tuple[int, int], tuple[int, int, int]] = {}
        self.known: dict[int, int] = {}  # what each node's process knows to be committed
        self.answered = 0  # publishes
        self.leaderships = 0
        self.cuts = 0
        self.growths = 0
        self.shrinks = 0

    def end(self) -> None:
        """It looks at nothing any more."""
        del self.world

    # --- disks that broke their word ---

    def forsake(self, node: int, replica: int, generation: int = EVERY_GENERATION) -> None:
        key = node, replica
        self.broken[key] = max(generation, self.broken.get(key, 0))

    def is_sound(self, member: Member) -> bool:
        return self.broken.get((member.node, member.replica), -1) < member.generation

    def may_lose(self, node: int) -> bool:
        """Does each possible set have an intact member left without this node?"""
        if self.world.reckless:
            return True
        return all(
            any(m.node != node and self.is_sound(m) for m in members)
            for members in self.possible_sets()
        )

    def possible_sets(self) -> list[tuple[Member, ...]]:
        coordinator = self.world.coordinator
        sets = [coordinator.record.members]
        for transaction in coordinator.pending:
            if coordinator.may_install(transaction):
                sets.append(transaction.record.members)
        return sets

    # --- events of nodes ---

    def started(self, node: Node) -> None:
        self.known.pop(node.number, None)
        if node.kept.epoch < self.promised.get(node.number, 0):
            self._breach("I7", f"node {node.number} has forgotten an epoch that it promised")

    def replaced(self, node: Node) -> None:
        """What it has promised is not on its disk any more: it was set back, or is another one."""
        self.promised[node.number] = node.kept.epoch

    def answering(self, node: Node, effect: Any) -> None:
        number, kind = node.number, type(effect)
        if kind is ReportExtent or kind is Acknowledge:
            if effect.epoch < self.promised.get(number, 0):
                self._breach(
                    "I7",
                    f"node {number} answers epoch {effect.epoch}, having promised "
                    f"{self.promised[number]}",
                )
            self.promised[number] = effect.epoch

    def appended(self, node: Node, start: int, batches: Sequence[Batch]) -> None:
        for offset, batch in enumerate(batches, start):
            content = self.contents.setdefault((batch.epoch, offset), batch.content)
            if content != batch.content:
                self._breach("I1", f"offset {offset} of epoch {batch.epoch} is two batches")

    def refused(self, batches: Sequence[Batch]) -> None:
        self.never_stored.update(batch.content for batch in batches)

    def leadership_began(self, node: Node, record: PartitionRecord) -> None:
        self.leaderships += 1
        leader_id = (node.number, node.incarnation, node.kept.replica)
        if self.leader_ids.setdefault(record.epoch, leader_id) != leader_id:
            self._breach("I2", f"epoch {record.epoch} has two leaders")
        in_force = self.world.coordinator.record.epoch == record.epoch  # else it can commit nothing
        if in_force and not self._has(node, len(self.truth), False):
            self._breach(
                "I4", f"node {node.number} leads epoch {record.epoch}, and lacks what is committed"
            )
        self.promised[node.number] = max(record.epoch, self.promised.get(node.number, 0))

    def acknowledged(self, node: Node, other: int, frame: Acknowledge) -> None:
        counted = frame.synced if self.world.waits else frame.written
        self.acknowledgements[node.number, other] = frame.epoch, frame.replica, counted

    def unlinked(self, one: int, other: int) -> None:
        self.acknowledgements.pop((one, other), None)
        self.acknowledgements.pop((other, one), None)

    def committed(self, node: Node, machine: PartitionLeader, end: int) -> None:
        truth, log = self.truth, node.kept.log
        known = min(end, len(truth))
        # What is corrupt since is not what the others acknowledged: the disk is at fault.
        is_other = known and not log.corrupt and log.hashes[known - 1] != truth[known - 1]
        if log.written_end < end or is_other:
            self._breach("I3", f"node {node.number} commits another sequence than was committed")
        for batch in log.batches[len(truth) : end]:
            if batch.content in self.never_stored:
                self._breach("I36", "a publish that was refused is committed")
        self.answered += max(end - len(truth), 0)
        truth.extend(log.hashes[len(truth) : end])
        self._check_acknowledgements(node, machine, end)
        self.check_sets()

    def _check_acknowledgements(self, node: Node, machine: PartitionLeader, end: int) -> None:
        for member in machine.record.members:
            if member.node == node.number:
                continue
            epoch, replica, counted = self.acknowledgements.get(
                (node.number, member.node), (0, 0, -1)
            )
            if epoch != machine.record.epoch or replica != member.replica or counted < end:
                self._breach("I6", f"a commit up to {end} without node {member.node}")

    def learned(self, node: Node) -> None:
        self.known[node.number] = max(node.follower.committed, self.known.get(node.number, 0))
        if node.follower.committed > len(self.truth):
            self._breach("I10", f"node {node.number} takes {node.follower.committed} for committed")

    def cut(self, node: Node, end: int) -> None:
        self.cuts += 1
        unclean = 0 < node.follower.unclean_epoch <= node.follower.epoch
        if end < self.known.get(node.number, 0) and not unclean:
            self._breach("I9", f"node {node.number} cuts what it knows to be committed")
        self.known[node.number] = min(end, self.known.get(node.number, 0))

    def begun_again(self, node: Node) -> None:
        self.known.pop(node.number, None)

    def stopped(self, node: Node, reason: str) -> None:
        if reason == "a sync failed" or node.kept.log.corrupt:
            return
        if node.leader >= 0 and self.world.nodes[node.leader].kept.log.corrupt:
            return  # the two differ, and neither can know whose disk it was
        if (node.number, node.kept.replica) not in self.broken:
            self._breach("I14", f"node {node.number} stops: {reason}")

    # --- changes of the record ---

    def check_changes(self) -> None:
        coordinator = self.world.coordinator
        if not coordinator.applied:
            return
        for before, after in coordinator.applied:
            broken = broken_rule(before, after)
            if broken is not None:
                self._breach("I12", broken)
            added = set(after.members) - set(before.members)
            self.growths += bool(added)
            self.shrinks += len(after.members) < len(before.members)
            for member in added:
                self._check_added(member)
        coordinator.applied.clear()
        self.check_sets()

    def _check_added(self, member: Member) -> None:
        node = self.world.nodes[member.node]
        if not node.active:
            return  # what it has lost meanwhile cannot be known yet
        if node.kept.generation != member.generation:
            self._breach("I11", f"node {member.node} was added as it was before its last start")
        if self.is_sound(member) and not self._has(node, len(self.truth), True):
            self._breach("I11", f"node {member.node} was added, and lacks what is committed")

    def check_sets(self) -> None:
        for members in self.possible_sets():
            for member in members:
                if not self.is_sound(member):
                    continue
                node = self.world.nodes[member.node]
                if node.kept.replica != member.replica:
                    self._breach("I5", f"node {member.node}'s replica is gone, and a member")
                if not self._has(node, len(self.truth), True):
                    self._breach("I5", f"node {member.node} lacks what is committed")

    def _has(self, node: Node, end: int, durably: bool) -> bool:
        log = node.kept.log
        own = log.durable if durably and self.world.waits else log.written_end
        return own >= end and (end == 0 or log.hashes[end - 1] == self.truth[end - 1])

    def _breach(self, invariant: str, text: str) -> None:
        if self.world.reckless and invariant not in REPORTED:
            return
        raise Breach(invariant, text)
