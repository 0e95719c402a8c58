"""The coordinator's state in memory: what a transaction does to it, and nothing of its transport.

It keeps all changes since the last compaction, for watches. A copy of it is a backup; `restore`
puts one back, and the revision with it: what was changed since is gone, and the same revisions
will be given again to other changes, as with a snapshot of etcd.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from penstock.cluster.coordinator import (
    NO_LEASE,
    Compacted,
    Delete,
    KeyEvent,
    KeyValue,
    Operation,
    Put,
    Settled,
    Transaction,
    holds,
)
from penstock.replication.leader import Outcome


class Backup(NamedTuple):
    revision: int
    entries: tuple[KeyValue, ...]


class Store:
    __slots__ = (
        "_events",
        "_granted",
        "_keys",
        "compacted",
        "deadlines_ns",
        "entries",
        "leases",
        "revision",
    )

    def __init__(self) -> None:
        self.revision = 1  # of an empty one, as etcd's
        self.compacted = 0  # changes up to this revision are not kept
        self.entries: dict[str, KeyValue] = {}
        self.leases: dict[int, int] = {}  # to the time that each lasts, in nanoseconds
        self.deadlines_ns: dict[int, int] = {}
        self._keys: list[str] = []  # sorted
        self._events: list[KeyEvent] = []  # since the compaction
        self._granted = NO_LEASE  # the newest lease: a number is given once

    # --- transactions ---

    def may_apply(self, transaction: Transaction) -> bool:
        return all(holds(one, self.entries.get(one.key)) for one in transaction.compares)

    def put(self, key: str, value: bytes, lease: int = NO_LEASE) -> Settled:
        """Whatever is there."""
        return self.transact(Transaction((), (Put(key, value, lease),)))

    def transact(self, transaction: Transaction) -> Settled:
        """Raises TransactionTooLarge."""
        transaction.check()
        if not (self.may_apply(transaction) and self._leases_live(transaction.operations)):
            found = [self.entries.get(compare.key) for compare in transaction.compares]
            there = tuple(entry for entry in found if entry is not None)
            return Settled(Outcome.REFUSED, self.revision, there)
        self._change(transaction.operations)
        return Settled(Outcome.DONE, self.revision)

    def _leases_live(self, operations: Iterable[Operation]) -> bool:
        return all(
            operation.lease == NO_LEASE or operation.lease in self.leases
            for operation in operations
            if isinstance(operation, Put)
        )

    def _change(self, operations: Iterable[Operation]) -> None:
        """All of them in one revision. A deletion of what is not there is none."""
        revision = self.revision + 1
        for operation in operations:
            before = self.entries.get(operation.key)
            if isinstance(operation, Put):
                created = before.created if before is not None else revision
                entry = KeyValue(operation.key, operation.value, revision, created, operation.lease)
                self._put(entry)
                self._events.append(KeyEvent(operation.key, entry, revision))
                self.revision = revision
            elif before is not None:
                self._remove(operation.key)
                self._events.append(KeyEvent(operation.key, None, revision))
                self.revision = revision

    def _put(self, entry: KeyValue) -> None:
        if entry.key not in self.entries:
            insort(self._keys, entry.key)
        self.entries[entry.key] = entry

    def _remove(self, key: str) -> None:
        del self.entries[key]
        del self._keys[bisect_left(self._keys, key)]

    # --- leases ---

    def grant(self, ttl_ns: int, mono_ns: int) -> int:
        self._granted += 1
        self.leases[self._granted] = ttl_ns
        self.deadlines_ns[self._granted] = mono_ns + ttl_ns
        return self._granted

    def keep(self, lease: int, mono_ns: int) -> bool:
        if lease not in self.leases:
            return False
        self.deadlines_ns[lease] = mono_ns + self.leases[lease]
        return True

    def _end_lease(self, lease: int) -> None:
        if self.leases.pop(lease, None) is None:
            return
        del self.deadlines_ns[lease]
        keys = [key for key in self._keys if self.entries[key].lease == lease]
        self._change(tuple(Delete(key) for key in keys))

    def run_out(self, mono_ns: int) -> None:
        """Leases whose time is over go."""
        over = [lease for lease, deadline in self.deadlines_ns.items() if deadline <= mono_ns]
        for lease in over:
            self._end_lease(lease)

    # --- reading ---

    def entries_of(self, prefix: str, after: str = "", count: int = 1 << 62) -> list[KeyValue]:
        """The entries of a prefix, in the order of their keys, that come after a key."""
        index = bisect_left(self._keys, max(prefix, after))
        found: list[KeyValue] = []
        while index < len(self._keys) and len(found) < count:
            key = self._keys[index]
            if not key.startswith(prefix):
                break
            if key != after:
                found.append(self.entries[key])
            index += 1
        return found

    def events(self, prefix: str, since: int) -> list[KeyEvent] | Compacted:
        """The changes from a revision on, in their order."""
        if since <= self.compacted:
            return Compacted(self.compacted)
        index = bisect_left(self._events, since, key=_revision_of)
        return [event for event in self._events[index:] if event.key.startswith(prefix)]

    # --- its own history ---

    def compact(self, revision: int) -> None:
        """Forget the changes up to this revision."""
        self.compacted = max(self.compacted, min(revision, self.revision))
        index = bisect_left(self._events, self.compacted + 1, key=_revision_of)
        del self._events[:index]

    def backup(self) -> Backup:
        """Leases are no part of it."""
        entries = [entry for entry in self.entries.values() if entry.lease == NO_LEASE]
        return Backup(self.revision, tuple(entries))

    def restore(self, backup: Backup) -> None:
        """As it was, with its revision; nothing is known of the changes before."""
        self.revision = self.compacted = backup.revision
        self.entries, self._keys, self._events = {}, [], []
        self.leases, self.deadlines_ns = {}, {}
        for entry in backup.entries:
            self._put(entry)


def _revision_of(event: KeyEvent) -> int:
    return event.revision
