"""Topics that are made, grow, and are deleted, over the coordinator in memory."""

import itertools
import random
from collections.abc import Callable

import pytest

from cases import each
from penstock.cluster import keys
from penstock.cluster.coordinator import Settled, Transaction
from penstock.cluster.creation import (
    clearance,
    confirmation,
    creation,
    deletion,
    growth,
    unconfirmed,
)
from penstock.cluster.documents import (
    ACTIVE,
    CHANNEL,
    CLUSTER,
    MEMBERSHIP,
    RECORD,
    REMOVED,
    Channel,
    Cluster,
    Membership,
    Topic,
)
from penstock.cluster.keys import PartitionName
from penstock.cluster.placement import PlacementNode
from penstock.cluster.view import View
from penstock.cluster.watch import Watching
from penstock.errors import NotFound, Refused
from penstock.limits import SECOND
from penstock.replication.leader import Outcome
from penstock.replication.record import LeaderId, elected
from sim.brokers.port import Port
from sim.store import Store

NODES = tuple(PlacementNode(node, f"zone {node}") for node in range(3))
ORDERS = Topic(0xA1, 3, 2, False, (), False, ())


class Desk:
    def __init__(self) -> None:
        self.now_ns = 0
        self.store = Store()
        self.store.put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 0)))
        for node in range(3):
            self.member(node, generation=node + 5)
        self.coordinator = Port(self.store)
        self.view = View()
        self.watching = Watching(self.coordinator, self.view)
        self.new_replica: Callable[[], int] = itertools.count(1000).__next__
        self.look()

    def member(self, node: int, generation: int, state: str = ACTIVE) -> None:
        document = Membership(node + 1, generation, "", 0, 9, 0, state)
        self.store.put(keys.member(node), MEMBERSHIP.encode(document))

    def look(self) -> View:
        for _ in range(6):
            self.now_ns += SECOND
            self.watching.tick(self.now_ns)
            self.coordinator.run(self.now_ns)
            self.view.apply(1 << 30)
        return self.view

    def do(self, transaction: Transaction | None) -> Settled:
        assert transaction is not None
        settled = self.store.transact(transaction)
        self.look()
        return settled

    def make(self, wanted: Topic = ORDERS) -> Settled:
        return self.do(creation(self.view, "orders", wanted, NODES, self.new_replica))

    def elect(self, name: PartitionName, epochs: int = 1) -> None:
        record = self.view.partitions[name].document
        for _ in range(epochs):
            first = record.members[0]
            record = elected(record, LeaderId(first.node, 9, first.replica), ())
        self.store.put(keys.partition(*name), RECORD.encode(record))
        self.look()

    def delete(self, name: str) -> None:
        self.do(deletion(self.view, name))
        while (transaction := clearance(self.view, name)) is not None:
            assert self.do(transaction).outcome is Outcome.DONE
        for node in range(3):
            self.do(confirmation(self.view, name, node))


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_topic_has_its_replicas_on_different_nodes(desk: Desk) -> None:
    assert desk.make().outcome is Outcome.DONE
    topic = desk.view.topics["orders"].document
    assert (topic.identity, topic.replicas, topic.hash_partitions) == (0xA1, 3, 2)
    replicas: set[int] = set()
    for number in range(2):
        held = desk.view.partitions[PartitionName("orders", number)]
        record = held.document
        assert held.revision == held.created
        assert (record.identity, record.epoch, record.leader) == (0xA1, 1, None)
        assert {member.node for member in record.members} == set(record.wanted) == {0, 1, 2}
        assert record.members_min == 2
        assert [m.generation for m in sorted(record.members)] == [5, 6, 7]
        replicas |= {member.replica for member in record.members}
    assert len(replicas) == 6
    first = [desk.view.partitions[PartitionName("orders", n)].document.wanted[0] for n in (0, 1)]
    assert len(set(first)) == 2  # leaders are spread


def test_a_restarted_node_is_not_mistaken_for_its_earlier_incarnation(desk: Desk) -> None:
    transaction = creation(desk.view, "orders", ORDERS, NODES, desk.new_replica)
    desk.member(1, generation=99)
    assert desk.do(transaction).outcome is Outcome.REFUSED
    assert "orders" not in desk.view.topics


def test_very_many_partitions_come_by_growth(desk: Desk) -> None:
    desk.make(ORDERS._replace(hash_partitions=255))
    assert len(desk.view.partitions) == 58
    steps = 0
    while (more := growth(desk.view, "orders", 255, NODES, desk.new_replica)) is not None:
        assert desk.do(more).outcome is Outcome.DONE
        steps += 1
    assert (len(desk.view.partitions), steps) == (255, 4)
    assert desk.view.topics["orders"].document.hash_partitions == 255
    led = [held.document.wanted[0] for held in desk.view.partitions.values()]
    assert max(map(led.count, range(3))) - min(map(led.count, range(3))) <= 4


