"""Metadata that went back, made again from what the nodes remember."""

from collections.abc import Mapping
from typing import Any

import pytest

from cases import each
from penstock.cluster import keys
from penstock.cluster.coordinator import Put
from penstock.cluster.documents import (
    CHANNEL_NUMBERS,
    CLUSTER,
    RECORD,
    TOPIC,
    Channel,
    ChannelNumbers,
    Cluster,
    Topic,
)
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.restoration import (
    CoordinatorState,
    Memory,
    Restoration,
    restoration,
    standing_of,
)
from penstock.cluster.view import Remembered, Versioned, View
from penstock.cluster.watch import Watching
from penstock.errors import Refused
from penstock.limits import TRANSACTION_KEYS_MAX
from penstock.replication.leader import Outcome
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.brokers.port import Port
from sim.store import Store

ORDERS = PartitionName("orders", 0)
TOPIC_OF = Topic(7, 3, 1, False, (), False, ())
UUID = 5
ALL_COUNT = 1 << 30


def record(epoch: int, leader: int | None, *nodes: int) -> PartitionRecord:
    members = tuple(Member(node, node + 100, 1) for node in nodes)
    leader_id = None if leader is None else LeaderId(leader, 1, leader + 100)
    return PartitionRecord(7, epoch, leader_id, members, 1, nodes)


def memory(
    node: int, revision: int, one: PartitionRecord | None, restorations: int = 0, uuid: int = UUID
) -> Memory:
    records = {} if one is None else {ORDERS: Versioned(one, revision, 1)}
    remembered = Remembered(uuid, revision, restorations)
    return Memory(node, remembered, records, {"orders": TOPIC_OF})


def standing(
    one: PartitionRecord | None,
    revision: int = 10,
    topic: Topic | None = TOPIC_OF,
    restorations: int = 0,
) -> CoordinatorState:
    topics = {} if topic is None else {"orders": Versioned(topic, 3, 3)}
    records = {} if one is None else {ORDERS: Versioned(one, revision, 1)}
    return CoordinatorState(Versioned(Cluster(UUID, 1, 4, restorations), 2, 2), records, topics)


OLD, NEW = record(5, 1, 1, 2, 3), record(7, 2, 2, 3)
SMALLER = NEW._replace(members=NEW.members[:1])
BOTH = [memory(2, 50, NEW), memory(3, 44, NEW)]


def restored(there: CoordinatorState, *memories: Memory, lost: tuple[int, ...] = ()) -> Restoration:
    return restoration(there, memories, lost)


def test_records_at_least_as_new_are_kept() -> None:
    newer = record(8, 3, 3)
    resigned = NEW._replace(leader=None)
    for there in (standing(NEW), standing(newer), standing(resigned, revision=60)):
        plan = restored(there, *BOTH)
        assert (plan.put, plan.kept, plan.left) == ({}, (ORDERS,), {})


def test_in_one_epoch_the_later_revision_counts() -> None:
    plan = restored(standing(NEW, 40), memory(2, 50, SMALLER), memory(3, 44, NEW))
    assert plan.put == {ORDERS: SMALLER}


def test_revisions_before_an_earlier_restoration_count_less() -> None:
    plan = restored(standing(OLD, restorations=1), memory(2, 5, SMALLER, 1), memory(3, 900, NEW, 0))
    assert plan.put == {ORDERS: SMALLER}


@each(
    ("there", "memories", "reason"),
    [
        (standing(OLD), [memory(3, 44, NEW)], "nodes 2 have not reported"),
        # 3 may have been taken in, and elected
        (standing(OLD), [memory(2, 50, SMALLER)], "nodes 3 have not reported"),
        (standing(OLD), [BOTH[0], memory(3, 44, record(7, 3, 2, 3))], "epoch 7 has two leaders"),
        (standing(record(7, 3, 2, 3)), BOTH, "one in the coordinator"),
        (standing(OLD, topic=TOPIC_OF._replace(deleted=True)), BOTH, "its topic is deleted"),
        (standing(OLD, topic=TOPIC_OF._replace(identity=8)), BOTH, "its topic was made again"),
        (
            standing(OLD),
            [BOTH[0], memory(3, 44, record(2, 3, 3)._replace(identity=9))],
            "nodes remember two topics of this name",
        ),
        (
            standing(None, topic=None),
            [one._replace(topics={}) for one in BOTH],
            "no node knows the settings of its topic",
        ),
    ],
)
def test_uncertain_records_are_left_out(
    there: CoordinatorState, memories: list[Memory], reason: str
) -> None:
    plan = restored(there, *memories)
    assert plan.put == {}
    assert reason in plan.left[ORDERS]


def test_a_node_that_is_lost_for_good_is_not_waited_for() -> None:
    plan = restored(standing(OLD), memory(3, 44, NEW), lost=(2,))
    assert plan.put == {ORDERS: NEW}


# --- channels ---

BILLING = ChannelName("orders", "billing")


def channel(number: int, identity: int = 7, deleted: bool = False) -> Channel:
    return Channel(identity, number, False, (), deleted)


def with_channel(one: Channel, revision: int, restorations: int = 0) -> Memory:
    known = {BILLING: Versioned(one, revision, revision)}
    return memory(1, 50, OLD, restorations)._replace(channels=known)


