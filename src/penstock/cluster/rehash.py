"""Spreads the keys of a topic over all its partitions, with no key's messages out of order.

A new message of a key may go to another partition than its older ones. So nobody may publish while
anything older is left, and no node may choose by the old number once another chooses by the new.

| step of the node that was asked | ends with |
|---|---|
| all leaders are asked whether much is left | GrowthRefused if so: nothing has changed |
| missing partitions are added | what growth ends with |
| `rehash/<topic>` is put, under this node's lease | each node refuses publishes as it sees that |
| all leaders are asked again and again until nothing is | GrowthRefused after REHASH_DRAIN_NS |
| the topic gets its number, and the key goes, in one | publishes are taken, by the new number |

A leader answers for the partitions that it leads, once it has applied the revision of the key that
it is asked about. One that is elected later has applied it, too: its election is a later revision.
What a node sends to a leader on another one it marks with its own number, so that the leader
refuses what was chosen by an old one (`broker.replicas.forwarding`): a node that does not reach the
coordinator may be behind.

The key goes with the node's lease, so a node that dies leaves the topic as it was. One that gives
up removes it, and tries that until it is gone.

Producers that number their messages stay in their partitions: the number that these had is kept
among the topic's settings.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.ports import MetadataDone
from penstock.broker.topics.growth import check_drained
from penstock.cluster import keys
from penstock.cluster.attempts import Attempts, Goal
from penstock.cluster.coordinator import (
    NO_LEASE,
    Coordinator,
    CreatedIs,
    Delete,
    Put,
    RevisionIs,
    Transaction,
    seen_by_view,
)
from penstock.cluster.documents import REHASH, TOPIC, Rehash, Topic, identity_text
from penstock.cluster.messages import Drained, DrainRequest, Message
from penstock.cluster.metadata_topics import PRODUCER_PARTITIONS, changed_settings
from penstock.cluster.view import Versioned, View
from penstock.errors import GrowthRefused, NotFound, PenstockError, Refused
from penstock.limits import (
    CHANNEL_REQUEST_NS,
    COORDINATOR_RETRY_NS,
    REHASH_DRAIN_NS,
    REHASH_LEFT_MAX,
)

_NO_ANSWER = "keys are not rehashed: not all leaders of the topic have answered"
Grow = Callable[[str, int, MetadataDone], None]


@dataclass(slots=True, eq=False)
class _Drain:
    """The partitions whose leaders have nothing left, as of one revision of `rehash/<topic>`."""

    revision: int = 0  # 0: before there is one
    since_ns: int = 0
    requested_ns: int = -CHANNEL_REQUEST_NS
    drained: set[int] = field(default_factory=set)
    reason: str = ""  # what is left


@dataclass(eq=False)
class Rehashes:
    """`send` sends a message to a node, which may be this one. `is_here`: has this node applied
    everything that the view shows of a topic? `lease`: of this process; NO_LEASE: it has none."""

    _incarnation: int
    _broker: Broker
    _view: View
    _attempts: Attempts
    _coordinator: Coordinator
    _send: Callable[[int, Message], None]
    _is_here: Callable[[str], bool]
    _lease: Callable[[], int]
    _now_ns: int
    _drains: dict[str, _Drain] = field(default_factory=dict)
    _removal_ns: int = 0

    def is_rehashing(self, name: str) -> bool:
        held, topic = self._view.rehashes.get(name), self._view.topic(name)
        return bool(held and topic and held.document.identity == topic.document.identity)

    def rehash(self, name: str, partitions: int, grow: Grow, done: MetadataDone) -> None:
        """`grow` adds the partitions that are missing."""
        if name in self._drains:
            done(GrowthRefused(f"the keys of topic {name} are being rehashed already"))
            return
        self._drains[name] = _Drain(since_ns=self._now_ns)

        def ended(error: PenstockError | None) -> None:
            del self._drains[name]
            done(error)

        def checked(error: PenstockError | None) -> None:
            if error is None:
                grow(name, partitions, grown)
            else:
                ended(error)

        def grown(error: PenstockError | None) -> None:
            if error is None:
                draw = partial(self._draw, name, partitions)
                is_there = partial(self._is_spread, name, partitions)
                self._attempts.want(Goal(f"rehash of topic {name}", draw, is_there), ended)
            else:
                ended(error)

        is_drained = partial(self._is_drained, name)
        look = Goal(f"look at topic {name}", partial(self._check, name), is_drained)
        self._attempts.want(look, checked)

    def tick(self, now_ns: int) -> None:
        """Call after the reconciler has applied the view, and before the attempts are checked."""
        self._now_ns = now_ns
        for name, drain in self._drains.items():
            self._request(name, drain)
        if now_ns >= self._removal_ns:
            self._remove_left()

    def _remove_left(self) -> None:
        """What this process has put and does not need any more."""
        for name, held in self._view.rehashes.items():
            if held.document.incarnation == self._incarnation and name not in self._drains:
                self._removal_ns = self._now_ns + COORDINATOR_RETRY_NS
                key = keys.rehash(name)
                gone = Transaction((CreatedIs(key, held.created),), (Delete(key),))
                self._coordinator.transact(gone, seen_by_view)

    # --- the leaders ---

    def _request(self, name: str, drain: _Drain) -> None:
        held, topic = self._view.rehashes.get(name), self._view.topic(name)
        created = held.created if held is not None else 0
        if created != drain.revision:
            drain.revision, drain.since_ns = created, self._now_ns
            drain.requested_ns = self._now_ns - CHANNEL_REQUEST_NS
            drain.drained.clear()
            drain.reason = ""
        if topic is None or drain.requested_ns + CHANNEL_REQUEST_NS > self._now_ns:
            return
        drain.requested_ns = self._now_ns
        request = DrainRequest(name, identity_text(topic.document.identity), drain.revision)
        leaders = {
            one.document.leader.node
            for partition, one in self._view.partitions.of(name)
            if one.document.leader is not None and partition.number not in drain.drained
        }
        for node in sorted(leaders):
            self._send(node, request)

    def receive(self, node: int, message: DrainRequest | Drained) -> None:
        if isinstance(message, DrainRequest):
            self._answer(node, message)
            return
        drain = self._drains.get(message.topic)
        if drain is None or drain.revision != message.revision:
            return  # of an earlier attempt
        if message.reason:
            drain.reason = message.reason
        else:
            drain.drained.update(message.partitions)

    def _answer(self, node: int, request: DrainRequest) -> None:
        """Who has not come so far is asked again."""
        name, revision = request.topic, request.revision
        topic = self._broker.topics.get(name)
        if topic is None or topic.identity != request.identity:
            return
        if self._view.revision < revision or not self._is_here(name):
            return
        reason, partitions = "", tuple(leader.number for leader in topic.leaders)
        try:
            left_max = 0 if revision else REHASH_LEFT_MAX  # which may still be finished in time
            check_drained(self._broker.context, topic, left_max)
        except GrowthRefused as error:
            reason = error.reason
        self._send(node, Drained(name, revision, partitions, reason))

    def _is_drained(self, name: str) -> bool:
        found = {partition.number for partition, _ in self._view.partitions.of(name)}
        return bool(found) and found <= self._drains[name].drained

    # --- the attempts ---

    def _is_spread(self, name: str, partitions: int) -> bool:
        held = self._view.topic(name)
        is_new = held is not None and held.document.hash_partitions == partitions
        return is_new and name not in self._view.rehashes and self._is_here(name)

    def _check(self, name: str) -> None:
        drain = self._drains[name]
        if drain.reason or self._is_late(drain):
            raise GrowthRefused(drain.reason or _NO_ANSWER)

    def _is_late(self, drain: _Drain) -> bool:
        return self._now_ns - drain.since_ns >= REHASH_DRAIN_NS

    def _draw(self, name: str, partitions: int) -> Transaction | None:
        held, drain = self._view.topic(name), self._drains[name]
        if held is None:
            raise NotFound("topic", name)
        document, lock = held.document, self._view.rehashes.get(name)
        if lock is None:
            return self._locking(name, held)
        if lock.document.incarnation != self._incarnation:
            raise Refused("another node rehashes its keys")
        if drain.revision != lock.created:
            return None  # its leaders are asked with the next tick
        if self._is_drained(name):
            before = dict(document.settings).get(PRODUCER_PARTITIONS, document.hash_partitions)
            settings = changed_settings(document.settings, {PRODUCER_PARTITIONS: before})
            spread = document._replace(hash_partitions=partitions, settings=settings)
            topic_key, key = keys.topic(name), keys.rehash(name)
            compares = RevisionIs(topic_key, held.revision), CreatedIs(key, lock.created)
            return Transaction(compares, (Put(topic_key, TOPIC.encode(spread)), Delete(key)))
        if self._is_late(drain):
            raise GrowthRefused(drain.reason or _NO_ANSWER)
        return None

    def _locking(self, name: str, held: Versioned[Topic]) -> Transaction:
        lease = self._lease()
        if lease == NO_LEASE:
            raise Refused("this node is not registered in the cluster")
        value = REHASH.encode(Rehash(held.document.identity, self._incarnation))
        key = keys.rehash(name)
        compares = RevisionIs(keys.topic(name), held.revision), RevisionIs(key, 0)
        return Transaction(compares, (Put(key, value, lease),))
