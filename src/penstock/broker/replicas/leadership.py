"""A leader's shell: the machine of `replication/leader.py` over a partition's real log.

It sends what the machine requests, and reports what arrives. The writer of appends
(`group_commit.py`) calls `wrote` when an append is in the log, and `synced` when more of it is on
the disk; the machine computes the committed end. A partition on one node has a leadership as well,
with no other node to send to.

An append is sent from memory while it is in flight; a replica that needs more is fed from the log,
a bounded chunk at a time, on a separate lane. A committed end is sent with the next append. If none
follows, the next tick sends it: it changes nothing that followers do, and a frame for each commit
would cost as much as the append.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from penstock import limits
from penstock.broker.ports import PeerLane, Peers
from penstock.broker.replicas.context import CatchUp
from penstock.errors import StorageError
from penstock.log.scan import headers_of
from penstock.replication import effects
from penstock.replication.chunks import Payload, of_append
from penstock.replication.frames import AppendFrame, Frame, Target, encode
from penstock.replication.leader import UNMATCHED, PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord

if TYPE_CHECKING:
    from penstock.broker.partition.appends import LogAppend
    from penstock.log.partition import PartitionLog


class Records(Protocol):
    """The way to the coordinator, for one node. Answers go to the machine."""

    def propose(self, target: Target, proposal: effects.Propose) -> None: ...
    def read(self, target: Target) -> None: ...


class LeadershipPorts(NamedTuple):
    """The receivers of a replicated leadership's frames."""

    target: Target
    peers: Peers
    records: Records
    catch_up: CatchUp


_ALONE = LeaderId(0, 0, 0)
# Of a partition without other replicas.
_RECORD = PartitionRecord(0, 0, _ALONE, (Member(0, 0, 0),), 1, (0,))


