"""The port's values as etcd's messages, and back.

| port | etcd |
|---|---|
| `RevisionIs(key, n)` | MOD revision = n; 0 for a key that is not there |
| `CreatedIs(key, n)` | CREATE revision = n; 0 for a key that is not there |
| the operations | the success branch |
| `Settled.found` | the failure branch: one range for each comparison |

Nothing here does I/O. `Keys` knows the prefix that all keys of a cluster have.
"""

from collections.abc import Iterable
from typing import Any

from aetcd import rpc

from penstock.cluster.coordinator import (
    Compare,
    KeyEvent,
    KeyValue,
    Operation,
    Put,
    RevisionIs,
    Settled,
    Transaction,
)
from penstock.limits import LIST_PAGE_KEYS
from penstock.replication.leader import Outcome

PULSE = "pulse"  # a key of this port's own: writing it shows how far a watch is
_DELETED = 1  # an event's type


class Keys:
    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._bytes = prefix.encode()

    def encode(self, key: str) -> bytes:
        return self._bytes + key.encode()

    def decode(self, key: bytes) -> str:
        return key[len(self._bytes) :].decode()

    def entry(self, found: Any) -> KeyValue:
        return KeyValue(
            self.decode(found.key), found.value, found.mod_revision, found.create_revision,
            found.lease,
        )  # fmt: skip

    # --- transactions ---

    def transaction(self, transaction: Transaction) -> Any:
        return rpc.TxnRequest(
            compare=[self._compare(one) for one in transaction.compares],
            success=[self._operation(one) for one in transaction.operations],
            failure=self._ranges(transaction.compares),
        )

    def refused(self, compares: Iterable[Compare]) -> Any:
        """A comparison that always fails: only the values of the keys are wanted."""
        never = rpc.Compare(
            target=rpc.Compare.VERSION, result=rpc.Compare.LESS, key=self._bytes, version=0
        )
        return rpc.TxnRequest(compare=[never], failure=self._ranges(compares))

    def _ranges(self, compares: Iterable[Compare]) -> list[Any]:
        return [
            rpc.RequestOp(request_range=rpc.RangeRequest(key=self.encode(one.key)))
            for one in compares
        ]

    def _compare(self, compare: Compare) -> Any:
        key, kinds = self.encode(compare.key), rpc.Compare
        if isinstance(compare, RevisionIs):
            return kinds(target=kinds.MOD, key=key, mod_revision=compare.revision)
        return kinds(target=kinds.CREATE, key=key, create_revision=compare.created)

    def _operation(self, operation: Operation) -> Any:
        key = self.encode(operation.key)
        if isinstance(operation, Put):
            put = rpc.PutRequest(key=key, value=operation.value, lease=operation.lease)
            return rpc.RequestOp(request_put=put)
        return rpc.RequestOp(request_delete_range=rpc.DeleteRangeRequest(key=key))

    def settled(self, response: Any) -> Settled:
        revision = response.header.revision
        if response.succeeded:
            return Settled(Outcome.DONE, revision)
        found = [kv for one in response.responses for kv in one.response_range.kvs]
        return Settled(Outcome.REFUSED, revision, tuple(map(self.entry, found)))

    # --- reading ---

    def read(self, key: str) -> Any:
        return rpc.RangeRequest(key=self.encode(key))

    def page(self, prefix: str, after: bytes, revision: int) -> Any:
        """The keys of `prefix` behind `after`, as of `revision`; 0: as of now."""
        start = self.encode(prefix)
        return rpc.RangeRequest(
            key=after + b"\0" if after else start,
            range_end=end_of(start),
            limit=LIST_PAGE_KEYS,
            revision=revision,
        )

    def entries(self, found: Iterable[Any]) -> tuple[KeyValue, ...]:
        entries = map(self.entry, found)
        return tuple(entry for entry in entries if entry.key != PULSE)

    # --- watches ---

    def watch(self, prefix: str, since: int) -> Any:
        start = self.encode(prefix)
        create = rpc.WatchCreateRequest(
            key=start, range_end=end_of(start), start_revision=since, fragment=True
        )
        return rpc.WatchRequest(create_request=create)

    def event(self, event: Any) -> KeyEvent:
        kv = event.kv
        entry = None if event.type == _DELETED else self.entry(kv)
        return KeyEvent(self.decode(kv.key), entry, kv.mod_revision)


def end_of(prefix: bytes) -> bytes:
    """The first key behind all that begin with `prefix`, which ends in no byte 255."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
