"""Queries of a log, whoever writes it: its batches by offset, time and id, and its extent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.errors import LogDamaged, StorageError
from penstock.kernel.layout import HEADER_BYTES
from penstock.log.epochs import BatchName, Epochs, EpochStart, Extent
from penstock.log.reader import FileRange, LogReader, Message, MessageReader
from penstock.log.segment import SegmentInfo
from penstock.log.trailers import Trailers

if TYPE_CHECKING:
    from penstock.kernel import BatchHeader
    from penstock.log.damage import Damage, DamageList
    from penstock.log.segments import Segments


class ReadableLog:
    __slots__ = ("_epochs", "_reader", "_segments", "damage", "path", "written_end")

    _epochs: Epochs
    _reader: LogReader
    _segments: Segments
    damage: DamageList
    path: str
    written_end: int

    # --- reading ---

    def read(self, offset: int, bytes_max: int) -> memoryview:
        """Whole checked batches from the one that holds `offset`, at least one."""
        self._check_offset(offset)
        with self._reading():
            return self._reader.read(offset, bytes_max)

    def batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """Header and bytes of each batch from the one that holds `offset` to the written end."""
        with self._reading():
            yield from self._reader.batches(offset)

    def intact_batches(self, offset: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        """The same, without corrupt batches."""
        while offset < self.written_end:
            try:
                for header, data in self.batches(offset):
                    yield header, data
                    offset = header.base_offset + header.count
            except LogDamaged as error:
                offset = max(error.to_offset, offset + 1)

    def trailers(self, offset: int, end_offset: int) -> Trailers:
        """Batches with a trailer, found by the headers of a few (`trailers.py`)."""
        self._check_offset(offset)
        with self._reading():
            return self._reader.trailers(offset, end_offset)

    def file_range(self, offset: int) -> FileRange | None:
        """For a thread that reads the segment beside the log; None where it cannot. Call `release`
        after use."""
        self._check_offset(offset)
        with self._reading():
            return self._reader.file_range(offset)

    def release(self, file_range: FileRange) -> None:
        self._reader.release(file_range)

    def remember(self, file_range: FileRange, offset: int, position: int) -> None:
        """Remember a position learnt from reading a file_range: the next reading may begin
        there."""
        self._reader.remember(file_range, offset, position)

    def message(self, offset: int) -> Message:
        return MessageReader(self, HEADER_BYTES).read(offset)

    def find_time(self, timestamp_ns: int) -> int:
        """The first offset whose batch is not older; the written end if there is none."""
        with self._reading():
            return self._reader.find_time(timestamp_ns)

    def after_bytes(self, offset: int, length: int) -> int:
        """Roughly the offset that lies `length` bytes of log behind `offset`."""
        with self._reading():
            return self._reader.after_bytes(offset, length)

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of log there are from `offset` on."""
        with self._reading():
            return self._reader.bytes_from(offset)

    def written_ns(self, offset: int) -> int:
        """The time at which the batch of `offset` was written."""
        return self.header_of(offset).timestamp_ns

    def header_of(self, offset: int) -> BatchHeader:
        """The header of the batch that holds `offset`."""
        self._check_offset(offset)
        with self._reading():
            return self._reader.locate(offset).header

    def find_id(self, id: int) -> int | None:
        with self._reading():
            return self._reader.find_id(id)

    # --- compared with another replica's ---

    def epochs(self) -> tuple[EpochStart, ...]:
        """Each epoch and its first offset. Empty when no batch is there."""
        with self._reading():
            return self._epochs.table(self.written_end)

    def extent(self) -> Extent:
        epochs = [(one.epoch, one.first_offset) for one in self.epochs()]
        if epochs:  # a corrupt first batch is counted to the first epoch that can be read
            epochs[0] = epochs[0][0], self.start_offset
        return Extent(self.start_offset, self.written_end, tuple(epochs))

    def batch_at(self, offset: int) -> tuple[BatchName, int]:
        """The name of the batch that holds `offset`, and the offset behind it."""
        self._check_offset(offset)
        with self._reading():
            return self._reader.batch_at(offset)

    def _last_known(self) -> BatchName:
        if self.written_end == self.start_offset:
            return BatchName(0, self.written_end, 0)
        return self.batch_at(self.written_end - 1)[0]

    # --- guards ---

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StorageError(self.path, f"the log cannot be read: {error}") from error

    def _check_offset(self, offset: int) -> None:
        if not self.start_offset <= offset < self.written_end:
            raise IndexError(
                f"offset {offset} is not in the log ({self.start_offset} to {self.written_end - 1})"
            )

    # --- extent ---

    @property
    def damaged(self) -> list[Damage]:
        """The known corrupt ranges: start, end, reason."""
        return self.damage.ranges

    @property
    def start_offset(self) -> int:
        return self._segments.start_offset

    @property
    def bytes_stored(self) -> int:
        return sum(self._segments[n].data_bytes for n in range(len(self._segments)))

    @property
    def index_failures(self) -> int:
        """Writes of indexes that were not done, since the log was opened."""
        return self._segments.index_failures

    @property
    def index_trouble(self) -> str:
        """Why the latest of them was not; empty: it was."""
        return self._segments.index_trouble

    @property
    def segments(self) -> list[SegmentInfo]:
        return self._segments.infos(self.written_end)
