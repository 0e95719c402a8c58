"""A replica's log on a disk, as a model: one batch an offset, and what a loss of power leaves.

`synced` is what the operating system has promised; `durable` is what a loss of power leaves. They
differ after a failed sync only: the next one succeeds, and the range that failed is not written.

Each batch has a content (a number that is never used twice, in the place of its crc) and, for the
observer alone, the hash of everything up to it, so that prefixes are compared by one number.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.replication.matching import NO_BATCH, Chain, Extent


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
        "end",
        "epochs",
        "hashes",
        "poisoned",
        "synced",
    )

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.end = 0  # how many there are: it is asked for at every turn
        self.hashes: list[int] = []
        self.epochs: list[tuple[int, int]] = []
        self.synced = 0
        self.durable = 0
        self.poisoned = False  # a sync has failed: nothing more becomes durable
        self.corrupt = False  # a batch is not what was written
        self.beyond = 0  # what a header promises that outlived what stood before it

    def extent(self) -> Extent:
        return Extent(0, self.end, tuple(self.epochs))

    def bytes_from(self, offset: int) -> int:
        return BATCH_BYTES * (self.end - offset)

    def chain_before(self, offset: int) -> Chain | None:
        if offset == 0:
            return NO_BATCH
        if offset > self.end:
            return None
        batch = self.batches[offset - 1]
        return Chain(batch.epoch, offset - 1, batch.content)

    def append(self, batch: Batch) -> None:
        if not self.epochs or self.epochs[-1][0] != batch.epoch:
            self.epochs.append((batch.epoch, self.end))
        before = self.hashes[-1] if self.hashes else 0
        self.hashes.append(hash((before, batch.epoch, batch.content)))
        self.batches.append(batch)
        self.end += 1

    def truncate(self, end: int) -> None:
        del self.batches[end:], self.hashes[end:]
        self.end = min(self.end, end)
        while self.epochs and self.epochs[-1][1] >= end:
            self.epochs.pop()
        self.synced, self.durable = min(self.synced, end), min(self.durable, end)

    def sync(self) -> None:
        self.synced = self.end
        if not self.poisoned:
            self.durable = self.synced

    def fail_sync(self) -> None:
        self.poisoned = True

    def lose_power(self, kept: int) -> None:
        """Of what is not durable, the first `kept` batches are there after all, and the last one:
        pages reach the disk in any order."""
        self.beyond = self.batches[-1].promise if self.durable + kept < self.end else 0
        self.truncate(min(self.durable + kept, self.end))
        self.poisoned = False
        self.synced = self.durable = self.end

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
        other.end = other.synced = other.durable = end
        other.corrupt = self.corrupt
        return other
