"""A replica's log on a disk, as a model: one batch an offset, and what a loss of power leaves.

`synced_end` is what the operating system has promised; `durable` is what a loss of power leaves.
They differ after a failed sync only: the next one succeeds, and the range that failed is not
written.

Each batch has a content (a number that is never used twice, in the place of its crc) and, for the
observer alone, the hash of everything up to it, so that prefixes are compared by one number.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.log.epochs import NO_BATCH, BatchName, Extent


class Batch(NamedTuple):
    epoch: int
    content: int
    promise: int  # the header's: what every member in force had synced when it was written


BATCH_BYTES = 600 * 1024  # so that one is near the end of a log, and two are not


class ModelLog:
    __slots__ = (
        "batches",
        "beyond",
        "corrupt",
        "durable",
        "epochs",
        "hashes",
        "poisoned",
        "synced_end",
        "written_end",
    )

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.written_end = 0  # how many there are: it is asked for at every turn
        self.hashes: list[int] = []
        self.epochs: list[tuple[int, int]] = []
        self.synced_end = 0
        self.durable = 0
        self.poisoned = False  # a sync has failed: nothing more becomes durable
        self.corrupt = False  # a batch is not what was written
        self.beyond = 0  # what a header promises that outlived what stood before it

    def extent(self) -> Extent:
        return Extent(0, self.written_end, tuple(self.epochs))

    def bytes_from(self, offset: int) -> int:
        return BATCH_BYTES * (self.written_end - offset)

    def name_before(self, offset: int) -> BatchName | None:
        if offset == 0:
            return NO_BATCH
        if offset > self.written_end:
            return None
        batch = self.batches[offset - 1]
        return BatchName(batch.epoch, offset - 1, batch.content)

    def append(self, batch: Batch) -> None:
        if not self.epochs or self.epochs[-1][0] != batch.epoch:
            self.epochs.append((batch.epoch, self.written_end))
        before = self.hashes[-1] if self.hashes else 0
        self.hashes.append(hash((before, batch.epoch, batch.content)))
        self.batches.append(batch)
        self.written_end += 1

    def truncate(self, end: int) -> None:
        del self.batches[end:], self.hashes[end:]
        self.written_end = min(self.written_end, end)
        while self.epochs and self.epochs[-1][1] >= end:
            self.epochs.pop()
        self.synced_end, self.durable = min(self.synced_end, end), min(self.durable, end)

    def sync(self) -> None:
        self.synced_end = self.written_end
        if not self.poisoned:
            self.durable = self.synced_end

    def fail_sync(self) -> None:
        self.poisoned = True

    def lose_power(self, kept: int) -> None:
        """Of what is not durable, the first `kept` batches are there after all, and the last one:
        pages reach the disk in any order."""
        self.beyond = self.batches[-1].promise if self.durable + kept < self.written_end else 0
        self.truncate(min(self.durable + kept, self.written_end))
        self.poisoned = False
        self.synced_end = self.durable = self.written_end

    def claimed_end(self) -> int:
        """What the headers say that every member has synced."""
        return max([self.beyond, *(batch.promise for batch in self.batches)])

    def restarted(self) -> None:
        """The process ended, and the page cache is as it was. The start syncs what it finds."""
        self.sync()

    def copy(self) -> ModelLog:
        other, end = ModelLog(), self.durable
        other.batches, other.hashes = self.batches[:end], self.hashes[:end]
        other.epochs = [one for one in self.epochs if one[1] < end]
        other.written_end = other.synced_end = other.durable = end
        other.corrupt = self.corrupt
        return other
