"""A node elected while its view is behind: it serves nothing on the ground of older settings.

Its watch is slow, and the changes that it has missed are compacted, so that it lists everything
again, a document at a time. Meanwhile the topic was paused or not, and the record says that the
node leads. *I23*: who is in office has all that was written up to the record.
"""

from __future__ import annotations

import random

import pytest

from penstock import kernel
from penstock.cluster import keys
from penstock.cluster.documents import RECORD, TOPIC
from penstock.cluster.keys import PartitionName
from penstock.replica.record import Seat, elected
from sim.brokers.cluster import STEP_NS, JoinedCluster
from sim.brokers.node import JoinedNode

ORDERS = PartitionName("orders", 0)
ELECTIONS = 4
STEPS_SLOW_MAX = 40  # less than a lease
STEPS = 100


class Broken(AssertionError):
    """A promise was not kept."""


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = JoinedCluster(kernel)
        self.cluster.make("orders")
        self.cluster.make_channel("orders", "billing")
        self.offices = 0

    def play(self) -> None:
        for _ in range(ELECTIONS):
            self.elect(self.dice.choice(self.others()))
        self.cluster.close()

    def others(self) -> list[JoinedNode]:
        leader = self.cluster.led_by("orders")
        return [node for node in self.cluster.up() if node is not leader]

    def elect(self, node: JoinedNode) -> None:
        cluster, store = self.cluster, self.cluster.store
        cluster.slow = {node.number}
        for _ in range(self.dice.randrange(1, STEPS_SLOW_MAX)):
            cluster.step()
        if self.dice.random() < 0.7:
            self.pause_or_not()
        record = cluster.record("orders")
        member = record.member_on(node.number)
        assert member is not None
        seat = Seat(node.number, node.life, member.replica)
        cluster._put(keys.partition(*ORDERS), RECORD.encode(elected(record, seat)))
        if self.dice.random() < 0.7:
            store.compact(store.revision)
        cluster.slow = set()
        for _ in range(STEPS):
            cluster.step()
            self.check()
        assert cluster.leader("orders") is not None, f"no leader after {STEPS * STEP_NS} ns"

    def pause_or_not(self) -> None:
        key = keys.topic("orders")
        topic = TOPIC.decode(key, self.cluster.store.entries[key].value)
        self.cluster._put(key, TOPIC.encode(topic._replace(paused=not topic.paused)))

    def check(self) -> None:
        entries = self.cluster.store.entries
        topic, record = entries[keys.topic("orders")], entries[keys.partition(*ORDERS)]
        leader = self.cluster.leader("orders")
        if leader is None or topic.revision > record.revision:
            return
        self.offices += 1
        paused = TOPIC.decode(topic.key, topic.value).paused
        if leader.broker.topics["orders"].paused != paused:
            raise Broken(f"I23: node {leader.number} leads, and has not seen the pause: {paused}")


HISTORIES = 8


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.participant.VIEW_SLICE_DOCUMENTS", 1)


def test_who_is_in_office_has_seen_what_was_written_before() -> None:
    for seed in range(HISTORIES):
        World(seed).play()


def test_the_histories_have_in_them_what_they_are_about() -> None:
    world = World(0)
    world.play()
    assert world.offices > STEPS
