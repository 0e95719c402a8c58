"""Errors of the files of a replica, below `StorageError` (`penstock.errors`)."""

from penstock.errors import StorageError


class ReplicaUnreadable(StorageError):
    """replica.json is corrupt, or of an unknown version: the state of the replica is unknown, so
    its log is not opened."""


class LedgerLost(StorageError):
    """What the node has promised is not known any more: the ledger is missing or corrupt. Not the
    same as an empty one: all replicas of the node must be copied."""

    def __init__(self, where: object, reason: str, is_missing: bool = False) -> None:
        super().__init__(where, f"the ledger is lost: {reason}")
        self.is_missing = is_missing


class LedgerStopped(StorageError):
    """A sync of the ledger failed, or it is closed: the node can promise nothing."""


class LedgerUnreadable(StorageError):
    """A newer release has written the ledger."""


class AppendRefused(StorageError):
    """A leader's append does not continue this log, which is as before. A follower that gets one of
    these is matched again."""


class JournalRefused(StorageError):
    """A leader's record does not continue this channel journal, which is unchanged. A follower
    requests a snapshot."""

    def __init__(self, where: object, fault: str) -> None:
        super().__init__(where, f"the channel journal is not continued: {fault}")


class RestoreRefused(StorageError):
    """Batches that were fetched do not fill what is corrupt. `offset` is where the corrupt range
    begins. The log is as before."""

    def __init__(self, where: object, offset: int, rule: str) -> None:
        super().__init__(where, f"nothing is restored at offset {offset}: {rule}")


class CutRefused(StorageError):
    """The log can't end or begin at `offset`. It is as before."""

    def __init__(self, where: object, offset: int, rule: str) -> None:
        super().__init__(where, f"no cut at offset {offset}: {rule}")
