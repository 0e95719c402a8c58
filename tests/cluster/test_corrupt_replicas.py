"""Bits that rot on the disks of three brokers: what was acknowledged is delivered all the same, and
in the end every disk has it again.

*I18*: a channel gets every message that was acknowledged. *I15*: what is repaired is byte for byte
what the others have. A disk rots only where another member's is intact. That an operator gives up
what is corrupt on one disk changes nothing.
"""

import random

import pytest

from broker.world import Consumer
from penstock import kernel
from penstock.cluster import keys
from penstock.cluster.documents import RECORD, TOPIC
from penstock.cluster.keys import PartitionName
from penstock.errors import LogDamaged
from penstock.log.damage import LostRange, read_lost, write_lost
from penstock.log.partition import PartitionLog
from penstock.replication.record import LeaderId, elected
from sim.brokers.cluster import STEP_NS, JoinedCluster
from sim.brokers.node import JoinedNode

ORDERS = PartitionName("orders", 0)
MESSAGES = 12
ENDS = 2  # the last ones: a replica whose end is corrupt does not know what it had, and stops
CALM_S = 90


class Broken(AssertionError):
    """A promise was not kept."""


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = JoinedCluster(kernel)
        self.cluster.make("orders", durability="disk")
        self.cluster.make_channel("orders", "billing")
        self.received: set[bytes] = set()
        self.corrupt = 0
        self.given_up = 0

    def play(self) -> None:
        bodies = [b"message %d" % number * 20 for number in range(MESSAGES)]
        for body in bodies:
            self.cluster.publish("orders", body)
        self.rest()
        for number in self.dice.sample(range(MESSAGES - ENDS), 4):
            node = self.dice.choice(self.cluster.nodes)
            self.rot(node, bodies[number])
            if self.dice.random() < 0.5:
                self.give_up(node, number)
        for _ in range(self.dice.randrange(3)):
            self.consume()
            if self.dice.random() < 0.4:
                self.restart(self.dice.choice(self.cluster.up()))
        for _ in range(CALM_S):
            self.consume()
            if self.received == set(bodies) and self.contents() is not None:
                break
        self.check(bodies)
        self.cluster.close()

    def rest(self) -> None:
        """Nothing is in any process's memory any more."""
        self.cluster.run(3)
        for node in list(self.cluster.nodes):
            self.restart(node)
        self.cluster.until(lambda: self.cluster.is_whole("orders"), 60)

    def restart(self, node: JoinedNode) -> None:
        self.cluster.kill(node.number)
        self.cluster.start(node.number)
        self.cluster.until(lambda: self.cluster.leader("orders"), 60)

    def rot(self, node: JoinedNode, body: bytes) -> None:
        for segment in self.log(node).segments:
            place = node.disk.content(segment.path).find(body)
            if place >= 0:
                node.disk.flip(segment.path, place + 1, 2)
                self.corrupt += 1

    def give_up(self, node: JoinedNode, offset: int) -> None:
        """As `penstock log repair` does, on the node by itself."""
        path = self.log(node).path
        lost = [*read_lost(node.disk, path), LostRange(offset, offset + 1, "corrupt", 1)]
        write_lost(node.disk, path, lost)
        self.restart(node)
        self.given_up += 1

    def log(self, node: JoinedNode) -> PartitionLog:
        return node.broker.topics["orders"].replicas[0].log

    def consume(self) -> None:
        leader = self.cluster.leader("orders")
        if leader is not None:
            consumer: Consumer = leader.consume("orders", "billing")
            messages = consumer.take()
            consumer.finish(*messages)
            self.received.update(message.body for message in messages)
            leader.turn()
            consumer.leave()
        self.cluster.run(1)

    def check(self, bodies: list[bytes]) -> None:
        missing = set(bodies) - self.received
        if missing:
            raise Broken(f"I18: {len(missing)} acknowledged messages did not come")
        contents = self.contents()
        if contents is None:
            raise Broken(f"I15: something is corrupt after {CALM_S} s, and another disk has it")
        if len(contents) > 1:
            raise Broken("I15: what was repaired is not what the others have")

    def contents(self) -> set[bytes] | None:
        """Of the logs; None where one cannot be read. Reading finds what is corrupt."""
        found = set()
        for node in self.cluster.nodes:
            log = self.log(node)
            try:
                batches = [bytes(data) for _, data in log.batches(log.start_offset)]
            except LogDamaged:
                return None
            found.add(b"".join(batches))
        return found


HISTORIES = 6


def test_corrupt_messages_are_repaired_and_delivered() -> None:
    worlds = [World(seed) for seed in range(HISTORIES)]
    for world in worlds:
        world.play()
    assert sum(world.corrupt for world in worlds) >= 4 * HISTORIES
    assert sum(world.given_up for world in worlds) > 0  # else nothing was shown


# --- A node elected while its view is behind ---


ELECTIONS = 4
STEPS_SLOW_MAX = 40  # less than a lease
STEPS = 100


class SlowView:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = JoinedCluster(kernel)
        self.cluster.make("orders")
        self.cluster.make_channel("orders", "billing")
        self.proposals = 0

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
        leader_id = LeaderId(node.number, node.incarnation, member.replica)
        cluster._put(keys.partition(*ORDERS), RECORD.encode(elected(record, leader_id)))
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
        self.proposals += 1
        paused = TOPIC.decode(topic.key, topic.value).paused
        if leader.broker.topics["orders"].paused != paused:
            raise Broken(f"I23: node {leader.number} leads, and has not seen the pause: {paused}")


HISTORIES_SLOW_VIEW = 8


def test_a_leader_has_read_all_earlier_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cluster.participant.VIEW_SLICE_DOCUMENTS", 1)
    for seed in range(HISTORIES_SLOW_VIEW):
        world = SlowView(seed)
        world.play()
        assert world.proposals > STEPS  # else nothing was shown
