"""A cluster of three brokers: what the metadata says comes true, whoever dies."""

import errno

import pytest

from broker.world import Outcome, bodies
from nsqd.asked import topic_maker
from penstock.broker.channels.operator import finish_ahead
from penstock.broker.replicas.replicated_partition import ReplicatedPartition
from penstock.broker.stats import replica_rows
from penstock.broker.topics.topic import Topic
from penstock.cluster import keys
from penstock.cluster.coordinator import Delete, Put, Transaction
from penstock.cluster.documents import MEMBERSHIP
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import Heartbeat
from penstock.errors import PenstockError, PublishUnknown, Refused
from penstock.limits import FULL_DISK_NS, REPLICA_TIMEOUT_NS, SECOND
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import PATH, JoinedNode
from sim.disk import Fault

ORDERS = PartitionName("orders", 0)


def test_a_leader_with_a_corrupt_log_gives_way_until_it_is_repaired(cluster: JoinedCluster) -> None:
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", *(b"%d" % n for n in range(10)))
    corrupt = cluster.led_by("orders")
    damage = corrupt.broker.topics["orders"].replicas[0].log.damage
    damage.add(3, 5, "the checksum does not match")
    cluster.until(lambda: cluster.leader("orders") not in (None, corrupt))
    messages = cluster.led_by("orders").consume("orders", "billing").take()
    assert sorted(bodies(messages)) == [b"%d" % n for n in range(10)]
    cluster.run(30)
    assert cluster.leader("orders") not in (None, corrupt)  # though it is preferred
    damage.forget_from(0)
    cluster.until(lambda: cluster.leader("orders") is corrupt, 60)


FIRST_SEGMENT = "0/00000000000000000000.log"  # behind its head is the only batch


@pytest.mark.parametrize("file", ["topic.json", "0/replica.json", "0/producers", FIRST_SEGMENT])
def test_an_unreadable_replica_is_dropped_and_copied_again(
    cluster: JoinedCluster, file: str
) -> None:
    cluster.make("orders")
    cluster.publish("orders", *(b"%d" % n for n in range(10)))
    cluster.until(lambda: cluster.is_whole("orders"))
    cluster.run(2)
    number = next(node.number for node in cluster.nodes if node is not cluster.leader("orders"))
    before = cluster.record("orders").member_on(number)
    cluster.kill(number)
    disk = cluster.nodes[number].disk
    disk.flip(f"{PATH}/topics/orders/{file}", 200 if file == FIRST_SEGMENT else 20, 3)
    node = cluster.start(number)
    cluster.until(lambda: cluster.record("orders").member_on(number) not in (None, before), 60)
    assert node.replicated("orders", 0) is not None
    assert node.broker.health == "OK"


def test_an_unreadable_log_stops_its_replica_and_not_the_node(cluster: JoinedCluster) -> None:
    cluster.make("orders")
    cluster.publish("orders", *(b"%d" % n for n in range(10)))
    cluster.until(lambda: cluster.is_whole("orders"))
    leader = cluster.led_by("orders")
    _, wanted, last = cluster.record("orders").wanted
    node = cluster.nodes[wanted]
    node.disk.inject(Fault("read", errno.EIO, "orders/0/0", times=0))
    leader.broker.topics["orders"].replicas[0].log.damage.add(3, 5, "the checksum does not match")
    cluster.until(lambda: cluster.leader("orders") is cluster.nodes[last])
    assert "orders: the log cannot be read" in node.broker.health
    cluster.publish("orders", b"one")


def test_a_leader_stays_while_its_followers_replica_waits_for_the_disk(
    cluster: JoinedCluster,
) -> None:
    """It has greeted once, while the replica wrote down that it is copied."""
    cluster.make("orders")
    cluster.until(lambda: cluster.is_whole("orders"))
    number = next(node.number for node in cluster.nodes if node is not cluster.leader("orders"))
    cluster.kill(number)
    for _ in range(10):
        cluster.publish("orders", b"one")
        cluster.run(1)
    epoch = cluster.record("orders").epoch
    assert cluster.record("orders").member_on(number) is None
    cluster.start(number)
    cluster.until(lambda: cluster.is_whole("orders"))
    cluster.run(5)
    assert cluster.record("orders").epoch == epoch