class Leadership:
    """`on_change` is called after news from outside: the committed end may have moved, or the
    leadership be over. `on_over` is called once, before any caller learns of it."""

    __slots__ = (
        "_announced", "_bulk", "_has_news", "_in_turn", "_live", "_ports", "in_flight", "is_alone",
        "log", "machine", "on_change", "on_over", "reason",
    )  # fmt: skip

    def __init__(
        self, log: PartitionLog, machine: PartitionLeader, ports: LeadershipPorts | None
    ) -> None:
        self.log = log
        self.machine = machine
        self.on_change: Callable[[], None] = _nothing
        self.on_over: Callable[[], None] = _nothing
        self.reason = ""  # why it is over
        self.is_alone = ports is None
        self.in_flight: LogAppend | None = None  # in flight: its buffers are valid
        self._live: Payload | None = None  # of the append, encoded once for all
        self._ports = ports
        self._bulk: set[int] = set()  # nodes that are fed from the log
        self._in_turn: set[int] = set()  # and those that wait until they are
        self._has_news = False  # of a committed end, for the peers
        self._announced: dict[int, tuple[int, int]] = {}  # by node: session, and the end it knows

    @classmethod
    def of_one(cls, log: PartitionLog, waits: bool) -> Leadership:
        """For a partition without other replicas. Its whole log counts as committed."""
        machine = PartitionLeader(log, _RECORD, 0, _ALONE, 0, log.written_end, waits)
        return cls(log, machine, None)

    @property
    def is_shared(self) -> bool:
        """Others have appends of it, or should have."""
        machine = self.machine
        return (
            bool(machine.peers) or len(machine.record.members) > 1 or len(machine.possible_sets) > 1
        )

    @property
    def has_level_tail(self) -> bool:
        """The log as of the start of the leadership is committed."""
        return self.machine.committed >= self.machine.start_end

    # --- events of this node ---

    def wrote(self, end: int) -> None:
        """An append is in the log: it is sent before its sync begins."""
        machine = self.machine
        machine.wrote(end)
        if machine.out:
            self.work()

    def synced(self) -> None:
        machine = self.machine
        machine.synced()
        if machine.out:
            self.work()

    def failed(self, reason: str) -> None:
        self.machine.failed(reason)
        self.work()

    def leave(self, reason: str) -> None:
        self.machine.leave(reason)
        self.work()

    def let_go(self) -> None:
        """The append is no longer in flight: its buffers belong to others."""
        self.in_flight = self._live = None

    def linked(self, node: int) -> None:
        self.machine.linked(node)
        self.moved()

    def unlinked(self, node: int) -> None:
        self._leave_bulk(node)
        self._announced.pop(node, None)
        self.machine.unlinked(node)
        self.moved()

    def receive(self, node: int, frame: Frame) -> None:
        machine = self.machine
        try:
            match frame:
                case effects.Acknowledge():
                    self.acknowledged(node, frame)
                    return
                case effects.ReportExtent(session, _, replica, generation, extent, _):
                    machine.extent_reported(node, session, replica, generation, extent)
                case effects.Matched(session, end):
                    machine.matched(node, session, end)
                    self._has_news = True  # it may lack nothing but the committed end
                case effects.Refuse(session, epoch):
                    machine.refused(node, session, epoch)
                case _:
                    return  # for a follower, which this replica is no longer
        except StorageError as error:
            machine.leave(f"the log cannot be read: {error.reason}")
        self.moved()

    def acknowledged(self, node: int, frame: effects.Acknowledge) -> None:
        """Runs twice or more for each append: it checks only what this frame may have changed."""
        machine = self.machine
        try:
            machine.acknowledged(node, *frame)
        except StorageError as error:
            machine.leave(f"the log cannot be read: {error.reason}")
        if node in self._in_turn:
            self._note_progress(node, frame.written == machine.end)
        if machine.out:
            self.moved()

    def _note_progress(self, node: int, has_all: bool) -> None:
        if self._ports is None:
            return
        if has_all:
            self._leave_bulk(node)  # it takes part in appends as they come
            self._has_news = True
        else:
            self._ports.catch_up.progressed(node, self._ports.target)

    def _leave_bulk(self, node: int) -> None:
        self._bulk.discard(node)
        self._in_turn.discard(node)
        if self._ports is not None:
            self._ports.catch_up.leave(node, self._ports.target)

    def _feed_again(self, node: int) -> None:
        """It has a slot now."""
        self.machine.feed(node)
        self.work()

    def moved(self) -> None:
        """Its machine has news: carry out its effects."""
        self.work()
        self.on_change()

    # --- effects ---

    def work(self) -> None:
        machine = self.machine
        if self._ports is None:  # alone: the caller looks how far all is committed
            machine.out.clear()
            return
        while machine.out:
            out, machine.out = machine.out, []
            for effect in out:
                self._do(self._ports, effect)

    def _do(self, ports: LeadershipPorts, effect: Any) -> None:
        match effect:
            case effects.Feed():
                self._feed(ports, effect)
            case effects.CommitTo():
                self._has_news = True
            case effects.Hello() | effects.MatchAt() | effects.BeginAt():
                ports.peers.send(effect.node, PeerLane.LIVE, encode(ports.target, effect))
            case effects.Authority():  # `PartitionLeader.permits`: gathered appends may go now
                self.on_change()
            case effects.Propose():
                ports.records.propose(ports.target, effect)
            case effects.ReadRecord():
                ports.records.read(ports.target)
            case effects.Leave(reason):
                self.reason = reason
                ports.catch_up.leave_all(ports.target)
                self.on_over()
            case _:
                raise RuntimeError(f"unknown effect: {effect}")

    def announce_committed(self) -> None:
        """To followers without a frame since the committed end moved."""
        ports = self._ports
        if not self._has_news or ports is None:
            return
        self._has_news = False
        machine = self.machine
        for node, peer in machine.peers.items():
            if peer.sent == UNMATCHED or node in self._bulk:
                continue
            if self._announced.get(node) == (peer.session, machine.committed):
                continue  # the append that went out meanwhile has said it
            previous = machine.log.name_before(peer.sent)
            if previous is not None:
                append = AppendFrame(
                    peer.session, machine.record.epoch, previous, peer.sent, b"", machine.committed
                )
                self._announced[node] = peer.session, machine.committed
                ports.peers.send(node, PeerLane.LIVE, encode(ports.target, append))

    def _feed(self, ports: LeadershipPorts, effect: effects.Feed) -> None:
        node, session, start, committed = effect
        machine, append = self.machine, self.in_flight
        if append is not None and not self._is_live(append, node, start):
            append = None
        if append is None and not self._has_slot(ports, node, start):
            machine.fed(node, start)
            return
        batches: bytes | memoryview = b""
        try:
            previous = machine.log.name_before(start)
            if append is None:
                batches = self._from_log(node, start)
        except StorageError:  # the next append tries again
            machine.fed(node, start)
            return
        if previous is None:
            machine.linked(node)
            return
        frame = AppendFrame(session, machine.record.epoch, previous, start, batches, committed)
        if append is None:
            ports.peers.send(node, PeerLane.BULK, encode(ports.target, frame))
            machine.fed(node, end_of(batches))
            return
        self._live = self._live or of_append(append.buffers, append.length)
        ports.peers.send(node, PeerLane.LIVE, encode(ports.target, frame, self._live))
        self._announced[node] = session, committed
        machine.fed(node, append.end)

    def _from_log(self, node: int, start: int) -> bytes | memoryview:
        self._bulk.add(node)
        self._in_turn.add(node)
        if start < self.log.start_offset:  # retention has removed it: the follower begins again
            return b""
        return self.log.read(start, limits.FEED_BLOCK_BYTES)

    def _is_live(self, append: LogAppend, node: int, start: int) -> bool:
        """The append in flight can be sent to it from memory."""
        if append.base_offset != start or node in self._bulk:
            return False
        return append.length <= limits.FEED_APPEND_BYTES_MAX

    def _has_slot(self, ports: LeadershipPorts, node: int, start: int) -> bool:
        """Commits wait for a member; a learner is fed from the log in its turn."""
        record = self.machine.record
        if any(one.node == node for members in self.machine.possible_sets for one in members):
            ports.catch_up.leave(node, ports.target)
            return True
        spare = len(record.members) - record.members_min
        missing_bytes = self.machine.log.bytes_from(max(start, self.log.start_offset))
        again = partial(self._feed_again, node)
        self._in_turn.add(node)
        return ports.catch_up.request(node, ports.target, spare, missing_bytes, again)


def end_of(batches: bytes | memoryview) -> int:
    """The offset behind the last of these batches."""
    return max((one.base_offset + one.count for one in headers_of(batches)), default=0)


def _nothing() -> None:
    """The owner polls instead."""
