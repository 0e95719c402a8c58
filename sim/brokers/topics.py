"""The topics of a history. They grow now and then, and one is deleted and made again.

| phase | what there is | goes on when |
|---|---|---|
| THERE | a topic, which may get more partitions | it is to be made again: a tombstone is put |
| GOING | a tombstone, and less and less behind it | every node has confirmed it: the next is made |
| COMING | the next one | each partition is led, and each node that is up has its channels |

A topic that is made again has as many partitions as at first. Each life of a topic has an identity
of its own, and clients go by what their node has: one that has not heard of the end serves the old
life.
"""

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from penstock.broker.topics.topic import Topic
from penstock.cluster import keys
from penstock.cluster.creation import clearance, creation, deletion, growth
from penstock.cluster.documents import RECORD
from penstock.cluster.keys import PartitionName
from penstock.errors import NotFound, Refused
from penstock.replication.leader import Outcome
from penstock.replication.record import PartitionRecord
from sim.brokers.cluster import JoinedCluster, placement_node
from sim.brokers.node import JoinedNode

PARTITIONS_MAX = 4  # of a topic


class Plan(NamedTuple):
    name: str
    partitions: int  # that it is made with
    channels: tuple[str, ...]


PLANS = (Plan("orders", 2, ("billing", "audit")), Plan("events", 1, ("log",)))


class Phase(Enum):
    THERE = "there"
    GOING = "going"
    COMING = "coming"


class Topics:
    def __init__(self, cluster: JoinedCluster) -> None:
        self._cluster = cluster
        self.phases = dict.fromkeys((plan.name for plan in PLANS), Phase.THERE)
        self.incarnations = dict.fromkeys((plan.name for plan in PLANS), 0)
        self.partitions = {plan.name: plan.partitions for plan in PLANS}  # now
        self.made_ns = dict.fromkeys((plan.name for plan in PLANS), 0)
        self._incarnation_of: dict[str, int] = {}  # by identity
        self.made = self.grown = 0
        for plan in PLANS:
            cluster.make(plan.name, partitions=plan.partitions, durability="disk")
            for channel in plan.channels:
                cluster.make_channel(plan.name, channel)
            self.note(plan)

    def note(self, plan: Plan) -> None:
        """The identity of the life that it is in."""
        for node in self._cluster.up():
            topic = node.broker.topics.get(plan.name)
            if topic is not None and topic.identity not in self._incarnation_of:
                self._incarnation_of[topic.identity] = self.incarnations[plan.name]

    def incarnation(self, topic: Topic) -> int | None:
        """None: it is not known yet, and clients do not come to it."""
        return self._incarnation_of.get(topic.identity)

    def is_there(self, plan: Plan) -> bool:
        return self.has(plan.name)

    def has(self, name: str) -> bool:
        return self.phases[name] is Phase.THERE

    @property
    def are_all_there(self) -> bool:
        return all(map(self.is_there, PLANS))

    def partitions_of(self, plan: Plan) -> Iterator[PartitionName]:
        return (PartitionName(plan.name, number) for number in range(self.partitions[plan.name]))

    def all_partitions(self) -> Iterator[PartitionName]:
        for plan in PLANS:
            yield from self.partitions_of(plan)

    # --- more partitions ---

    def grow(self, plan: Plan) -> None:
        """By one, as an operator's command does at any moment."""
        cluster, count = self._cluster, self.partitions[plan.name] + 1
        if count > PARTITIONS_MAX or not cluster.up():
            return
        view, nodes = self._best_informed().view, [placement_node(node) for node in cluster.nodes]
        try:
            transaction = growth(view, plan.name, count, nodes, cluster.new_replica)
        except (NotFound, Refused):
            return  # its view is behind
        if transaction is not None and cluster.store.transact(transaction).outcome is Outcome.DONE:
            self.partitions[plan.name] = count
            self.grown += 1

    def count(self) -> None:
        """What there is, after the coordinator went back: a growth that no node has heard of is
        undone by that."""
        for plan in PLANS:
            entries = self._cluster.store.entries_of(keys.PARTITIONS + plan.name + "/")
            self.partitions[plan.name] = len(entries)

    # --- made again ---

    def make_again(self, plan: Plan) -> None:
        if not self._cluster.up():
            return
        try:
            transaction = deletion(self._best_informed().view, plan.name)
        except Refused:
            return  # its view is behind
        if self._cluster.store.transact(transaction).outcome is Outcome.DONE:
            self.phases[plan.name] = Phase.GOING

    def _best_informed(self) -> JoinedNode:
        return max(self._cluster.up(), key=lambda node: (node.view.revision, -node.number))

    def turn(self) -> None:
        """Now and then. What was refused is tried again."""
        for plan in PLANS:
            if self.phases[plan.name] is Phase.GOING and self._cluster.up():
                self._clear(plan)
            elif self.phases[plan.name] is Phase.COMING:
                self._look_for(plan)

    def _clear(self, plan: Plan) -> None:
        cluster, view = self._cluster, self._best_informed().view
        transaction = clearance(view, plan.name)
        if transaction is not None:
            cluster.store.transact(transaction)
            return
        wanted = cluster.wanted(plan.partitions, durability="disk")
        nodes = [placement_node(node) for node in cluster.nodes]
        try:
            made = creation(view, plan.name, wanted, nodes, cluster.new_replica)
        except Refused:
            return  # a node has not confirmed it
        if cluster.store.transact(made).outcome is Outcome.DONE:
            for channel in plan.channels:
                cluster.put_channel(wanted.identity, plan.name, channel)
            self.incarnations[plan.name] += 1
            self.made_ns[plan.name] = cluster.clock.since_ns
            self.partitions[plan.name] = plan.partitions
            self.phases[plan.name] = Phase.COMING

    def _look_for(self, plan: Plan) -> None:
        cluster = self._cluster
        if not all(cluster.leader(*name) for name in self.partitions_of(plan)):
            return
        topics = [node.broker.topics.get(plan.name) for node in cluster.up()]
        channels = set(plan.channels)
        if all(topic is not None and channels <= set(topic.channels) for topic in topics):
            self.note(plan)
            self.made += 1
            self.phases[plan.name] = Phase.THERE

    # --- records ---

    def record(self, name: PartitionName) -> tuple[PartitionRecord, int] | None:
        """In force, and its revision."""
        entry = self._cluster.store.entries.get(keys.partition(*name))
        return None if entry is None else (RECORD.decode(entry.key, entry.value), entry.revision)