def test_a_leader_stays_that_greets_a_node_in_the_midst_of_its_start(
    cluster: JoinedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a thousand replicas that takes longer than the links."""
    cluster.make("orders")
    cluster.until(lambda: cluster.is_whole("orders"))
    number = next(node.number for node in cluster.nodes if node is not cluster.leader("orders"))
    epoch = cluster.record("orders").epoch
    cluster.kill(number)
    node = cluster.start(number)
    monkeypatch.setattr(node.cluster_node.reconciler, "look", lambda now_ns: None)
    cluster.run(1)
    monkeypatch.undo()
    cluster.run(5)
    assert cluster.record("orders").epoch == epoch
    assert cluster.record("orders").member_on(number) is not None


def test_a_leader_that_alone_does_not_reach_the_coordinator_is_replaced_and_comes_back(
    cluster: JoinedCluster,
) -> None:
    """No lookup finds it. All others have followed the coordinator meanwhile."""
    cluster.make("orders")
    cluster.until(lambda: cluster.is_whole("orders"))
    leader = cluster.led_by("orders")
    cluster.run(20)
    cluster.away.add(leader.number)
    cluster.run(10)
    assert cluster.led_by("orders") is leader  # it may be back in a moment
    cluster.until(lambda: cluster.leader("orders") not in (None, leader))
    cluster.publish("orders", b"one")
    epoch = cluster.record("orders").epoch
    cluster.run(40)
    assert cluster.record("orders").epoch == epoch  # not handed back to a node without a key
    cluster.away.clear()
    cluster.until(lambda: cluster.leader("orders") is leader, 120)


def refusal(cluster: JoinedCluster, node: JoinedNode) -> str:
    try:
        outcome = node.put("orders", b"refused")
    except Refused as error:
        return str(error)
    assert cluster.until(lambda: outcome.answers) <= 1.2
    return str(outcome.answers[0])


@pytest.mark.parametrize("leads", [True, False])
def test_a_publish_is_refused_at_once_where_too_few_replicas_live(
    cluster: JoinedCluster, leads: bool
) -> None:
    cluster.make("orders")
    cluster.publish("orders", b"one")
    cluster.until(lambda: cluster.is_whole("orders"))
    cluster.run(10)
    last = next(one for one in cluster.nodes if leads is (one is cluster.leader("orders")))
    others = [one.number for one in cluster.nodes if one is not last]
    for number in others:
        cluster.kill(number)
    waits, gathers = last.put("orders", b"two"), last.put("orders", b"three")
    cluster.until(lambda: waits.answers and gathers.answers, 20)
    names = ", ".join(f"node {number}" for number in others)
    for _ in range(30):
        assert f"partition 0 needs 2 of its replicas: {names} can" in refusal(cluster, last)
        cluster.run(1)
    cluster.start(others[0])
    cluster.until(lambda: last.broker.topics["orders"].refusal == "", 5)
    outcome = last.put("orders", b"five")
    cluster.until(lambda: outcome.stored)


def test_a_starting_node_reads_the_metadata_before_it_reports_a_missing_topic(
    cluster: JoinedCluster,
) -> None:
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    cluster.kill(0)
    node = cluster.start(0)
    answers: list[PenstockError | None] = []
    metadata = node.broker.replica_host.metadata
    assert not node.view.is_listed
    for topic in ("orders", "bills"):
        metadata.make_channel(topic, "billing", answers.append)
    cluster.until(lambda: len(answers) == 2)
    assert sorted(map(str, answers)) == ["None", "no such topic: bills"]


def test_a_machine_that_was_set_back_is_refused(cluster: JoinedCluster) -> None:
    """It is another generation than the one that acknowledged: nothing that it has counts."""
    cluster.make("orders")
    cluster.publish("orders", b"one")
    snapshot = cluster.snapshot(1)
    cluster.kill(1)
    node = cluster.start(1)
    cluster.until(lambda: node.cluster_node.participant.registration.is_registered)
    cluster.until(lambda: cluster.is_whole("orders"), seconds=60)
    cluster.publish("orders", b"two")
    cluster.kill(1)
    cluster.roll_back(1, snapshot)
    cluster.until(lambda: cluster.is_refused(cluster.nodes[1]))
    cluster.run(10)
    cluster.publish("orders", b"three")
    assert cluster.led_by("orders").number != 1
    assert 1 not in {member.node for member in cluster.record("orders").members}
    cluster.kill(1)
    node = cluster.wipe(1)
    cluster.until(lambda: cluster.is_whole("orders"), seconds=60)
    assert hosted_on(node).replica.log.written_end == 3


def with_a_follower_killed(cluster: JoinedCluster) -> tuple[dict[str, bytes], JoinedNode, int]:
    """A topic with one message: its document, who was killed, and the replica that it had."""
    cluster.make("orders")
    cluster.publish("orders", b"one")
    key = keys.topic("orders")
    other = next(node for node in cluster.nodes if node is not cluster.led_by("orders"))
    member = cluster.record("orders").member_on(other.number)
    assert member is not None
    cluster.kill(other.number)
    return {key: cluster.store.entries[key].value}, other, member.replica


def test_a_record_that_was_put_back_makes_no_empty_disk_a_member(cluster: JoinedCluster) -> None:
    """To the coordinator it is a record that has never changed."""
    empty = cluster.store.backup()
    topic, other, replica = with_a_follower_killed(cluster)
    cluster.restore_metadata(empty, topic)
    wiped = cluster.wipe(other.number)
    cluster.until(lambda: ORDERS in wiped.cluster_node.reconciler.targets)
    replicated = hosted_on(wiped)
    assert replicated.own.replica != replica
    cluster.until(lambda: replicated.replica.log.written_end == 1, 90)


def test_a_record_that_is_put_back_while_an_empty_disk_is_up_makes_it_no_member(
    cluster: JoinedCluster,
) -> None:
    """To that node the record is younger than its start; the floor is that of an earlier topic."""
    cluster.make("orders")
    cluster.delete("orders")
    cluster.run(5)
    empty = cluster.store.backup()
    topic, other, replica = with_a_follower_killed(cluster)
    cluster.store.restore(empty)
    wiped = cluster.wipe(other.number)
    cluster.until(lambda: wiped.cluster_node.participant.registration.entered_revision)
    cluster.restore_metadata(cluster.store.backup(), topic)
    cluster.until(lambda: wiped.replicated("orders", 0) is not None)
    assert hosted_on(wiped).own.replica != replica
    cluster.until(lambda: hosted_on(wiped).replica.log.written_end == 1, 90)


def test_a_node_that_sees_a_new_topic_late_has_the_replicas_that_the_records_list(
    cluster: JoinedCluster,
) -> None:
    """Though the topic has grown meanwhile, as one does that takes more than a transaction; and the
    node's entry has changed since it started, as that of each does."""
    entry = cluster.nodes[2].view.memberships[2]
    raised = MEMBERSHIP.encode(entry.document._replace(id_floor=1 << 40))
    cluster.do(Transaction((), (Put(keys.member(2), raised),)))
    cluster.run(1)
    cluster.away.add(2)
    cluster.make("orders")
    cluster.grow("orders", 2)
    cluster.grow("orders", 3)
    records = [cluster.record("orders", number) for number in range(3)]
    assert all(record.leader is not None for record in records)
    cluster.run(1)
    cluster.away.clear()
    cluster.until(lambda: cluster.nodes[2].replicated("orders", 2) is not None)
    cluster.publish("orders", b"one")
    cluster.run(5)
    assert [cluster.record("orders", number) for number in range(3)] == records
    assert hosted_on(cluster.nodes[2]).replica.log.written_end == 1


def test_a_replica_moves_when_the_metadata_wants_it_elsewhere(cluster: JoinedCluster) -> None:
    cluster.make("orders", replicas=2)
    cluster.publish("orders", b"one")
    record = cluster.record("orders")
    (left_out,) = {0, 1, 2} - set(record.wanted)
    gone = record.wanted[1]
    cluster.want("orders", 0, (record.wanted[0], left_out))
    cluster.until(lambda: cluster.is_whole("orders"), 60)
    cluster.until(lambda: ORDERS not in cluster.nodes[gone].cluster_node.reconciler.targets)
    assert cluster.nodes[gone].disk.listdir("/data/aside")
    assert hosted_on(cluster.nodes[left_out]).replica.log.written_end == 1
    cluster.delete("orders")
    cluster.run(5)
    replication = cluster.nodes[gone].broker.context.replica_host.replication
    assert replication.epoch_ledger.ledger.replicas == {}


def test_ticks_and_heartbeats_ask_an_idle_node_for_no_turn(cluster: JoinedCluster) -> None:
    cluster.make("orders")
    cluster.until(lambda: cluster.is_whole("orders"))
    cluster.run(10)
    node, now_ns = cluster.nodes[0].cluster_node, cluster.clock.mono_ns()
    node.receive_message(1, Heartbeat(now_ns, now_ns))
    assert (node.is_due, node.tick(now_ns)) == (False, False)
    cluster.make("payments")
    cluster.nodes[0].coordinator.run(now_ns)
    assert node.tick(now_ns)


def test_a_replica_that_is_stopped_is_copied_again_as_another_one(cluster: JoinedCluster) -> None:
    cluster.make("orders", durability="disk")
    cluster.publish("orders", b"one")
    leader = cluster.led_by("orders")
    node = next(node for node in cluster.nodes if node is not leader)
    before = hosted_on(node).own.replica
    node.disk.inject(Fault("sync", path_part=".log"))
    cluster.publish("orders", b"two")
    cluster.until(lambda: not cluster.record("orders").has(node.number, before))
    cluster.until(lambda: cluster.is_whole("orders"), 90)
    replicated = hosted_on(node)
    assert replicated.own.replica != before
    assert cluster.record("orders").has(node.number, replicated.own.replica)
    assert replicated.replica.log.written_end == 2
    assert len(node.disk.listdir("/data/aside")) == 1
    assert node.broker.health == "OK"


def hosted_on(node: JoinedNode) -> ReplicatedPartition:
    replicated = node.replicated("orders", 0)
    assert replicated is not None
    return replicated


def test_a_set_at_its_minimum_that_loses_a_member_is_helped_by_a_learner(
    cluster: JoinedCluster,
) -> None:
    """Who leads has a row that nothing can commit, and serves no more until a learner has all. Its
    disk is full for a moment, too."""
    cluster.make("orders", durability="disk")
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", b"one", b"two")
    leader = cluster.led_by("orders")
    consumer = leader.consume("orders", "billing", rdy=1)
    consumer.finish(*consumer.take())
    consumer.leave()
    lost, late = (node for node in cluster.nodes if node is not leader)
    cluster.kill(late.number)
    cluster.until(lambda: cluster.record("orders").member_on(late.number) is None)
    lost.disk.inject(Fault("sync", path_part=".log"))
    outcome = leader.put("orders", b"three")
    cluster.run(30)
    assert not outcome.stored
    assert cluster.leader("orders") is None or not cluster.led_by("orders").leader(ORDERS)
    leader.disk.inject(Fault("write", errno.ENOSPC, "channels", times=2))
    cluster.start(late.number)
    cluster.until(lambda: cluster.leader("orders"), 120)
    cluster.until(lambda: cluster.is_whole("orders"), 300)
    again = cluster.led_by("orders").consume("orders", "billing")
    cluster.run(1)
    found = bodies(again.take())
    assert b"one" not in found
    assert b"two" in found
    assert leader.broker.health == "OK"


def test_the_only_replica_is_kept_though_it_is_stopped(cluster: JoinedCluster) -> None:
    """What it has is nowhere else: an operator has to look at it."""
    cluster.make("orders", replicas=1, durability="disk")
    cluster.publish("orders", b"one")
    node = cluster.led_by("orders")
    before = hosted_on(node).own.replica
    node.disk.inject(Fault("sync", path_part=".log"))
    outcome = node.put("orders", b"two")
    cluster.run(30)
    assert not outcome.stored
    assert (hosted_on(node).own.replica, hosted_on(node).own.state) == (before, "stopped")


# --- A node whose disk is full leads nothing, and hands on what its clients publish ---


def full(node: JoinedNode, is_full: bool = True) -> None:
    """Less is free than is to stay free, which is nothing here."""
    node.disk.free_bytes = lambda path: -1 if is_full else 1 << 40  # type: ignore[method-assign]


def test_leaderships_go_to_a_node_that_has_room_and_come_back(cluster: JoinedCluster) -> None:
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", b"before")
    node = cluster.led_by("orders")
    full(node)
    cluster.until(lambda: cluster.leader("orders") not in (None, node))
    outcome = node.put("orders", b"by the full node")
    cluster.until(lambda: outcome.answers)
    full(node, False)
    cluster.run(2)
    assert cluster.leader("orders") is not node  # not at once: it may be full again
    cluster.until(lambda: cluster.leader("orders") is node, FULL_DISK_NS / SECOND + 60)


def test_publishes_do_not_wait_for_a_full_node_that_cannot_promise(cluster: JoinedCluster) -> None:
    """There is no room for a record of its ledger either, so it follows nobody."""
    cluster.make("orders")
    cluster.publish("orders", b"before")
    cluster.until(lambda: cluster.is_whole("orders"))
    node = cluster.led_by("orders")
    node.disk.inject(Fault("write", errno.ENOSPC, "ledger", times=0))
    full(node)
    cluster.until(lambda: cluster.leader("orders") not in (None, node))
    outcome = cluster.led_by("orders").put("orders", b"one")
    assert cluster.until(lambda: outcome.stored) < REPLICA_TIMEOUT_NS / SECOND / 2


def test_where_all_are_full_the_leader_stays_and_refuses(cluster: JoinedCluster) -> None:
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    node = cluster.led_by("orders")
    for one in cluster.nodes:
        full(one)
    cluster.run(20)
    assert cluster.leader("orders") is node
    assert "disk almost full" in node.broker.topics["orders"].refusal


def test_a_leadership_that_fails_at_its_first_write_is_given_up_in_the_record(
    cluster: JoinedCluster,
) -> None:
    """It begins and ends in one turn. The record went on naming it, so nobody else was elected."""
    cluster.make("orders")
    fault = Fault("write", errno.ENOSPC, ".log", written=0.5, times=0)
    for one in cluster.up():
        one.disk.inject(fault)
    for number in range(100):
        for one in cluster.up():
            one.put("orders", b"%d" % number)
        cluster.step()
    for one in cluster.up():
        one.disk.faults.remove(fault)
    cluster.until(lambda: cluster.leader("orders"))


def test_after_a_failed_write_another_node_leads(cluster: JoinedCluster) -> None:
    """Though the one that failed is the preferred leader."""
    cluster.make("orders")
    node = cluster.led_by("orders")
    node.disk.inject(Fault("write", errno.ENOSPC, ".log", times=0))
    outcome = node.put("orders", b"one")
    cluster.until(lambda: outcome.answers and cluster.leader("orders"))
    assert isinstance(outcome.answers[0], PublishUnknown)
    assert cluster.leader("orders") is not node


def test_no_commit_waits_for_a_follower_that_can_write_nothing(cluster: JoinedCluster) -> None:
    cluster.make("orders")
    cluster.publish("orders", b"before")
    follower = next(node for node in cluster.nodes if node is not cluster.led_by("orders"))
    follower.disk.inject(Fault("write", errno.ENOSPC, ".log", times=0))
    outcome = cluster.led_by("orders").put("orders", b"then")
    assert cluster.until(lambda: outcome.answers) < REPLICA_TIMEOUT_NS / SECOND / 2
    assert outcome.answers == [None]
    assert cluster.record("orders").member_on(follower.number) is None


def test_no_commit_waits_for_a_node_that_dies_just_after_the_start(cluster: JoinedCluster) -> None:
    """Who is elected in its place removes its key, whose absence says nothing yet."""
    cluster.make("orders", 3)
    cluster.until(lambda: all(cluster.is_whole("orders", number) for number in range(3)))
    dead = cluster.led_by("orders", 0)
    other = cluster.led_by("orders", 1)
    assert dead is not other
    cluster.do(Transaction((), (Delete(keys.node(dead.number)),)))
    cluster.until(lambda: dead.number not in other.view.nodes, 2)
    cluster.kill(dead.number)
    cluster.until(lambda: cluster.record("orders", 1).member_on(dead.number) is None, 2)


def test_a_stopping_node_is_dropped_during_another_change(cluster: JoinedCluster) -> None:
    """The change is refused, and the word of the node that stops came in the midst of it."""
    cluster.make("orders")
    cluster.until(lambda: cluster.is_whole("orders"))
    leader = cluster.led_by("orders")
    one, other = (node.number for node in cluster.nodes if node is not leader)
    proposals = leader.cluster_node.participant.proposals
    machine = proposals.machines[ORDERS]
    machine.drop((one,))
    cluster.want("orders", 0, machine.record.wanted)  # the same, in a new revision
    proposals.leaving(other)
    cluster.until(lambda: cluster.record("orders").member_on(other) is None, 2)
    assert cluster.record("orders").member_on(one) is not None


# --- A topic that has no replica on a node: publishes are taken there and handed on ---


def elsewhere(cluster: JoinedCluster, topic: str) -> JoinedNode:
    return next(node for node in cluster.nodes if topic not in node.broker.topics)


def found(cluster: JoinedCluster, node: JoinedNode, name: str) -> Topic:
    received: list[Topic | PenstockError] = []
    topic_maker(node).topic(name, received.append)
    cluster.until(lambda: received)
    assert isinstance(received[0], Topic)
    return received[0]


def test_a_topic_is_deleted_at_nodes_without_replicas_too(cluster: JoinedCluster) -> None:
    cluster.make("solo", replicas=1)
    node = elsewhere(cluster, "solo")
    found(cluster, node, "solo")
    cluster.delete("solo")
    cluster.until(lambda: "solo" not in node.broker.topics)


def test_a_publish_sent_before_a_deletion_has_an_unknown_outcome(cluster: JoinedCluster) -> None:
    cluster.make("solo", replicas=1)
    node = elsewhere(cluster, "solo")
    topic = found(cluster, node, "solo")
    sent, gathered = Outcome(), Outcome()
    topic.publish([b"one"], 0, sent)
    topic.outboxes[0].write(0)
    topic.publish([b"two"], 0, gathered)
    topic.outboxes[0].close("topic solo was deleted")
    assert isinstance(sent.answers[0], PublishUnknown)
    assert isinstance(gathered.answers[0], Refused)
    cluster.run(1.0)
    assert (len(sent.answers), len(gathered.answers)) == (1, 1)


# --- what /stats says of the replicas of a cluster's topic ---


def test_role_leader_epoch_in_sync_set_and_lag(cluster: JoinedCluster) -> None:
    cluster.make("orders")
    cluster.make_channel("orders", "billing")
    cluster.publish("orders", b"one", b"two")
    cluster.run(2)
    leader = cluster.led_by("orders")
    other = next(node for node in cluster.nodes if node is not leader)
    (row,) = replica_rows(leader.broker.topics["orders"])
    numbers = sorted(node.number for node in cluster.nodes if node is not leader)
    assert row["followers"] == [{"node": number, "lag": 0} for number in numbers]
    assert (row["role"], row["lag"]) == ("leader", 0)
    (its,) = replica_rows(other.broker.topics["orders"])
    assert (its["role"], "lag" in its) == ("follower", False)
    assert its["channels"] == [{"channel_name": "billing", "depth": 2}]
    for one in (row, its):
        assert (one["leader"], one["end_offset"]) == (leader.number, 2)
        assert sorted(one["in_sync"]) == [node.number for node in cluster.nodes]
        assert one["epoch"] == cluster.record("orders").epoch
    topic = leader.broker.topics["orders"]
    finish_ahead(topic.find_channel("billing"), 0, 1)
    cluster.run(2)
    (its,) = replica_rows(other.broker.topics["orders"])
    assert its["channels"] == [{"channel_name": "billing", "depth": 1}]
