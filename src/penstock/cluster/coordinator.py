"""The coordinator as the rules see it: keys with revisions, transactions, watches and leases.

It is the only party whose word is final, and it is asked for little: each change of the cluster is
one transaction that compares what its author has read. There are two: in memory, for simulations,
and etcd v3, whose terms these are.

**Revisions.** Each transaction that changes something raises the coordinator's revision by one, and
the keys that it put carry it. A key's `created` is the revision in which it began to exist: a key
that was deleted and put again has another.

**Calls are answered later**, by calling `done` once, from the loop, never from within the call. An
answer may be late, and its order says nothing. A transaction whose answer never came is UNKNOWN: it
may be applied now, later or never. Only a later transaction on the same key, done or refused by its
comparison, settles that; a read does not.

**A watch** hands out the changes of a prefix in the order of their revisions, none left out, from
the revision on that it was asked for. It ends with `Compacted`, where they are not kept that far
back, or with `Failed`; both are the last call of it. Without changes it reports how far it has
come when it is asked to: a watch of a coordinator that was restored from a backup is silent
otherwise, until its revision has come back to where the watch begins.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from penstock.errors import TransactionTooLarge
from penstock.limits import TRANSACTION_COMPARES_MAX, TRANSACTION_KEYS_MAX
from penstock.replication.leader import Outcome

NO_LEASE = 0


class KeyValue(NamedTuple):
    key: str
    value: bytes
    revision: int  # of its last change
    created: int  # the revision in which it began to exist
    lease: int = NO_LEASE


# --- comparisons ---


class RevisionIs(NamedTuple):
    """The key is unchanged since it was read. 0: it does not exist."""

    key: str
    revision: int


class CreatedIs(NamedTuple):
    """The key has existed without a break since this revision. 0: it does not exist."""

    key: str
    created: int


Compare = RevisionIs | CreatedIs


def holds(compare: Compare, entry: KeyValue | None) -> bool:
    """`entry`: the current value of the compared key."""
    if isinstance(compare, RevisionIs):
        return (entry.revision if entry is not None else 0) == compare.revision
    return (entry.created if entry is not None else 0) == compare.created


# --- actions ---


class Put(NamedTuple):
    key: str
    value: bytes
    lease: int = NO_LEASE  # the key goes with it


class Delete(NamedTuple):
    key: str


Operation = Put | Delete


class Transaction(NamedTuple):
    """All operations are applied if all comparisons hold, else none."""

    compares: tuple[Compare, ...]
    operations: tuple[Operation, ...]

    def check(self) -> None:
        """Raises TransactionTooLarge, and ValueError for a key that occurs twice."""
        keys = [operation.key for operation in self.operations]
        if len(keys) > TRANSACTION_KEYS_MAX:
            raise TransactionTooLarge("keys", len(keys), TRANSACTION_KEYS_MAX)
        if len(self.compares) > TRANSACTION_COMPARES_MAX:
            raise TransactionTooLarge("comparisons", len(self.compares), TRANSACTION_COMPARES_MAX)
        if len(set(keys)) < len(keys):
            twice = next(key for key in keys if keys.count(key) > 1)
            raise ValueError(f"{twice}: a transaction changes a key once")


class Settled(NamedTuple):
    """The answer to a transaction.

    `revision`: DONE, that of its changes; REFUSED, the one at which it was compared; UNKNOWN: 0.
    `found`: REFUSED, the compared keys as they stood then. A key that is not there is left out.
    `reason`: UNKNOWN, why, for people."""

    outcome: Outcome
    revision: int
    found: tuple[KeyValue, ...] = ()
    reason: str = ""


UNKNOWN = Settled(Outcome.UNKNOWN, 0)


def seen_by_view(settled: Settled) -> None:
    """A done change arrives through the view, and a refused one is retried."""


# --- reads ---


class Reading(NamedTuple):
    revision: int  # of the coordinator at that time
    entry: KeyValue | None


class KeyPage(NamedTuple):
    """A part of a list; all pages of a list show the same revision."""

    revision: int
    entries: tuple[KeyValue, ...]
    is_last: bool


class Failed(NamedTuple):
    """The coordinator could not be reached, or did not answer in time. Try again."""

    reason: str


class KeyEvent(NamedTuple):
    key: str
    entry: KeyValue | None  # None: it was deleted
    revision: int


class Changes(NamedTuple):
    """All changes up to `revision` since the last ones; an empty one reports progress."""

    revision: int
    events: tuple[KeyEvent, ...]


class Compacted(NamedTuple):
    """Changes before `revision` are compacted: the prefix has to be listed."""

    revision: int


class Granted(NamedTuple):
    lease: int
    ttl_ns: int


class LeaseGone(NamedTuple):
    """The lease expired or was revoked; its keys are gone."""

    lease: int


class KeyWatch(Protocol):
    def request_progress(self) -> None:
        """A `Changes` follows soon, even if nothing has changed."""

    def cancel(self) -> None:
        """No callback follows."""


class Coordinator(Protocol):
    def transact(self, transaction: Transaction, done: Callable[[Settled], None]) -> None:
        """Raises TransactionTooLarge."""

    def read(self, key: str, done: Callable[[Reading | Failed], None]) -> None:
        """A linearizable read: no older than any answer before the call."""

    def list(self, prefix: str, done: Callable[[KeyPage | Failed], None]) -> None:
        """`done` is called for each page, in the order of the keys; after Failed no page
        follows."""

    def watch(
        self, prefix: str, since: int, changed: Callable[[Changes | Compacted | Failed], None]
    ) -> KeyWatch: ...

    def grant(self, ttl_ns: int, done: Callable[[Granted | Failed], None]) -> None: ...

    def keep(self, lease: int, done: Callable[[Granted | LeaseGone | Failed], None]) -> None:
        """Renew the lease."""
