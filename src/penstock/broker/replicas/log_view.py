"""A partition's log for the machines of replication: ends, epochs, and the batch before an offset.

All of it comes from the log's own headers. If the log begins at an offset, the batch before it is
named (0, offset, 0): no batch begins at its own end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.replication.matching import Chain, Extent

if TYPE_CHECKING:
    from penstock.log.partition import PartitionLog


class LogView:
    """Implements `replication.follower.LogView`. Failed reads raise StorageError."""

    __slots__ = ("log",)

    def __init__(self, log: PartitionLog) -> None:
        self.log = log

    @property
    def end(self) -> int:
        return self.log.written_end

    @property
    def synced(self) -> int:
        return self.log.synced_end

    def extent(self) -> Extent:
        log = self.log
        epochs = [(one.epoch, one.first_offset) for one in log.epochs()]
        if epochs:  # a corrupt first batch is counted to the first epoch that can be read
            epochs[0] = epochs[0][0], log.start_offset
        return Extent(log.start_offset, log.written_end, tuple(epochs))

    def bytes_from(self, offset: int) -> int:
        return self.log.bytes_from(offset)

    def chain_before(self, offset: int) -> Chain | None:
        """None where no batch ends."""
        log = self.log
        if offset == log.written_end:
            return Chain(*log.last())
        if not log.start_offset <= offset < log.written_end:
            return None
        if offset == log.start_offset:
            return Chain(0, offset, 0)  # also where retention removed the batch before
        name = log.name_before(offset)
        if name is not None:
            return Chain(*name)
        batch = log.batch_at(offset - 1)
        if batch.end_offset != offset:
            return None
        return Chain(batch.epoch, batch.base_offset, batch.crc)
