"""A replica of the timed world: both machines over a log that never fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from penstock.cluster.elections import Local
from penstock.cluster.keys import PartitionName
from penstock.replica.effects import (
    Acknowledge,
    Append,
    Authority,
    Begin,
    BeginAt,
    CommitTo,
    Cut,
    Feed,
    Hello,
    Leave,
    MatchAt,
    Matched,
    Propose,
    Read,
    Refuse,
    SaveEpoch,
    Stop,
    Sync,
    Tell,
)
from penstock.replica.following import FollowerLine
from penstock.replica.leading import UNMATCHED, LeaderLine
from penstock.replica.matching import Chain
from penstock.replica.record import Seat
from sim.protocol.modellog import Batch, ModelLog

if TYPE_CHECKING:
    from sim.timed.node import Node


class Row(NamedTuple):
    session: int
    epoch: int
    previous: Chain
    start: int
    batches: tuple[Batch, ...]
    committed: int


class Addressed(NamedTuple):
    """A frame of a partition, on a link."""

    name: PartitionName
    frame: Any


class Replica:
    """`replica` and the log outlive the process."""

    def __init__(self, name: PartitionName, replica: int) -> None:
        self.name = name
        self.replica = replica
        self.log = ModelLog()
        self.epoch = 0
        self.node: Node | None = None
        self.line: LeaderLine | None = None
        self.follower: FollowerLine | None = None
        self.leader = -1
        self.office_epoch = 0

    def start(self, node: Node) -> None:
        self.node, self.line, self.leader, self.office_epoch = node, None, -1, 0
        self.follower = self._new_follower(0)

    def _new_follower(self, committed: int) -> FollowerLine:
        generation = self._node.generation
        return FollowerLine(self.log, self.replica, generation, self.epoch, committed, waits=False)

    @property
    def _node(self) -> Node:
        if self.node is None:
            raise RuntimeError(f"{self.name}: the process does not run")
        return self.node

    def local(self) -> Local:
        return Local(self.replica, False, True, self.log.extent(), self.line is not None)

    # --- offices ---

    def sit_down(self) -> None:
        """Begin the office, if the view's record names this replica in this life."""
        node = self._node
        held = node.view.partitions[self.name]
        record = held.document
        seat = Seat(node.number, node.life, self.replica)
        if record.leader != seat or self.line is not None or record.epoch <= self.office_epoch:
            return
        if record.epoch < self.epoch:
            return
        self.epoch = self.office_epoch = record.epoch
        self.log.sync()
        committed = self.follower.committed if self.follower is not None else 0
        self.line = LeaderLine(
            self.log,
            record,
            held.revision,
            seat,
            node.generation,
            committed,
            waits=False,
            heard=node.offices.heard,
            confirmed_ns=node.world.now_ns,
        )
        node.offices.took_office(self.name, self.line)
        for other in node.links:
            self.line.linked(other)

    def publish(self) -> None:
        line = self.line
        if line is None or not line.ready:
            return
        self.log.append(Batch(line.record.epoch, self._node.world.new_content(), 0))
        self._node.offices.members.wrote(self.name, self._node.world.now_ns)
        line.wrote(self.log.end)

    # --- frames ---

    def linked(self, other: int) -> None:
        if self.line is not None:
            self.line.linked(other)

    def unlinked(self, other: int) -> None:
        if self.line is not None:
            self.line.unlinked(other)
        if self.leader == other and self.follower is not None:
            self.leader = -1
            self.follower.unlinked()

    def receive(self, other: int, frame: Any) -> None:
        if isinstance(frame, Tell | Matched | Acknowledge | Refuse):
            self._receive_as_leader(other, frame)
        elif isinstance(frame, Hello):
            self._hello(other, frame)
        elif other == self.leader and self.follower is not None:
            self._receive_as_follower(self.follower, frame)

    def _receive_as_leader(self, other: int, frame: Any) -> None:
        line = self.line
        if line is None:
            return
        match frame:
            case Tell(session, _, replica, generation, extent, _):
                line.told(other, session, replica, generation, extent)
            case Matched(session, end):
                line.matched(other, session, end)
            case Acknowledge():
                line.acknowledged(other, *frame)
            case Refuse(session, epoch):
                line.refused(other, session, epoch)

    def _hello(self, other: int, frame: Hello) -> None:
        if self.line is not None:
            if frame.epoch <= self.epoch:
                self._send(other, Refuse(frame.session, self.epoch))
                return
            self.line.leave("another leader has a higher epoch")
            self.work()
        follower = self.follower
        if follower is None:
            return
        follower.hello(frame.session, frame.epoch, frame.committed)
        if follower.session == frame.session:
            self.leader = other
            self._node.offices.elections.in_office(self.name, frame.epoch)
            return
        for effect in follower.out:  # refused, or late
            self._send(other, effect)
        follower.out.clear()

    def _receive_as_follower(self, follower: FollowerLine, frame: Any) -> None:
        match frame:
            case MatchAt(_, session, end, chain):
                follower.match_at(session, end, chain)
            case BeginAt(_, session, start):
                follower.begin_at(session, start)
            case Row():
                follower.row(*frame)

    def _send(self, other: int, frame: Any) -> None:
        self._node.send(other, Addressed(self.name, frame))

    # --- effects ---

    def work(self) -> None:
        while self.line is not None and self.line.out:
            line = self.line
            effects, line.out = line.out, []
            for effect in effects:
                self._do_as_leader(line, effect)
        while self.follower is not None and self.follower.out:
            follower = self.follower
            effects, follower.out = follower.out, []
            for effect in effects:
                self._do_as_follower(follower, effect)

    def _do_as_leader(self, line: LeaderLine, effect: Any) -> None:
        offices = self._node.offices
        match effect:
            case Hello() | MatchAt() | BeginAt():
                self._send(effect.node, effect)
            case Feed():
                self._feed(line, effect)
            case CommitTo():
                self._committed(line, effect)
            case Propose():
                offices.propose(self.name, line, effect)
            case Read():
                offices.read(self.name)
            case Leave():
                self._left(line)
            case Authority():
                pass
            case _:
                raise TypeError(f"an effect of a leader: {effect!r}")

    def _feed(self, line: LeaderLine, effect: Feed) -> None:
        previous = self.log.chain_before(effect.start)
        batches = tuple(self.log.batches[effect.start :])
        if previous is not None and batches:
            epoch = line.record.epoch
            row = Row(effect.session, epoch, previous, effect.start, batches, effect.committed)
            self._send(effect.node, row)
            line.fed(effect.node, self.log.end)

    def _committed(self, line: LeaderLine, effect: CommitTo) -> None:
        self._node.world.committed(self.name, self.log, effect.end)
        if line.committed == line.end:
            self._node.offices.members.committed(self.name)
        for node, peer in line.peers.items():
            previous = None if peer.sent == UNMATCHED else self.log.chain_before(peer.sent)
            if previous is not None:
                epoch = line.record.epoch
                self._send(node, Row(peer.session, epoch, previous, peer.sent, (), effect.end))

    def _left(self, line: LeaderLine) -> None:
        self.line, self.leader = None, -1
        self.follower = self._new_follower(line.committed)
        self._node.offices.left_office(self.name)

    def _do_as_follower(self, follower: FollowerLine, effect: Any) -> None:
        match effect:
            case Tell() | Matched() | Acknowledge() | Refuse():
                if self.leader >= 0:
                    self._send(self.leader, effect)
            case SaveEpoch(epoch):
                self.epoch = max(self.epoch, epoch)
            case Cut(end):
                self.log.truncate(end)
            case Begin():
                self.log = follower.log = ModelLog()
            case Append(start, batches, committed):
                for batch in batches[self.log.end - start :]:
                    self.log.append(batch)
                self.log.sync()
                follower.appended(self.log.end, committed)
            case Sync():
                self.log.sync()
                follower.synced()
            case Stop(reason):
                raise RuntimeError(f"{self.name} stops on a disk that never fails: {reason}")
            case _:
                raise TypeError(f"an effect of a follower: {effect!r}")