def test_epochs_go_on_after_a_deletion(desk: Desk) -> None:
    desk.make()
    desk.elect(PartitionName("orders", 1), epochs=7)
    desk.delete("orders")
    assert desk.view.partitions == {}
    assert desk.view.epochs["orders"].document.epoch == 8
    assert desk.make(ORDERS._replace(identity=0xA2)).outcome is Outcome.DONE
    record = desk.view.partitions[PartitionName("orders", 0)].document
    assert (record.identity, record.epoch) == (0xA2, 9)
    assert desk.view.frozen_partitions == {}


def test_an_election_that_came_behind_the_tombstone_counts_too(desk: Desk) -> None:
    desk.make()
    desk.do(deletion(desk.view, "orders"))
    desk.elect(PartitionName("orders", 0), epochs=3)
    while (transaction := clearance(desk.view, "orders")) is not None:
        desk.do(transaction)
    assert desk.view.epochs["orders"].document.epoch == 4


def test_a_node_that_was_removed_is_not_waited_for(desk: Desk) -> None:
    desk.make()
    desk.delete("orders")
    desk.member(2, 7, REMOVED)
    desk.look()
    assert unconfirmed(desk.view, "orders") == []


def test_a_name_is_free_when_its_channels_are_tombstones_too(desk: Desk) -> None:
    """One transaction holds so many operations, so the partitions may go first."""
    desk.make()
    for number in range(100):
        document = Channel(0xA1, number + 1, False, (), False)
        desk.store.put(keys.channel("orders", f"c{number}"), CHANNEL.encode(document))
    desk.look()
    desk.do(deletion(desk.view, "orders"))
    for node in (0, 1, 2):
        desk.do(confirmation(desk.view, "orders", node))
    transaction = clearance(desk.view, "orders")
    assert transaction is not None
    desk.do(transaction)
    assert desk.view.partitions == {}
    with pytest.raises(Refused, match="topic orders is being deleted"):
        desk.make()
    while (transaction := clearance(desk.view, "orders")) is not None:
        desk.do(transaction)
    assert unconfirmed(desk.view, "orders") == []


@each(
    ("call", "reason"),
    [
        (lambda desk: creation(desk.view, "orders", ORDERS, (), desk.new_replica), "no node takes"),
        (lambda desk: deletion(desk.view, "none"), "there is no topic none"),
    ],
)
def test_refused_changes(call: Callable[[Desk], object], reason: str) -> None:
    with pytest.raises(Refused, match=reason):
        call(Desk())
    with pytest.raises(NotFound):
        growth(Desk().view, "none", 2, NODES, Desk().new_replica)


def test_an_existing_topic_is_not_recreated(desk: Desk) -> None:
    desk.make()
    with pytest.raises(Refused, match="topic orders exists"):
        desk.make()
    assert growth(desk.view, "orders", 2, NODES, desk.new_replica) is None
    assert clearance(desk.view, "orders") is None
    assert confirmation(desk.view, "orders", 0) is None
    assert unconfirmed(desk.view, "orders") == []


def test_epochs_of_a_topic_never_go_back() -> None:
    """Makers, growth and deletions with views of different age: the view refuses nothing."""
    dice = random.Random(7)
    desk = Desk()
    identities = itertools.count(1)
    pending: list[Transaction] = []
    for _ in range(300):
        wanted = ORDERS._replace(identity=next(identities), hash_partitions=dice.randint(1, 3))
        try:
            made = drawn(dice, desk, wanted)
        except (NotFound, Refused):
            continue
        if made is not None:
            pending.append(made)
        if pending and dice.random() < 0.7:
            desk.do(pending.pop(dice.randrange(len(pending))))
        names = sorted(desk.view.partitions)
        if names and dice.random() < 0.3:
            desk.elect(dice.choice(names))
        assert desk.view.frozen_partitions == {}
        assert not desk.view.frozen


def drawn(dice: random.Random, desk: Desk, wanted: Topic) -> Transaction | None:
    view, name = desk.view, "orders"
    match dice.randrange(5):
        case 0:
            return creation(view, name, wanted, NODES, desk.new_replica)
        case 1:
            return deletion(view, name)
        case 2:
            return clearance(view, name)
        case 3:
            return confirmation(view, name, dice.randrange(3))
        case _:
            return growth(view, name, wanted.hash_partitions + 1, NODES, desk.new_replica)
