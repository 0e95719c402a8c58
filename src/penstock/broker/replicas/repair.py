"""Fetches corrupt ranges of a replica's log from another replica, and writes them in place.

Corruption moves no cursor: a reader waits at the corrupt range, and everything else continues.
About once a second this node requests the first range that another replica may have, below what is
known to be committed:

| the other replica | then |
|---|---|
| sends batches of it | they are checked, written, synced (`log.copies`); the rest is requested |
| has none of it, or its answer is refused | the next one is asked, or for the next range |
| does not answer for REPAIR_PATIENCE looks | the same |
| all linked ones have been asked | REPAIR_PAUSE looks later it starts again |

Ranges that an operator has given up on this node (`penstock log repair`) are requested like any
other. When, within one such round, every other node of the partition's record has reported that it
permanently lacks the start of that range, the leader's readers step over it, as far as all of them
lack it. A missing or refused answer is no such report.

A replica answers in any role, but only with what it knows to be committed, so with what every
member had there. A stopped one neither asks nor answers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.ports import PeerLane
from penstock.errors import LogDamaged, StorageError
from penstock.log.damage import joined
from penstock.log.epochs import NO_BATCH, BatchName
from penstock.log.scan import headers_of
from penstock.replication.frames import encode
from penstock.replication.side_frames import RequestRange, SendRange, lacking

if TYPE_CHECKING:
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition

_log = logging.getLogger("penstock.broker")


class _Request(NamedTuple):
    number: int
    node: int
    start: int


class Repairing:
    def __init__(self, owner: ReplicatedPartition) -> None:
        self._owner = owner
        self._replica = owner.replica
        self._number = 0  # of the last question
        self._request: _Request | None = None
        self._looks = 0  # since then, or since all have been asked
        self._without: dict[int, set[int]] = {}  # by a range's start, nodes that do not have it
        self._lacking: dict[int, dict[int, int]] = {}  # of those, up to where they lack it for good

    def settle(self) -> None:
        """Call about once a second."""
        if not self._owner.assignment.is_stopped:
            self._look()
            self._concede()

    def _look(self) -> None:
        if not len(self._replica.log.damage):
            self._request = None
            self._begin_round()
            return
        self._looks += 1
        if self._request is not None:
            if self._looks < limits.REPAIR_PATIENCE:
                return
            self._miss(self._request)
        self._request_next()

    def _request_next(self) -> None:
        assignment = self._owner.assignment
        self._request, committed = None, assignment.committed
        for start, end in joined(self._replica.log.damage):
            left = sorted(assignment.linked_nodes - self._without.get(start, set()))
            if start < committed and left:
                self._send_request(start, min(end, committed), left[0])
                return
        if self._looks >= limits.REPAIR_PAUSE:
            self._looks = 0
            self._begin_round()

    def _begin_round(self) -> None:
        self._without.clear()
        self._lacking.clear()

    def _send_request(self, start: int, end: int, node: int) -> None:
        self._looks, self._number = 0, self._number + 1
        self._request = _Request(self._number, node, start)
        self._send(node, PeerLane.LIVE, RequestRange(self._number, start, end))

    def _send(self, node: int, lane: PeerLane, frame: RequestRange | SendRange) -> None:
        self._owner.replication.peers.send(node, lane, encode(self._owner.target, frame))

    def _miss(self, request: _Request) -> None:
        self._without.setdefault(request.start, set()).add(request.node)

    def _concede(self) -> None:
        """Ranges that the record's other nodes all lack, and that are given up here, are not waited
        for any more."""
        leader, leadership = self._replica.led, self._owner.assignment.leadership
        if leader is None or leadership is None or leadership.machine.over:
            return
        others = leadership.machine.record.replica_nodes - {self._owner.replication.node}
        damage = self._replica.log.damage
        for start, _ in joined(damage):
            known = self._lacking.get(start, {})
            if others <= known.keys():
                ends = [damage.given_up_until(start), *(known[node] for node in others)]
                if min(ends) > start:
                    leader.concede(start, min(ends))

    # --- input ---

    def receive(self, node: int, frame: RequestRange | SendRange) -> None:
        if self._owner.assignment.is_stopped:
            return
        if isinstance(frame, RequestRange):
            self._answer(node, frame)
        elif (request := self._request) == (frame.session, node, frame.start):
            self._take(node, request, frame)
            self._concede()

    def _take(self, node: int, request: _Request, frame: SendRange) -> None:
        if not self._restore(frame):
            self._miss(request)
            if frame.lacks_until > frame.start:
                self._lacking.setdefault(frame.start, {})[node] = frame.lacks_until
        self._request_next()

    def _restore(self, frame: SendRange) -> bool:
        replica, batches = self._replica, bytes(frame.batches)
        if not batches:
            return False
        try:
            committed = self._owner.assignment.committed
            end = replica.log.restore(frame.start, batches, frame.previous, committed)
        except StorageError as error:
            _log.warning("%s: a corrupt range is not repaired: %s", replica.label, error)
            return False
        replica.producers.restored(headers_of(batches))
        _log.info("%s: offsets %d to %d are repaired", replica.label, frame.start, end - 1)
        replica.refresh_damage()
        return True

    def _answer(self, node: int, frame: RequestRange) -> None:
        """The answer to another replica, as far as it is known here."""
        end = min(frame.end, self._owner.assignment.committed)
        try:
            previous, batches = self._intact(frame.start, end)
        except LogDamaged as error:  # here, too: its own reader reports that
            is_there = error.from_offset <= frame.start < min(error.to_offset, end)
            until = min(error.to_offset, end) if is_there else 0
            previous, batches = lacking(until), b""
        except StorageError:
            previous, batches = NO_BATCH, b""
        sent = SendRange(frame.session, frame.start, previous, batches)
        self._send(node, PeerLane.BULK, sent)

    def _intact(self, start: int, end: int) -> tuple[BatchName, bytes]:
        log = self._replica.log
        if start < min(log.start_offset, end):
            return lacking(min(log.start_offset, end)), b""  # removed
        previous = log.name_before(start)
        batches = self._batches(start, end) if previous is not None else b""
        return (previous, batches) if previous is not None and batches else (NO_BATCH, b"")

    def _batches(self, start: int, end: int) -> bytes:
        """Whole ones from `start` on, none beyond `end`: at least one, if there is one."""
        log = self._replica.log
        if not log.start_offset <= start < min(end, log.written_end):
            return b""
        block, length = log.read(start, limits.READ_BLOCK_BYTES), 0
        for header in headers_of(block):
            if header.base_offset + header.count > end:
                break
            length += header.length
        return bytes(block[:length])
