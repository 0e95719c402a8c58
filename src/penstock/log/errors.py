"""Errors of the files of a replica, below `StorageError` (`penstock.errors`).

StorageError
├── ReplicaUnreadable  replica.json is corrupt, or of a version that is not known here
├── LedgerLost       what a node has promised is not known any more: missing or corrupt
├── LedgerStopped    a sync of the ledger failed, or it is closed: the node can promise nothing
├── LedgerUnreadable a newer release has written the ledger
├── AppendRefused    a leader's append does not continue this log: nothing of it was written
├── JournalRefused   a leader's record does not continue this channel journal
├── RestoreRefused   batches that were fetched do not fill what is corrupt: nothing was written
└── CutRefused       the log can't end or begin there
"""

from penstock.errors import StorageError


class ReplicaUnreadable(StorageError):
    """The state of the replica is unknown, so its log is not opened."""


class LedgerLost(StorageError):
    """Not the same as an empty ledger: all replicas of the node must be copied."""

    def __init__(self, where: object, reason: str, is_missing: bool = False) -> None:
        super().__init__(where, f"the ledger is lost: {reason}")
        self.is_missing = is_missing


class LedgerStopped(StorageError):
    pass


class LedgerUnreadable(StorageError):
    pass


class AppendRefused(StorageError):
    """The log is as before. A follower that gets one of these is matched again."""


class JournalRefused(StorageError):
    """The files are unchanged. A follower requests a snapshot."""

    def __init__(self, where: object, fault: str) -> None:
        super().__init__(where, f"the channel journal is not continued: {fault}")


class RestoreRefused(StorageError):
    """`offset` is where the corrupt range begins. The log is as before."""

    def __init__(self, where: object, offset: int, rule: str) -> None:
        super().__init__(where, f"nothing is restored at offset {offset}: {rule}")


class CutRefused(StorageError):
    """`offset` is where it should end or begin. The log is as before."""

    def __init__(self, where: object, offset: int, rule: str) -> None:
        super().__init__(where, f"no cut at offset {offset}: {rule}")
