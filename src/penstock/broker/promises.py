"""What this node has promised, made durable: epochs in the ledger, with one sync for all that come
together.

A replica that answers a leader of an epoch, or begins an office, has promised to have nothing to do
with lower ones. It may do so only when the promise is on the disk, for a crash must not undo it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.errors import StorageError
from penstock.log.ledgerfile import ReplicaEntry, ReplicaKey

if TYPE_CHECKING:
    from penstock.broker.syncs import Syncs
    from penstock.log.ledger import Ledger, LedgerJob


class Promises:
    """`flush` is called once a turn. `trouble` says why nothing is made durable at present; it ends
    with a later flush, or, if the ledger has stopped, with the process."""

    def __init__(self, ledger: Ledger, syncs: Syncs) -> None:
        self.ledger = ledger
        self.trouble = ""
        self._syncs = syncs
        self._job: LedgerJob | None = None
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # by number
        self._numbers: dict[ReplicaKey, int] = {}  # of the newest change of each

    def epoch(self, key: ReplicaKey) -> int:
        entry = self.ledger.replica(key)
        return 0 if entry is None else entry.epoch

    def save(self, key: ReplicaKey, epoch: int, then: Callable[[], None]) -> None:
        """`then` is called when the promise is durable, which may be at once. Raises ValueError
        where a higher one was given."""
        entry = self.ledger.replica(key)
        if entry is None or entry.epoch != epoch:
            record = b"" if entry is None else entry.record
            self._numbers[key] = self.ledger.put(key, ReplicaEntry(epoch, record))
        self._when_durable(key, then)

    def note_revision(self, revision: int, restorations: int) -> None:
        """The newest of the metadata that this node acts on; durable with what is saved later."""
        node = self.ledger.node
        if (restorations, revision) > (node.restorations, node.revision):
            self.ledger.set_node(node._replace(revision=revision, restorations=restorations))

    def remember(self, key: ReplicaKey, record: bytes, then: Callable[[], None]) -> None:
        """`then` is called when this record of the replica's partition is durable."""
        entry = self.ledger.replica(key)
        if entry is None or entry.record != record:
            epoch = 0 if entry is None else entry.epoch
            self._numbers[key] = self.ledger.put(key, ReplicaEntry(epoch, record))
        self._when_durable(key, then)

    def forget(self, key: ReplicaKey) -> None:
        """The topic was deleted: its identity never comes again."""
        if self.ledger.replica(key) is not None:
            self._numbers.pop(key, None)
            self.ledger.drop(key)

    def _when_durable(self, key: ReplicaKey, then: Callable[[], None]) -> None:
        number = self._numbers.get(key, 0)
        if number <= self.ledger.synced_number:
            then()
        else:
            self._waiting.append((number, then))

    def flush(self) -> None:
        """Write what has gathered, and have it synced."""
        if self._job is not None:
            return
        try:
            job = self.ledger.sync_begin()
        except StorageError as error:
            self.trouble = error.reason
            return
        self.trouble = ""
        if job is not None:
            self._job = job
            self._syncs.submit(job, self._ended, awaited=True)

    def close(self) -> None:
        """At the stop: the ledger can be closed when no sync of it is under way."""
        self._syncs.wait_for(lambda: self._job is not None)

    def _ended(self, error: OSError | None) -> None:
        job, self._job = self._job, None
        if job is None:
            raise RuntimeError("a sync of the ledger ended that was never begun")
        self.ledger.sync_end(job, error)
        self.trouble = self.ledger.stopped
        kept, waiting = [], list(self._waiting)
        self._waiting.clear()
        for number, then in waiting:
            if number <= self.ledger.synced_number:
                then()
            else:
                kept.append((number, then))
        self._waiting.extendleft(reversed(kept))
        self.flush()
