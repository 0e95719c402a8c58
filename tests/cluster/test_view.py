"""What a node knows of the metadata, and that it never goes back."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from cases import each
from penstock.cluster import keys
from penstock.cluster.coordinator import Delete, KeyValue, Put, Reading, Transaction
from penstock.cluster.documents import (
    ACTIVE,
    CHANNEL,
    CLUSTER,
    NODE,
    RECORD,
    TOPIC,
    Channel,
    Cluster,
    Membership,
    NodeDocument,
    Topic,
)
from penstock.cluster.keys import PartitionName
from penstock.cluster.proposals import PreferredLeaders
from penstock.cluster.view import Remembered, Versioned, View
from penstock.cluster.watch import Watching
from penstock.limits import (
    PREFERRED_LEADERS_NS,
    SECOND,
    SUCCESSOR_LISTED_NS,
    SUCCESSOR_STEADY_NS,
    WATCH_PROGRESS_NS,
)
from penstock.replication.effects import Propose
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.brokers.port import Port
from sim.protocol.modellog import ModelLog
from sim.store import Store

ORDERS = PartitionName("orders", 0)
KEY = keys.partition(*ORDERS)
NODE_1 = NodeDocument(1, "a", 1, 2, "a", 3, "0.1.0", "", 0, 0)
ALL_COUNT = 1 << 30


def record(epoch: int, *nodes: int, leader: int | None = None) -> PartitionRecord:
    members = tuple(Member(node, node + 100, 1) for node in nodes)
    leader_id = None if leader is None else LeaderId(leader, 1, leader + 100)
    return PartitionRecord(7, epoch, leader_id, members, 1, (1, 2, 3))


class Desk:
    """A coordinator and one node that follows it."""

    def __init__(self, uuid: int = 5) -> None:
        self.now_ns = 0
        self.store = Store()
        self.store.put("cluster", CLUSTER.encode(Cluster(uuid, 1, 1, 0)))
        self.begin(View())

    def begin(self, view: View) -> None:
        self.view = view
        self.coordinator = Port(self.store)
        self.watching = Watching(self.coordinator, view)

    def put_record(self, one: PartitionRecord) -> int:
        return self.store.put(KEY, RECORD.encode(one)).revision

    def delete(self, key: str) -> None:
        self.store.transact(Transaction((), (Delete(key),)))

    def run(self, seconds: float = 0.0) -> list[Any]:
        self.now_ns += int(seconds * SECOND)
        changes: list[Any] = []
        for _ in range(10):
            self.watching.tick(self.now_ns)
            self.coordinator.run(self.now_ns)
            changes += self.view.apply(ALL_COUNT)
        return changes


def test_a_large_view_is_applied_in_slices() -> None:
    desk = Desk()
    desk.run()
    view = desk.view
    before = view.revision
    puts = tuple(Put(keys.topic(f"t{n}"), TOPIC.encode(topic())) for n in range(5))
    desk.store.transact(Transaction((), puts))
    desk.coordinator.run(desk.now_ns)
    assert len(view.apply(2)) == len(view.apply(2)) == 2
    assert (view.revision, view.is_pending) == (before, True)
    assert len(view.apply(2)) == 1
    assert (view.revision, view.is_pending) == (before + 1, False)


def topic(deleted: bool = False, identity: int = 7) -> Topic:
    return Topic(identity, 3, 1, False, (), deleted, ())


# --- it refuses to go back ---


@pytest.fixture
def desk() -> Desk:
    """Its coordinator was set back from epoch 2 of a record to a backup of epoch 1."""
    desk = Desk()
    desk.put_record(record(1, 1, 2, 3))
    backup = desk.store.backup()
    desk.put_record(record(2, 2, 3, leader=2))
    desk.run()
    desk.store.restore(backup)
    return desk


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_coordinator_from_a_backup_freezes_everything(desk: Desk, is_restarted: bool) -> None:
    view = desk.view
    if is_restarted:
        desk.begin(View(view.remembered, view.partitions))
    desk.run(WATCH_PROGRESS_NS / SECOND)
    assert desk.view.refusal(ORDERS) == "the coordinator's revision is 3, and has been 4"
    assert desk.view.partitions[ORDERS].document == record(2, 2, 3, leader=2)


def test_a_revision_that_has_come_back_shows_in_the_record(desk: Desk) -> None:
    """The node was away while the coordinator was restored and others wrote into it."""
    for _ in range(5):
        desk.store.put("nodes/1", NODE.encode(NODE_1))
    desk.begin(View(desk.view.remembered, desk.view.partitions))
    desk.run()
    assert desk.view.frozen == ""
    assert desk.view.refusal(ORDERS) == "its record is of epoch 1, and epoch 2 is remembered"
    assert desk.view.refusal(PartitionName("other", 0)) == ""


def test_restored_metadata_begins_again(desk: Desk) -> None:
    desk.run(WATCH_PROGRESS_NS / SECOND)
    desk.store.put("cluster", CLUSTER.encode(Cluster(5, 1, 1, 1)))
    desk.run(2)
    assert desk.view.frozen == ""
    assert desk.view.refusal(ORDERS).startswith("its record is of epoch 1")
    revision = desk.put_record(record(2, 2, 3, leader=2))
    desk.run()
    assert desk.view.refusal(ORDERS) == ""
    assert desk.view.partitions[ORDERS].revision == revision
    assert desk.view.remembered == Remembered(5, desk.store.revision, 1)


@each(
    ("known", "revision", "new", "text"),
    [
        (record(5, 1, 2, leader=1), 9, record(4, 1, 2), "epoch 4, and epoch 5 is remembered"),
        (record(5, 1, 2), 9, record(5, 1, 2, 3), "of revision 8, and 9 is remembered"),
        (record(5, 1, 2), 8, record(5, 1), "revision 8 is another one"),
        (record(5, 1, 2, leader=1), 7, record(5, 1, 2, leader=2), "epoch 5 has another leader"),
        (record(5, 1, 2, leader=1), 7, record(5, 1, 2), ""),
        (record(5, 1, 2), 7, record(6, 1, leader=1), ""),
        (record(5, 1, 2), 8, record(5, 1, 2), ""),
    ],
)
def test_which_records_are_older(
    known: PartitionRecord, revision: int, new: PartitionRecord, text: str
) -> None:
    view = View(Remembered(5, 8), {ORDERS: Versioned(known, revision, 2)})
    held = Versioned(new, 8, 2)
    assert text in view.judge(ORDERS, held)
    assert view.suspect(ORDERS, held) == bool(text)
    assert bool(view.refusal(ORDERS)) == bool(text)


def test_another_cluster_or_none_is_refused() -> None:
    desk = Desk()
    desk.run()
    desk.store.restore(Store().backup())
    desk.begin(View(desk.view.remembered))
    desk.run()
    assert desk.view.frozen == "the coordinator knows no cluster"
    desk.store.put("cluster", CLUSTER.encode(Cluster(6, 1, 1, 0)))
    desk.run(1)
    assert desk.view.frozen.startswith("the coordinator is that of another cluster, 0000")


def test_metadata_restored_less_often_than_remembered_is_older() -> None:
    view = View(Remembered(5, 1, 2))
    entry = KeyValue("cluster", CLUSTER.encode(Cluster(5, 1, 1, 1)), 9, 1)
    assert not view.meet(Reading(9, entry))
    assert view.frozen == "the metadata was restored 1 times, and 2 are remembered"


# --- absence deletes nothing ---


def test_a_missing_key_without_tombstone_deletes_nothing() -> None:
    desk = Desk()
    desk.put_record(record(1, 1))
    desk.store.put(keys.topic("orders"), TOPIC.encode(topic()))
    desk.store.put(keys.channel("orders", "mail"), CHANNEL.encode(Channel(7, 1, False, (), False)))
    desk.run()
    for key in (KEY, keys.topic("orders"), keys.channel("orders", "mail")):
        desk.delete(key)
    assert desk.run() == []
    assert desk.view.refusal(ORDERS) == "its record is gone, and its topic was not deleted"
    assert list(desk.view.topics) == ["orders"]
    assert len(desk.view.channels) == 1


def test_a_tombstone_deletes() -> None:
    desk = Desk()
    desk.put_record(record(1, 1))
    desk.store.put(keys.topic("orders"), TOPIC.encode(topic()))
    desk.run()
    desk.store.put(keys.topic("orders"), TOPIC.encode(topic(deleted=True)))
    desk.delete(KEY)
    desk.delete(keys.topic("orders"))
    assert [change.key for change in desk.run()] == ["topics/orders", KEY, "topics/orders"]
    assert (desk.view.partitions, desk.view.topics) == ({}, {})


def test_a_broken_document_freezes_its_partition_alone() -> None:
    desk = Desk()
    desk.put_record(record(1, 1))
    desk.run()
    desk.store.put(KEY, b"{}")
    others = {"topics/a", "partitions/a/x", "moves/a/0"}
    for key in others:
        desk.store.put(key, b"{}")
    assert desk.run() == []
    assert "v: None is not valid" in desk.view.refusal(ORDERS)
    assert set(desk.view.broken) == {KEY, *others}
    desk.put_record(record(2, 1, leader=1))
    desk.run()
    assert desk.view.refusal(ORDERS) == ""
    assert set(desk.view.broken) == others


def test_random_changes_and_failures_end_in_what_the_coordinator_has() -> None:
    dice = random.Random(22)
    desk = Desk()
    epoch = 1
    for _ in range(300):
        event = dice.randrange(6)
        name = f"{dice.randrange(4)}"
        if event == 0:
            epoch += 1
            desk.put_record(record(epoch, 1, 2, leader=dice.choice((1, 2))))
        elif event == 1:
            desk.store.put(
                "nodes/" + name, NODE.encode(NODE_1._replace(incarnation=dice.randrange(1 << 30)))
            )
        elif event == 2:
            desk.delete("nodes/" + name)
        elif event == 3:
            desk.watching._lose("the link broke")
        elif event == 4:
            desk.store.compact(desk.store.revision - dice.randrange(3))
        desk.now_ns += SECOND // 2
        desk.watching.tick(desk.now_ns)
        desk.coordinator.run(desk.now_ns)
        desk.view.apply(dice.randrange(4))
    desk.run(2)
    assert desk.view.frozen == ""
    assert set(desk.view.nodes) == {
        keys.node_of(entry.key) for entry in desk.store.entries_of("nodes/")
    }
    for name_, held in desk.view.partitions.items():
        entry = desk.store.entries[keys.partition(*name_)]
        assert held.document == RECORD.decode(entry.key, entry.value)


# --- the leader does what the record wants: who leaves the set, and who leads ---


A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
LEADER_ID = LeaderId(1, 11, 101)


class PreferenceDesk:
    def __init__(self, *wanted: int) -> None:
        self.handed: list[int] = []
        self.view = View()
        for node in (1, 2, 3):
            self.generation(node, 1)
        self.moved: set[PartitionName] = set()
        record = PartitionRecord(7, 5, LEADER_ID, (A, B, C), 2, wanted)
        self.machine = PartitionLeader(ModelLog(), record, 40, LEADER_ID, 1, 0, waits=False)
        machines = {ORDERS: self.machine}
        self.preferred_leaders = PreferredLeaders(self.view, machines, self.hand_over, self.moved)
        self.preferred_leaders.record_changed(ORDERS, record)

    def generation(self, node: int, generation: int) -> None:
        document = Membership(1, generation, "", 0, 1, 0, ACTIVE)
        self.view.memberships[node] = Versioned(document, 5, 5)
        self.view.nodes[node] = Versioned(NodeDocument(9, "h", 1, 2, "h", 3, "", "", 0, 0), 5, 5)

    def hand_over(self, name: PartitionName, node: int) -> bool:
        self.handed.append(node)
        return name == ORDERS

    def proposed(self) -> tuple[Member, ...]:
        assert self.moved == {ORDERS}  # else nobody would send it
        (proposal,) = [one for one in self.machine.out if isinstance(one, Propose)]
        return proposal.record.members


def test_an_unwanted_replica_leaves_the_set() -> None:
    desk = PreferenceDesk(1, 3)
    desk.preferred_leaders.tick(0)
    assert desk.proposed() == (A, C)


def test_a_leadership_moves_to_who_is_wanted_first_once_its_link_is_steady() -> None:
    desk = PreferenceDesk(3, 1, 2)
    desk.preferred_leaders.linked(3, 0)
    steady_ns = SUCCESSOR_STEADY_NS + PREFERRED_LEADERS_NS
    for after_ns in (SUCCESSOR_STEADY_NS - 1, steady_ns, steady_ns + SUCCESSOR_LISTED_NS - 1):
        desk.preferred_leaders.tick(after_ns)
        assert desk.handed == []  # consumers have not all found the next leader
    listed_ns = 2 * steady_ns + SUCCESSOR_LISTED_NS
    desk.preferred_leaders.unlinked(3)
    desk.preferred_leaders.tick(listed_ns)
    assert desk.handed == []
    desk.preferred_leaders.linked(3, listed_ns)
    desk.preferred_leaders.tick(listed_ns + steady_ns)
    assert desk.handed == [3]


@pytest.mark.parametrize(
    "change",
    [lambda desk: desk.generation(3, 2), lambda desk: desk.view.nodes.pop(3)],
    ids=["started again since", "not registered"],
)
def test_no_leadership_moves_to_a_replaced_or_missing_node(
    change: Callable[[PreferenceDesk], object],
) -> None:
    desk = PreferenceDesk(3, 1, 2)
    desk.preferred_leaders.linked(3, 0)
    change(desk)
    for times in (1, 2, 3):
        desk.preferred_leaders.tick(times * SUCCESSOR_LISTED_NS)
    assert desk.handed == []
