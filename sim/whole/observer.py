"""What must hold over the real files of all nodes, whatever happens.

| | |
|---|---|
| I1 | an epoch and an offset name one batch, on all disks |
| I2 | an epoch has one leader |
| I3 | what leaders commit is one sequence |
| I4 | who takes office, by the record in force, has all of it |
| I5 | so has every sound member of every set that is or may come into force, as durable as asked |
| I7 | an epoch that was promised outlives any crash |
| I8 | no node acts on an older record than it has acted on (on a clock) |
| I12 | each change of the record is a legal one (on a clock) |
| I13 | one that may lack something is elected only where all may (on a clock) |
| I14 | no replica stops or reports damage where no disk broke its word |
| I36 | what was refused is never stored |
| KEPT | what was answered OK is in the log of the last leader, once |
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from penstock.broker.roles import Elected, Leading, Stopped
from penstock.errors import LogDamaged
from penstock.kernel import decode_bodies
from penstock.log.epochs import BatchPlace
from penstock.replica.effects import Acknowledge, Hello, Tell
from penstock.replica.record import Member, Record, Seat, broken_rule
from sim.protocol.observer import EVERY_GENERATION, Breach
from sim.whole.machine import KEY

if TYPE_CHECKING:
    from penstock.broker.office import Office
    from penstock.replica.frames import Frame
    from sim.whole.machine import Machine, Surroundings


class WholeObserver:
    def __init__(self, world: Surroundings) -> None:
        self.world = world
        self.truth: list[BatchPlace] = []  # what was committed, in order
        self.crcs: dict[tuple[int, int], int] = {}
        self.broken: dict[tuple[int, int], int] = {}
        self.promised: dict[int, int] = {}
        self.seen: dict[int, tuple[int, int]] = {}  # by node: life, and end that was looked at
        self.waiting: dict[tuple[bytes, ...], int] = {}  # publishes, to the node that has them
        self.ok: set[bytes] = set()
        self.never: set[bytes] = set()
        self.seats: dict[int, Seat | None] = {}  # who served, by epoch
        self.acted: dict[int, int] = {}  # by node: the epoch of the newest record it acted on
        self.offices = self.cuts = self.asked_count = self.growths = self.shrinks = 0

    @property
    def end(self) -> int:
        return self.truth[-1].end_offset if self.truth else 0

    # --- publishes ---

    def asked(self, node: int, bodies: tuple[bytes, ...]) -> None:
        self.asked_count += len(bodies)
        self.waiting[bodies] = node

    def answered(self, bodies: tuple[bytes, ...]) -> None:
        self.waiting.pop(bodies, None)
        self.ok.update(bodies)

    def refused(self, bodies: tuple[bytes, ...]) -> None:
        self.waiting.pop(bodies, None)
        self.never.update(bodies)

    def unknown(self, bodies: tuple[bytes, ...]) -> None:
        self.waiting.pop(bodies, None)

    def ended(self, number: int) -> None:
        """Its process: those that waited there see their connections break."""
        self.waiting = {bodies: node for bodies, node in self.waiting.items() if node != number}

    # --- disks that broke their word ---

    def forsake(self, node: int, replica: int, generation: int = EVERY_GENERATION) -> None:
        key = node, replica
        self.broken[key] = max(generation, self.broken.get(key, 0))

    def is_sound(self, member: Member) -> bool:
        return self.broken.get((member.node, member.replica), -1) < member.generation

    def may_lose(self, node: int) -> bool:
        return all(
            any(m.node != node and self.is_sound(m) for m in members)
            for members in self.world.possible_sets()
        )

    # --- records ---

    def record_changed(self, before: Record, after: Record) -> None:
        """I12, and I13: one that may have lost something is elected where no member is better."""
        broken = broken_rule(before, after)
        if broken is not None:
            raise Breach("I12", broken)
        self.growths += bool(set(after.members) - set(before.members))
        self.shrinks += len(after.members) < len(before.members)
        leader = after.leader
        if leader is not None and after.epoch != before.epoch:
            elected = before.member_on(leader.node)
            better = [m for m in before.members if not self._is_suspect(m)]
            if elected is not None and self._is_suspect(elected) and better:
                raise Breach("I13", f"node {leader.node} may lack what {better[0]} has")
        self.check_sets()

    def _is_suspect(self, member: Member) -> bool:
        """Its disk is as it was told, and its system's memory was lost since it was added."""
        machine = self.world.machines[member.node]
        if machine.own.replica != member.replica:
            return True
        return not self.world.waits and member.generation < machine.memory_lost_generation

    def acts_on(self, node: int, record: Record) -> None:
        """I8, for what a disk remembers."""
        acted = self.acted.get(node, 0)
        if record.epoch < acted:
            raise Breach("I8", f"node {node} acts on epoch {record.epoch}, after epoch {acted}")
        self.acted[node] = record.epoch

    # --- events ---

    def started(self, machine: Machine) -> None:
        number = machine.number
        if machine.promises.epoch(KEY) < self.promised.get(number, 0):
            raise Breach("I7", f"node {number} has forgotten an epoch that it promised")
        self.seen.pop(number, None)
        if machine.log.damaged or machine.log.refusal is not None:
            self._stops(machine, f"damage at the start: {machine.log.damaged}")

    def sent(self, number: int, frame: Frame) -> None:
        """I7: what an answer or a greeting says was promised before."""
        if isinstance(frame, Tell | Acknowledge | Hello):
            if frame.epoch < self.promised.get(number, 0):
                raise Breach("I7", f"node {number} answers an epoch below one that it promised")
            self.promised[number] = frame.epoch

    def wiped(self, number: int) -> None:
        self.promised.pop(number, None)
        self.acted.pop(number, None)

    def serves(self, machine: Machine, office: Office) -> None:
        self.offices += 1
        record = office.line.record
        first = self.seats.setdefault(record.epoch, record.leader)
        if first != record.leader:
            raise Breach("I2", f"epoch {record.epoch} has two leaders, {first} and {record.leader}")
        if self.world.record().epoch == record.epoch and not self._has(machine, False):
            raise Breach("I4", f"node {machine.number} leads, and lacks what is committed")

    def look(self, machine: Machine) -> None:
        """After a turn."""
        log, role = machine.log, machine.assigned.role
        machine.assigned.validate()
        self._look_at_log(machine)
        if isinstance(role, Stopped) and log.stopped is None:
            self._stops(machine, role.reason)
        if isinstance(role, Elected | Leading):
            self._commit(machine, role.office.line.committed)

    def _stops(self, machine: Machine, reason: str) -> None:
        if (machine.number, machine.own.replica) not in self.broken:
            raise Breach("I14", f"node {machine.number} stops: {reason}")

    def _look_at_log(self, machine: Machine) -> None:
        """I1, for the batches that are new."""
        log, key = machine.log, machine.number
        life, seen = self.seen.get(key, (machine.life, 0))
        if life != machine.life or seen > log.written_end:
            self.cuts += seen > log.written_end
            seen = 0
        seen = max(seen, log.start_offset)
        while seen < log.written_end:
            try:
                place = log.batch_at(seen)
            except LogDamaged as error:
                self._stops(machine, f"damage: {error.reason}")
                break
            crc = self.crcs.setdefault((place.epoch, place.base_offset), place.crc)
            if crc != place.crc:
                raise Breach("I1", f"offset {seen} of epoch {place.epoch} is two batches")
            seen = place.end_offset
        self.seen[key] = machine.life, seen

    def _commit(self, machine: Machine, end: int) -> None:
        log = machine.log
        known = min(end, self.end)
        if known and not self._agrees(machine, known):
            raise Breach("I3", f"node {machine.number} commits another sequence")
        if end <= self.end:
            return
        while self.end < end:
            self.truth.append(log.batch_at(self.end))
        self.check_sets()

    def _agrees(self, machine: Machine, end: int) -> bool:
        """Has this log what was committed as the last batch below `end`, and so all before it?"""
        log = machine.log
        if log.written_end < end or not log.start_offset < end:
            return log.start_offset == end <= log.written_end
        place = log.batch_at(end - 1)
        return any(place == one for one in reversed(self.truth))

    def _has(self, machine: Machine, durably: bool) -> bool:
        log = machine.log
        own = log.synced_end if durably and self.world.waits else log.written_end
        return own >= self.end and (not self.end or self._agrees(machine, self.end))

    def check_sets(self) -> None:
        for members in self.world.possible_sets():
            for member in members:
                machine = self.world.machines[member.node]
                if not machine.is_up or not self.is_sound(member):
                    continue
                if machine.own.replica != member.replica:
                    raise Breach("I5", f"node {member.node}'s replica is gone, and a member")
                if not self._has(machine, True):
                    raise Breach("I5", f"node {member.node} lacks what is committed")

    # --- the end ---

    def check_kept(self, machine: Machine) -> None:
        log = machine.log
        found: Counter[bytes] = Counter()
        if log.start_offset < log.written_end:
            try:
                for _, data in log.batches(log.start_offset):
                    found.update(decode_bodies(data, 0))
            except LogDamaged as error:
                raise Breach("KEPT", f"what was answered OK is corrupt: {error.reason}") from error
        for body in sorted(self.ok):
            if found[body] != 1:
                raise Breach("KEPT", f"{body!r} was answered OK, and is there {found[body]} times")
        for body in sorted(self.never):
            if found[body]:
                raise Breach("I36", f"{body!r} was refused, and is stored")
