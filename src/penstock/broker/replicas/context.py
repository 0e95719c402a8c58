"""What the replicas of a node share: the node's identity, its epochs, and the way to other nodes.

A context exists only if partitions are kept on several nodes.

**Epochs** are in the ledger before they are acted on, with one sync for all that arrive together. A
replica that answers a leader of an epoch, or begins a leadership, has promised to ignore lower
ones; a crash must not undo that.

**Catching up.** After an outage of an hour every partition of a node has to be fed. All at once
would share the link and the disk so that none of them becomes level for long, and publishers would
wait for the rest. Each node therefore has SLOTS, and a learner needs one to be fed from its
leader's log.

| a replica that | |
|---|---|
| has a slot | keeps it until it receives new appends, or its session or the leadership ends |
| waits | queues by fewest members of its partition above the minimum, then by the least lack |
| acknowledges nothing for CATCH_UP_STALL_NS | gives its slot to the next, and waits behind all |
| is a member | needs none: commits wait for it |

No clock is read: `tick` brings the time. `again` repeats what `request` refused, when there is a
slot.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.ports import Peers
from penstock.errors import StorageError
from penstock.limits import CATCH_UP_SLOTS, CATCH_UP_STALL_NS
from penstock.log.ledger import ReplicaEntry, ReplicaKey
from penstock.replication.authority import Evidence, Isolation
from penstock.replication.frames import Target

if TYPE_CHECKING:
    from penstock.broker.ports import Syncs
    from penstock.log.ledger import Ledger


class Need(NamedTuple):
    """How much a partition needs this learner. The lowest comes first."""

    is_stalled: bool
    members_spare: int  # above the minimum
    missing_bytes: int


Again = Callable[[], None]


class _WaitingLearner(NamedTuple):
    need: Need
    again: Again


class CatchUp:
    """The catch-up of one node, for all partitions that it leads."""

    def __init__(self, slots_max: int = CATCH_UP_SLOTS) -> None:
        self.slots_max = slots_max
        self._now_ns = 0
        self._fed: dict[int, dict[Target, int]] = {}  # by node: since when nothing came
        self._waiting: dict[int, dict[Target, _WaitingLearner]] = {}
        self._stalled: set[tuple[int, Target]] = set()

    def request(
        self, node: int, target: Target, members_spare: int, missing_bytes: int, again: Again
    ) -> bool:
        """May the learner of `target` on this node be fed? False: it waits for `again`."""
        fed = self._fed.setdefault(node, {})
        if target in fed:
            return True
        waiting = self._waiting.setdefault(node, {})
        need = Need((node, target) in self._stalled, members_spare, missing_bytes)
        waiting[target] = _WaitingLearner(need, again)
        if len(fed) >= self.slots_max or _neediest(waiting) != target:
            return False
        self._begin(node, target)
        return True

    def progressed(self, node: int, target: Target) -> None:
        """It has acknowledged something."""
        self._stalled.discard((node, target))
        fed = self._fed.get(node)
        if fed is not None and target in fed:
            fed[target] = self._now_ns

    def leave(self, node: int, target: Target) -> None:
        """It needs no slot any more."""
        self._stalled.discard((node, target))
        self._waiting.get(node, {}).pop(target, None)
        if self._fed.get(node, {}).pop(target, None) is not None:
            self._fill(node)

    def leave_all(self, target: Target) -> None:
        """The leadership is over."""
        for node in {*self._fed, *self._waiting}:
            self.leave(node, target)

    def tick(self, mono_ns: int) -> None:
        self._now_ns = mono_ns
        for node, fed in tuple(self._fed.items()):
            for target, since_ns in tuple(fed.items()):
                if self._waiting.get(node) and mono_ns - since_ns >= CATCH_UP_STALL_NS:
                    del fed[target]
                    self._stalled.add((node, target))
            self._fill(node)

    def _fill(self, node: int) -> None:
        """Slots that are free go to the neediest."""
        fed, waiting = self._fed.get(node, {}), self._waiting.get(node, {})
        while waiting and len(fed) < self.slots_max:
            target = _neediest(waiting)
            again = waiting[target].again
            self._begin(node, target)
            again()

    def _begin(self, node: int, target: Target) -> None:
        del self._waiting[node][target]
        self._fed[node][target] = self._now_ns

    def validate(self) -> None:
        for node, fed in self._fed.items():
            waiting = self._waiting.get(node, {})
            if len(fed) > self.slots_max:
                raise RuntimeError(f"node {node} is fed {len(fed)} learners at a time")
            if fed.keys() & waiting.keys():
                raise RuntimeError(f"a learner on node {node} is fed, and waits for it")
            if waiting and len(fed) < self.slots_max:
                raise RuntimeError(f"a learner waits, and node {node} has a free slot")


def _neediest(waiting: dict[Target, _WaitingLearner]) -> Target:
    """Among equal needs, the one that has waited longest."""
    return min(waiting, key=lambda target: waiting[target].need)


class EpochLedger:
    """`flush` is called once a turn. `trouble` names why nothing is durable at present; it ends
    with a later flush, or, if the ledger has stopped, with the process."""

    def __init__(self, ledger: Ledger, syncs: Syncs) -> None:
        self.ledger = ledger
        self.trouble = ""
        self._syncs = syncs
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()  # by number
        self._numbers: dict[ReplicaKey, int] = {}  # of the newest change of each

    def epoch(self, key: ReplicaKey) -> int:
        entry = self.ledger.replica(key)
        return 0 if entry is None else entry.epoch

    def save(self, key: ReplicaKey, epoch: int, then: Callable[[], None]) -> None:
        """`then` is called when the promise is durable, which may be at once. Raises ValueError
        where a higher one was given."""
        entry = self.ledger.replica(key)
        self._put(key, ReplicaEntry(epoch, b"" if entry is None else entry.record), then)

    def note_revision(self, revision: int, restorations: int) -> None:
        """The newest revision that this node acts on; durable with the next save."""
        node = self.ledger.node
        if (restorations, revision) > (node.restorations, node.revision):
            self.ledger.set_node(node._replace(revision=revision, restorations=restorations))

    def remember(self, key: ReplicaKey, record: bytes, then: Callable[[], None]) -> None:
        """`then` is called when this record of the replica's partition is durable."""
        self._put(key, ReplicaEntry(self.epoch(key), record), then)

    def forget(self, key: ReplicaKey) -> None:
        if self.ledger.replica(key) is not None:
            self._numbers.pop(key, None)
            self.ledger.drop(key)

    def _put(self, key: ReplicaKey, entry: ReplicaEntry, then: Callable[[], None]) -> None:
        if self.ledger.replica(key) != entry:
            self._numbers[key] = self.ledger.put(key, entry)
        number = self._numbers.get(key, 0)
        if number <= self.ledger.synced_number:
            then()
        else:
            self._waiting.append((number, then))

    def flush(self) -> None:
        """Write the gathered entries, and sync them."""
        try:
            self._syncs.sync(self.ledger, self._ended, awaited=True)
        except StorageError as error:
            self.trouble = error.reason
        else:
            self.trouble = ""

    def close(self) -> None:
        """At the stop: the ledger can be closed when none of its syncs is running."""
        self._syncs.wait_for(lambda: self.ledger.busy)

    def _ended(self, error: OSError | None) -> None:
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


_IDENTITY_BYTES = 8


@dataclass(slots=True)
class ReplicationContext:
    node: int
    incarnation: int  # a random number of this process
    generation: int  # of its start, durable in the ledger, and in the coordinator
    epoch_ledger: EpochLedger
    peers: Peers
    # By it leaderships know that they are in force. Shared with the cluster's `Proposals`.
    evidence: Evidence = field(default_factory=Evidence)
    isolation: Isolation = field(default_factory=Isolation)
    catch_up: CatchUp = field(default_factory=CatchUp)


@lru_cache(maxsize=1 << 15)  # each look at a partition's record asks for it
def identity_number(identity: str) -> int:
    """A topic's identity in the form of records and frames."""
    digest = hashlib.blake2b(identity.encode(), digest_size=_IDENTITY_BYTES).digest()
    return int.from_bytes(digest, "big")


def target_of(key: ReplicaKey) -> Target:
    return Target(identity_number(key.identity), key.partition)
