"""What the files of a replica refuse, as errors below `StorageError` (`penstock.errors`).

StorageError
├── ReplicaUnreadable  replica.json is corrupt, or of a version that is not known here
├── LedgerLost       what a node has promised is not known any more: missing or corrupt
├── LedgerStopped    a sync of the ledger failed, or it is closed: the node can promise nothing
├── LedgerUnreadable a newer release has written the ledger
├── AppendRefused    a leader's row does not continue this log: nothing of it was written
│   ├── ChainBroken      the batch before it is not the last one here
│   ├── OffsetsApart     a batch does not begin where the one before it ends
│   ├── EpochFalls       a batch of a lower epoch than the one before it
│   ├── BatchUnsound     a checksum or a number of a batch is wrong
│   └── RowTooLarge      it has no bytes, or more than any leader writes
├── JournalRefused   a leader's record does not continue this channel journal
├── RestoreRefused   batches that were fetched do not fill what is corrupt: nothing was written
└── CutRefused       the log can't end or begin there
"""

from penstock.errors import StorageError


class ReplicaUnreadable(StorageError):
    """What the replica may believe is not known, so its log is not opened."""


class LedgerLost(StorageError):
    """Never to be taken for an empty one: all replicas of the node must be copied."""

    def __init__(self, where: object, reason: str, is_missing: bool = False) -> None:
        super().__init__(where, f"the ledger is lost: {reason}")
        self.is_missing = is_missing


class LedgerStopped(StorageError):
    pass


class LedgerUnreadable(StorageError):
    pass


class AppendRefused(StorageError):
    """The log is as before. A follower that gets one of these is matched again."""


class ChainBroken(AppendRefused):
    """`last` and `previous` are batches by epoch, base offset and crc: the last one of this log,
    and the one that the row continues."""

    def __init__(
        self, where: object, last: tuple[int, int, int], previous: tuple[int, int, int]
    ) -> None:
        super().__init__(
            where, f"the row continues batch {tuple(previous)}, the last one is {tuple(last)}"
        )
        self.last = last
        self.previous = previous


class OffsetsApart(AppendRefused):
    def __init__(self, where: object, expected: int, found: int) -> None:
        super().__init__(where, f"a batch at offset {found} where {expected} must come")
        self.expected = expected
        self.found = found


class EpochFalls(AppendRefused):
    def __init__(self, where: object, offset: int, epoch: int, found: int) -> None:
        super().__init__(
            where, f"the batch at offset {offset} has epoch {found}, the one before it {epoch}"
        )
        self.offset = offset
        self.epoch = epoch
        self.found = found


class BatchUnsound(AppendRefused):
    """`offset` is where the batch should stand."""

    def __init__(self, where: object, offset: int, fault: str) -> None:
        super().__init__(where, f"the batch for offset {offset} is not sound: {fault}")
        self.offset = offset
        self.fault = fault


class RowTooLarge(AppendRefused):
    def __init__(self, where: object, length: int, bytes_max: int) -> None:
        super().__init__(where, f"a row of {length} bytes: 1 to {bytes_max} may be written")
        self.length = length
        self.bytes_max = bytes_max


class JournalRefused(StorageError):
    """The files are as before. A follower that gets one of these asks for a snapshot."""

    def __init__(self, where: object, fault: str) -> None:
        super().__init__(where, f"the channel journal is not continued: {fault}")
        self.fault = fault


class RestoreRefused(StorageError):
    """`offset` is where the corrupt range begins. The log is as before."""

    def __init__(self, where: object, offset: int, rule: str) -> None:
        super().__init__(where, f"nothing is restored at offset {offset}: {rule}")
        self.offset = offset
        self.rule = rule


class CutRefused(StorageError):
    """`offset` is where it should end or begin. The log is as before."""

    def __init__(self, where: object, offset: int, rule: str) -> None:
        super().__init__(where, f"no cut at offset {offset}: {rule}")
        self.offset = offset
        self.rule = rule
