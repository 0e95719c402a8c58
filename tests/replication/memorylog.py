"""A log for the machines' tests: epochs of batches, each its own crc."""

from penstock.log.epochs import NO_BATCH, BatchName, Extent

BATCH_BYTES = 600 * 1024  # one is near the end of the log, two are not


class MemoryLog:
    def __init__(self, epochs: list[int], synced: int | None = None) -> None:
        self.batches = list(epochs)
        self.synced_end = len(epochs) if synced is None else synced

    @property
    def written_end(self) -> int:
        return len(self.batches)

    def extent(self) -> Extent:
        epochs: list[tuple[int, int]] = []
        for offset, epoch in enumerate(self.batches):
            if epoch and (not epochs or epochs[-1][0] != epoch):  # 0: it is corrupt
                epochs.append((epoch, offset))
        return Extent(0, self.written_end, tuple(epochs))

    def bytes_from(self, offset: int) -> int:
        return BATCH_BYTES * (self.written_end - offset)

    def name_before(self, offset: int) -> BatchName | None:
        if offset == 0:
            return NO_BATCH
        if offset > self.written_end:
            return None
        epoch = self.batches[offset - 1]
        return BatchName(epoch, offset - 1, 1000 * epoch + offset)
