"""Idempotent publishing at a leader: batches on their way to disk, and the meaning of a stamp now.

| a publish | is |
|---|---|
| follows on what is stored, or is being stored | new: it becomes a batch of its own |
| is being stored already | pending: answered when that batch is committed |
| is stored (`producers.ProducerTable`) | answered at once |
| leaves a gap, or has an older epoch | refused |

The header of the batch carries producer, epoch and first sequence. A batch that fails takes along
all later ones of its producer: they would leave a gap. A new leader takes no publish before the
batches that it inherited are committed, and thus in the table: a retry of one is neither answered
too early nor stored again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.partition.appends import Encode, Sections, Stored
from penstock.broker.partition.producers import Known
from penstock.errors import PenstockError, ProducerFenced, Refused, SequenceGap
from penstock.kernel import Section, encode_batch

if TYPE_CHECKING:
    from penstock.broker.partition.group_commit import GroupCommit
    from penstock.broker.partition.replica import Replica

SEQUENCE_END_MAX = (1 << 32) - 1
# The error; else where the first message lies, or None: it was stored before, at an unknown
# position.
StampedDone = Callable[[PenstockError | None, Stored | None], None]


class Stamp(NamedTuple):
    producer_id: int
    epoch: int
    sequence: int  # of its first message


class _Pending:
    __slots__ = ("count", "done", "repeats", "stamp", "where")

    def __init__(self, stamp: Stamp, count: int, done: StampedDone) -> None:
        self.stamp = stamp
        self.count = count
        self.done = done
        self.repeats: list[StampedDone] = []  # who has sent the same meanwhile
        self.where = Stored(0, 0)  # known once it is written

    @property
    def next_sequence(self) -> int:
        return self.stamp.sequence + self.count


class StampedPublishes:
    def __init__(self, replica: Replica, group: GroupCommit) -> None:
        self._context, self._label = replica.topic.context, replica.label
        self._group = group
        self._table = replica.producers
        self._pending: dict[int, deque[_Pending]] = {}
        self._table.pending = self._pending.keys()

    def publish(
        self,
        stamp: Stamp,
        bodies: list[bytes],
        due_ns: int,
        done: StampedDone,
        sections: Sequence[Sections] = (),
    ) -> None:
        """`sections`: none, or of each body. Raises as `publish_batch`."""
        columns = _columns(len(bodies), due_ns, sections)

        def encode(offset: int, id: int, wall_ns: int, synced_end: int, epoch: int) -> bytes:
            fields = offset, id, wall_ns, synced_end, epoch
            return encode_batch(bodies, *fields, *stamp, columns)

        self.publish_batch(stamp, len(bodies), sum(map(len, bodies)), encode, done)

    def publish_batch(
        self, stamp: Stamp, count: int, length: int, encode: Encode, done: StampedDone
    ) -> None:
        """`encode` makes it when its position is known. Raises SequenceGap, ProducerFenced and
        Refused. The caller has seen to all other limits."""
        repeated = self._find(stamp, count)
        if repeated is not None:
            if isinstance(repeated, _Pending):
                repeated.repeats.append(done)
            else:
                done(None, None)
            return
        self._table.begin()
        pending = _Pending(stamp, count, done)
        self._pending.setdefault(stamp.producer_id, deque()).append(pending)

        def located(offset: int, id: int, wall_ns: int, synced_end: int, epoch: int) -> bytes:
            pending.where = Stored(offset, id)
            return encode(offset, id, wall_ns, synced_end, epoch)

        self._group.publish_whole(
            located, count, length, lambda error: self._ended(pending, error), stamp.producer_id
        )

    def knows(self, producer_id: int) -> bool:
        return producer_id in self._pending or self._table.find(producer_id) is not None

    def is_repeat(self, stamp: Stamp, count: int) -> bool:
        """Was it stored, or is it on its way? Raises SequenceGap and ProducerFenced."""
        return self._find(stamp, count) is not None

    def _find(self, stamp: Stamp, count: int) -> Known | _Pending | None:
        """Where this very publish is known from; None when it is new and in sequence."""
        end = stamp.sequence + count
        if end > SEQUENCE_END_MAX:
            raise Refused("the sequences of this epoch are used up: begin another one")
        known = self._table.find(stamp.producer_id)
        pending = self._pending.get(stamp.producer_id)
        last = known[:2] if known is not None else (stamp.epoch, 0)
        if pending:
            last = pending[-1].stamp.epoch, pending[-1].next_sequence
        if self._is_new(last, stamp, count):
            if known is None and not pending and not self._table.has_room():
                most = limits.PRODUCERS_MAX
                raise Refused(f"{most} producers of this topic are remembered already")
            return None
        if known is not None and known.covers(stamp.epoch, end):
            return known
        for one in pending or ():  # the first whose commit covers all of it
            if one.stamp.epoch == stamp.epoch and end <= one.next_sequence:
                return one
        raise RuntimeError(f"{self._label}: a repeat of nothing")

    def _is_new(self, last: tuple[int, int], stamp: Stamp, count: int) -> bool:
        """A leader that may have been replaced does not know of later commits, so it cannot report
        a gap. A process that was paused reads its clients before it checks the time, so that is
        done here."""
        try:
            return is_new(last, stamp.epoch, stamp.sequence, count)
        except SequenceGap as error:
            machine = self._group.leadership.machine
            machine.tick(self._context.clock.mono_ns())
            if machine.permits.acts:
                raise
            reason = f"{error.reason}, as far as a leader knows that may have been replaced"
            raise Refused(reason) from error

    def _ended(self, pending: _Pending, error: PenstockError | None) -> None:
        """The batch is as safe as the topic's durability says, or was not stored."""
        producer_id = pending.stamp.producer_id
        append = self._pending[producer_id]
        append.remove(pending)
        if not append:
            del self._pending[producer_id]
        if error is None:
            producer_id, epoch, sequence = pending.stamp
            wall_ns = self._context.clock.wall_ns()
            self._table.note(producer_id, epoch, sequence + pending.count, wall_ns)
        else:
            self._group.drop_whole(producer_id, error)
        pending.done(error, None if error else pending.where)
        for done in pending.repeats:
            done(error, None)


def is_new(last: tuple[int, int], epoch: int, sequence: int, count: int) -> bool:
    """Is a publish of `count` messages from `sequence` on the next of its producer, or was it made
    before? `last`: epoch and next sequence of the newest batch, committed or not. Raises
    SequenceGap and ProducerFenced."""
    last_epoch, expected = last
    if epoch < last_epoch:
        raise ProducerFenced(last_epoch)
    if epoch > last_epoch:
        expected = 0
    if sequence != expected and sequence + count > expected:
        raise SequenceGap(expected)
    return sequence == expected


def _columns(
    count: int, due_ns: int, sections: Sequence[Sections]
) -> dict[int, dict[int, int | bytes]] | None:
    """The entries of a trailer: by section, then by message."""
    columns: dict[int, dict[int, int | bytes]] = {}
    if due_ns:
        columns[Section.DUE] = dict.fromkeys(range(count), due_ns)
    for index, one in enumerate(sections):
        for section, value in one.items():
            columns.setdefault(section, {})[index] = value
    return columns or None
