"""A leader's row, checked before a byte of it is written to a follower's log.

A row is one or more batches as the leader encoded them. It is taken whole or refused whole, and
each rule that it can break has an error of its own (`errors.AppendRefused`):

1. The batch before it, by epoch, offset and crc, is the last batch of this log. Equal ends prove
   nothing: two logs can end at one offset with different batches there. A log without a batch has
   nothing to compare; it was emptied or begun for this leader.
2. Each batch is sound: its own crc, and numbers that fit each other.
3. Offsets follow one another without a gap, from the end of the log on.
4. Epochs never fall.
5. The row is no larger than any leader writes.
6. No header says that more is synced than what lies below it.

Whose log it is, the caller has checked: identity stands in the frame, not in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.kernel import BatchCheck, BatchHeader, check_batch, decode_header, id_at
from penstock.log.epochs import BatchName
from penstock.log.errors import BatchUnsound, ChainBroken, EpochFalls, OffsetsApart, RowTooLarge

if TYPE_CHECKING:
    from typing_extensions import Buffer


class Piece(NamedTuple):
    """A batch of a row: where in the row it begins, and its header."""

    position: int
    header: BatchHeader

    @property
    def last_id(self) -> int:
        return id_at(self.header.base_id, self.header.count - 1)


class Row(NamedTuple):
    """What is known of a row that may be written."""

    length: int
    count: int  # type: ignore[assignment]  # of messages; hides tuple.count
    pieces: list[Piece]


def check_row(
    where: str,
    batches: Sequence[Buffer],
    previous: BatchName,
    end_offset: int,
    last: BatchName | None,
    epoch: int,
) -> Row:
    """`last` is the log's last batch, None when it has none; `epoch` is the newest one there was.
    Raises AppendRefused."""
    views = [memoryview(batch).cast("B") for batch in batches]
    length = sum(map(len, views))
    if not 0 < length <= limits.ROW_BYTES_MAX:
        raise RowTooLarge(where, length, limits.ROW_BYTES_MAX)
    if last is not None and previous != last:
        raise ChainBroken(where, last, previous)
    pieces = []
    expected = end_offset
    for piece in _pieces(where, views, end_offset):
        _check_standing(where, piece.header, expected, epoch)
        pieces.append(piece)
        expected += piece.header.count
        epoch = piece.header.leader_epoch
    return Row(length, expected - end_offset, pieces)


def _pieces(where: str, views: Sequence[memoryview], offset: int) -> Iterator[Piece]:
    start = 0
    for view in views:
        position = 0
        while position < len(view):
            status, length = check_batch(view, position)
            if status != BatchCheck.SOUND:
                raise BatchUnsound(where, offset, BatchCheck(status).name)
            header = decode_header(view, position)
            yield Piece(start + position, header)
            offset = header.base_offset + header.count
            position += length
        start += len(view)


def _check_standing(where: str, header: BatchHeader, expected: int, epoch: int) -> None:
    if header.base_offset != expected:
        raise OffsetsApart(where, expected, header.base_offset)
    if header.leader_epoch < epoch:
        raise EpochFalls(where, expected, epoch, header.leader_epoch)
    if header.synced_end > header.base_offset:
        raise BatchUnsound(where, expected, "its synced end is ahead of it")
