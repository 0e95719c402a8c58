"""The batches of idempotent producers in one partition of several replicas.

A producer numbers its messages; the header of each of its batches has the numbers. The table is a
fold over the headers of *committed* batches only: the next leader may truncate batches above the
committed end, and those must not hide their replacements.

| a publish | is |
|---|---|
| follows what is committed, or what is above it | new: it becomes a batch |
| is above the committed end already | pending: answered when that batch is committed |
| is committed | stored: answered at once |
| leaves a gap, or has an older epoch | refused |

A new leader takes no publish before the batches that it inherited are committed, and thus in the
table: a retry of one is neither answered too early nor stored again.

The file of the table is a shortcut, with an `end`: all batches below it are in the table. That end
never exceeds the committed end, so no truncation of a follower reaches below it. If one does, after
an election that an operator forced, the table is folded again. A learner cannot fold what retention
has removed: it receives a leader's table, and continues from its end.
"""

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from penstock.errors import ProducerFenced, SequenceGap


class Known(NamedTuple):
    """The committed state of one producer."""

    epoch: int
    next_sequence: int
    used_ns: int  # when it was last heard of

    def covers(self, epoch: int, end: int) -> bool:
        return epoch == self.epoch and end <= self.next_sequence


class Stamped(NamedTuple):
    """A batch of an idempotent producer, from its header."""

    end: int  # the offset behind it
    producer_id: int
    epoch: int
    next_sequence: int
    used_ns: int


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


class ProducerReplication:
    """The table of one replica as of `end`, and the batches above it. `table` is as of `end`."""

    __slots__ = ("_tail", "end", "table")

    def __init__(self, end: int, table: Mapping[int, Known]) -> None:
        self.end = end
        self.table = dict(table)
        self._tail: deque[Stamped] = deque()

    def wrote(self, batch: Stamped) -> None:
        """The batch is in this log."""
        self._tail.append(batch)

    def committed(self, end: int) -> None:
        """All batches below `end` are committed, and were reported by `wrote`."""
        while self._tail and self._tail[0].end <= end:
            self._store(self._tail.popleft())
        self.end = max(self.end, end)

    def restored(self, batch: Stamped) -> None:
        """A committed batch that was unreadable when later ones were reported."""
        known = self.table.get(batch.producer_id)
        if known is None or known[:2] < (batch.epoch, batch.next_sequence):
            self._store(batch)

    def cut(self, end: int) -> bool:
        """The log ends at `end` now. False: committed batches are gone, and the table has to be
        folded again."""
        while self._tail and self._tail[-1].end > end:
            self._tail.pop()
        return end >= self.end

    def _store(self, batch: Stamped) -> None:
        self.table[batch.producer_id] = Known(batch.epoch, batch.next_sequence, batch.used_ns)
