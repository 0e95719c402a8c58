"""Nodes that were by themselves bring their topics into one cluster."""

from __future__ import annotations

import pytest

from penstock.cluster import keys
from penstock.cluster.creation import deletion
from penstock.cluster.documents import EPOCH_FLOOR, Channel, EpochFloor, Topic
from penstock.cluster.joining import Joining, OwnChannel, OwnPartition, OwnTopic, joining
from penstock.cluster.keys import ChannelName, PartitionName
from penstock.cluster.starts import CHANNEL_NUMBERS, ChannelNumbers
from penstock.cluster.view import Held
from penstock.errors import Refused
from penstock.limits import PARTITIONS_MAX, TRANSACTION_KEYS_MAX
from penstock.replica.leading import Outcome
from penstock.replica.record import Member, Record

from .test_creation import Desk as CreationDesk

NOTHING_SET = OwnChannel(False, ())


def own(
    identity: int, *replicas: int, channels: tuple[str, ...] = (), epoch: int = 3, rate: int = 0
) -> OwnTopic:
    settings = (("rate", rate),) if rate else ()
    topic = Topic(identity, 1, len(replicas), False, settings, False, ())
    partitions = tuple(OwnPartition(replica, epoch) for replica in replicas)
    return OwnTopic("orders", topic, partitions, dict.fromkeys(channels, NOTHING_SET))


class Desk(CreationDesk):
    def plan(self, node: int, topic: OwnTopic) -> Joining:
        return joining(self.view, node, topic, self.numbers())

    def numbers(self) -> Held[ChannelNumbers] | None:
        entry = self.store.entries.get(keys.numbers("orders"))
        if entry is None:
            return None
        document = CHANNEL_NUMBERS.decode(entry.key, entry.value)
        return Held(document, entry.revision, entry.created)

    def join(self, node: int, topic: OwnTopic) -> Joining:
        """Until there is nothing left to do. Returns the first plan."""
        first = plan = self.plan(node, topic)
        for _ in range(20):
            if plan.transaction is None:
                return first
            plan.transaction.check()
            assert self.do(plan.transaction).outcome is Outcome.DONE
            plan = self.plan(node, topic)
        raise AssertionError("it joins without end")

    def record(self, number: int) -> Record:
        return self.view.partitions[PartitionName("orders", number)].document

    def channel(self, name: str) -> Channel:
        return self.view.channels[ChannelName("orders", name)].document


def test_the_first_node_brings_the_topic_as_it_is() -> None:
    desk = Desk()
    plan = desk.join(0, own(0xA, 100, 101, channels=("b", "a")))
    assert (plan.identity, plan.partitions, plan.begun) == (0xA, (0, 1), ())
    assert plan.channels == {"a": 1, "b": 2}
    assert desk.view.topics["orders"].document.hash_partitions == 2
    assert desk.record(1) == Record(0xA, 4, None, (Member(0, 101, 5),), 1, (0,))


def test_the_second_nodes_partitions_come_behind_and_channels_are_united() -> None:
    desk = Desk()
    desk.join(0, own(0xA, 100, 101, channels=("a", "b"), rate=5))
    plan = desk.join(1, own(0xB, 200, 201, channels=("b", "c"), epoch=9, rate=7))
    assert (plan.identity, plan.partitions) == (0xA, (2, 3))
    assert (plan.channels, plan.begun) == ({"a": 1, "b": 2, "c": 3}, ("a",))
    assert plan.overruled == ("rate",)
    topic = desk.view.topics["orders"].document
    assert (topic.identity, topic.hash_partitions, topic.settings) == (0xA, 2, (("rate", 5),))
    assert desk.record(0).epoch == 4
    assert desk.record(3) == Record(0xA, 10, None, (Member(1, 201, 6),), 1, (1,))
    assert desk.channel("c") == Channel(0xA, 3, False, (), False)


def test_of_two_that_join_at_once_one_plans_again() -> None:
    desk = Desk()
    one, two = own(0xA, 100, channels=("a",)), own(0xB, 200, channels=("a",))
    plans = [desk.plan(0, one), desk.plan(1, two)]
    assert [desk.do(plan.transaction).outcome for plan in plans] == [Outcome.DONE, Outcome.REFUSED]
    assert desk.join(1, two).partitions == (1,)
    assert {member.replica for n in (0, 1) for member in desk.record(n).members} == {100, 200}


def test_an_epoch_is_above_the_floor_of_the_name_as_well() -> None:
    desk = Desk()
    desk.put(keys.epochs("orders"), EPOCH_FLOOR.encode(EpochFloor(40)))
    desk.look()
    desk.join(0, own(0xA, 100))
    assert desk.record(0).epoch == 41


def test_a_topic_that_is_being_deleted_is_waited_for() -> None:
    desk = Desk()
    desk.join(0, own(0xA, 100, channels=("a",)))
    desk.do(deletion(desk.view, "orders"))
    with pytest.raises(Refused, match="topic orders is being deleted"):
        desk.plan(1, own(0xB, 200))


def test_after_its_deletion_the_name_is_free_and_channels_begin_anew() -> None:
    desk = Desk()
    desk.join(0, own(0xA, 100, channels=("a", "b")))
    desk.delete("orders")
    plan = desk.join(1, own(0xB, 200, channels=("b",)))
    assert (plan.identity, plan.partitions, plan.channels, plan.begun) == (0xB, (0,), {"b": 1}, ())
    assert desk.channel("b") == Channel(0xB, 1, False, (), False)
    assert desk.record(0).epoch == 5


def test_more_than_fits_into_one_transaction_takes_several_channels_first() -> None:
    desk = Desk()
    names = tuple(f"c{number:03}" for number in range(TRANSACTION_KEYS_MAX))
    topic = own(0xA, *range(100, 200), channels=names)
    first = desk.plan(0, topic).transaction
    assert first is not None
    assert not any(one.key.startswith(keys.PARTITIONS) for one in first.operations)
    plan = desk.join(0, topic)
    assert plan.partitions == tuple(range(100))
    assert desk.plan(0, topic).partitions == plan.partitions
    assert [desk.channel(name).number for name in names] == [plan.channels[name] for name in names]
    assert [desk.record(n).members[0].replica for n in range(100)] == list(range(100, 200))


def test_more_partitions_than_a_topic_may_have_are_refused() -> None:
    desk = Desk()
    desk.join(0, own(0xA, *range(100, 100 + PARTITIONS_MAX)))
    with pytest.raises(Refused, match=f"would have {PARTITIONS_MAX + 1} partitions"):
        desk.plan(1, own(0xB, 900))