def there(one: Channel | None, revision: int = 10, last: int = 0) -> CoordinatorState:
    channels = {} if one is None else {BILLING: Versioned(one, revision, revision)}
    numbers = {"orders": Versioned(ChannelNumbers(7, last), 4, 4)} if last else {}
    return standing(OLD)._replace(channels=channels, numbers=numbers)


@each(
    ("stands", "remembered", "put"),
    [
        (None, (channel(3), 30), channel(3)),
        (channel(2), (channel(3), 30), channel(3)),
        (channel(3), (channel(3, deleted=True), 30), channel(3, deleted=True)),
        (channel(3), (channel(3), 30), None),
        (channel(4), (channel(3), 30), None),
        (channel(3, deleted=True), (channel(3), 5), None),  # deleted since the node has seen it
        (channel(9, identity=6), (channel(1), 30), channel(1)),
        (None, (channel(3, identity=6), 30), None),  # of an earlier topic
    ],
)
def test_a_channel_is_as_it_was_last(
    stands: Channel | None, remembered: tuple[Channel, int], put: Channel | None
) -> None:
    plan = restored(there(stands), with_channel(*remembered))
    assert plan.channels == ({} if put is None else {BILLING: put})


@pytest.mark.parametrize(("last", "raised"), [(0, True), (2, True), (3, False), (8, False)])
def test_no_number_is_given_twice(last: int, raised: bool) -> None:
    plan = restored(there(channel(3), last=last), with_channel(channel(3), 30))
    puts = {one.key: one for done in plan.transactions for one in done.operations}
    assert (keys.numbers("orders") in puts) is raised
    if raised:
        put = puts[keys.numbers("orders")]
        assert isinstance(put, Put)
        assert CHANNEL_NUMBERS.decode(put.key, put.value) == ChannelNumbers(7, 3)


def test_two_clusters_do_not_make_one() -> None:
    with pytest.raises(Refused, match="have to be of one cluster"):
        restored(standing(OLD), memory(2, 50, NEW, uuid=6))
    with pytest.raises(Refused, match="of one cluster: none"):
        restored(CoordinatorState(None, {}, {}), memory(2, 50, None, uuid=0))


# --- the transactions ---


class Desk:
    """A coordinator that was set back, and the view of a node that has frozen."""

    def __init__(
        self, records: Mapping[PartitionName, PartitionRecord], uuid: int | None = UUID
    ) -> None:
        self.store = Store()
        if uuid is not None:
            self.store.put(keys.CLUSTER, CLUSTER.encode(Cluster(uuid, 1, 4, 0)))
            self.store.put(keys.topic("orders"), TOPIC.encode(TOPIC_OF))
        for name, one in records.items():
            self.store.put(keys.partition(*name), RECORD.encode(one))

    def standing(self) -> CoordinatorState:
        """As a new reader lists it."""
        return standing_of(self.store.entries.values())

    def follow(self, view: View) -> None:
        coordinator = Port(self.store)
        watching = Watching(coordinator, view)
        for _ in range(10):
            watching.tick(0)
            coordinator.run(0)
            view.apply(ALL_COUNT)

    def carry_out(self, plan: Restoration) -> list[Outcome]:
        outcomes = []
        for transaction in plan.transactions:
            transaction.check()
            outcomes.append(self.store.transact(transaction).outcome)
        return outcomes


def view_of(one: Memory) -> View:
    return View(one.remembered, one.records)


def test_nodes_continue_once_everything_is_restored() -> None:
    desk = Desk({ORDERS: OLD})
    memories = [memory(1, 30, OLD), *BOTH]
    views = [view_of(one) for one in memories]
    for view in views:
        desk.follow(view)
        assert view.refusal(ORDERS)
    plan = restoration(desk.standing(), memories)
    assert set(desk.carry_out(plan)) == {Outcome.DONE}
    for view in views:
        desk.follow(view)
        assert (view.refusal(ORDERS), view.partitions[ORDERS].document) == ("", NEW)
        assert view.remembered.restorations == 1


def test_a_coordinator_that_was_emptied_is_filled_again() -> None:
    desk = Desk({}, uuid=None)
    plan = restoration(desk.standing(), BOTH)
    assert set(desk.carry_out(plan)) == {Outcome.DONE}
    view = view_of(BOTH[0])
    desk.follow(view)
    assert (view.refusal(ORDERS), view.topics["orders"].document) == ("", TOPIC_OF)


def test_a_concurrent_change_refuses_the_whole_restoration() -> None:
    desk = Desk({ORDERS: OLD})
    plan = restoration(desk.standing(), BOTH)
    desk.store.put(keys.partition(*ORDERS), RECORD.encode(record(6, 3, 2, 3)))
    assert desk.carry_out(plan)[0] is Outcome.REFUSED


def test_many_records_go_in_few_transactions_and_the_count_comes_last() -> None:
    count = 2 * TRANSACTION_KEYS_MAX + 1
    records: dict[PartitionName, Any] = {
        PartitionName("orders", number): Versioned(NEW, 50, 1) for number in range(count)
    }
    memories = [memory(2, 50, NEW)._replace(records=records), memory(3, 44, None)]
    desk = Desk({})
    plan = restoration(desk.standing(), memories)
    sizes = [len(one.operations) for one in plan.transactions]
    assert sizes == [TRANSACTION_KEYS_MAX, TRANSACTION_KEYS_MAX, 1, 1]
    assert [one.key for one in plan.transactions[-1].operations] == [keys.CLUSTER]
    assert set(desk.carry_out(plan)) == {Outcome.DONE}
