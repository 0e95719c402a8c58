"""A log for the machines' tests: epochs of batches, each its own crc."""

from penstock.replication.matching import NO_BATCH, Chain, Extent

BATCH_BYTES = 600 * 1024  # one is near the end of the log, two are not


class MemoryLog:
    def __init__(self, epochs: list[int], synced: int | None = None) -> None:
        self.batches = list(epochs)
        self.synced = len(epochs) if synced is None else synced

    @property
    def end(self) -> int:
        return len(self.batches)

    def extent(self) -> Extent:
        epochs: list[tuple[int, int]] = []
        for offset, epoch in enumerate(self.batches):
            if epoch and (not epochs or epochs[-1][0] != epoch):  # 0: it is corrupt
                epochs.append((epoch, offset))
        return Extent(0, self.end, tuple(epochs))

    def bytes_from(self, offset: int) -> int:
        return BATCH_BYTES * (self.end - offset)

    def chain_before(self, offset: int) -> Chain | None:
        if offset == 0:
            return NO_BATCH
        if offset > self.end:
            return None
        epoch = self.batches[offset - 1]
        return Chain(epoch, offset - 1, 1000 * epoch + offset)
