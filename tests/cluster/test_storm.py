"""Whatever happens to three brokers of a cluster: nothing acknowledged is lost, nothing refused is
stored, and no message comes that was never published.

A history is a seed. Publishers and consumers go on while nodes are killed, lose their power, are
cut off and come back. At the end nothing fails any more, and everything has to be there.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

import pytest

from broker.world import Consumer, Message, Outcome
from cases import each
from penstock import kernel
from penstock.broker.channels.dead_letter import Reader, origin
from penstock.errors import Refused, StorageError
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import JoinedNode

EVENTS = 120
CALM_S = 120.0
ROUNDS_MAX = 60
TOPIC, CHANNEL = "orders", "billing"
HISTORIES = 14


class Sent(NamedTuple):
    body: bytes
    outcome: Outcome


class Storm:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = JoinedCluster(kernel)
        self.cluster.dice = self.dice
        self.sent: list[Sent] = []
        self.refused: set[bytes] = set()
        self.received: dict[bytes, int] = {}  # how often
        self.finished: set[bytes] = set()
        self.consumers: dict[int, Consumer] = {}  # by the incarnation of the process
        self.failovers = 0
        self.cluster.make(TOPIC, partitions=2, durability="disk")
        self.cluster.make_channel(TOPIC, CHANNEL)

    # --- clients ---

    def publish(self) -> None:
        node = self.dice.choice(self.cluster.up())
        body = b"%d" % len(self.sent)
        outcome = Outcome()
        try:
            node.broker.topics[TOPIC].publish([body], 0, outcome)
        except (Refused, StorageError, KeyError):
            self.refused.add(body)  # no partition is led there, or no topic is there yet
        node.turn()
        self.sent.append(Sent(body, outcome))

    def consume(self, finished_share: float = 0.7) -> None:
        for node in self.cluster.up():
            consumer = self._consumer(node)
            if consumer is None:
                continue
            messages = consumer.take()
            for message in messages:
                self._check(message)
            done = [one for one in messages if self.dice.random() < finished_share]
            consumer.finish(*done)
            self.finished.update(one.body for one in done)

    def _consumer(self, node: JoinedNode) -> Consumer | None:
        topic = node.broker.topics.get(TOPIC)
        if topic is None or CHANNEL not in topic.channels:
            return None
        if node.incarnation not in self.consumers:
            rdy = self.dice.choice((1, 5, 100))
            self.consumers[node.incarnation] = node.consume(TOPIC, CHANNEL, rdy)
        return self.consumers[node.incarnation]

    def _check(self, message: Message) -> None:
        assert int(message.body) < len(self.sent), "never published"
        self.received[message.body] = self.received.get(message.body, 0) + 1

    # --- trouble ---

    def kill(self) -> None:
        if len(self.cluster.up()) == len(self.cluster.nodes):
            node = self.dice.choice(self.cluster.up())
            self.failovers += self.cluster.leader(TOPIC, 0) is node
            self.cluster.kill(node.number, power=self.dice.random() < 0.5)

    def start(self) -> None:
        for node in self.cluster.nodes:
            if not node.is_up:
                self.cluster.start(node.number)

    def cut_off(self) -> None:
        self.cluster.cut_off(self.dice.randrange(len(self.cluster.nodes)))

    def step(self) -> None:
        events = [
            self.publish,
            self.consume,
            self.kill,
            self.start,
            self.cut_off,
            self.cluster.heal,
        ]
        self.dice.choices(events, (50, 20, 3, 6, 2, 5))[0]()
        self.cluster.run(self.dice.choice((0.05, 0.05, 0.2, 0.2, 1, 3)))

    # --- the calm end ---

    def calm(self) -> None:
        cluster = self.cluster
        cluster.heal()
        self.start()
        partitions = range(2)
        cluster.until(lambda: all(cluster.leader(TOPIC, n) for n in partitions), CALM_S)
        cluster.until(lambda: all(cluster.is_whole(TOPIC, n) for n in partitions), CALM_S)
        cluster.run(61)  # what was in flight has timed out
        for consumer in self.consumers.values():
            if consumer.conn.rdy < 100 and any(
                n.incarnation in self.consumers for n in cluster.up()
            ):
                consumer.conn.rdy = 100
        quiet = 0
        for _ in range(ROUNDS_MAX):
            before = len(self.finished)
            self.consume(finished_share=1)
            cluster.run(1)
            quiet = quiet + 1 if len(self.finished) == before else 0
            if quiet == 3:
                return
        raise AssertionError("messages come without an end")

    def check(self) -> None:
        answered = {one.body for one in self.sent if one.outcome.told == [None]}
        refused = self.refused | {
            one.body for one in self.sent if isinstance((one.outcome.told or [None])[0], Refused)
        }
        assert answered - set(self.received) == set()
        assert refused & set(self.received) == set()
        assert answered - self.finished == set()


def play(seed: int) -> Storm:
    storm = Storm(seed)
    try:
        for _ in range(EVENTS):
            storm.step()
        storm.calm()
        storm.check()
    finally:
        storm.cluster.close()
    return storm


@each("seed", range(HISTORIES))
def test_nothing_acknowledged_is_lost(seed: int) -> None:
    storm = play(seed)
    answered = [one for one in storm.sent if one.outcome.told == [None]]
    assert len(answered) > EVENTS / 10  # else nothing has happened


def test_a_message_that_is_missing_is_noticed() -> None:
    storm = Storm(1)
    try:
        answered = Outcome()
        answered(None)
        storm.sent.append(Sent(b"0", answered))
        storm.calm()
        with pytest.raises(AssertionError):
            storm.check()
    finally:
        storm.cluster.close()


def test_the_same_seed_is_the_same_history() -> None:
    first, second = play(3), play(3)
    assert first.received == second.received
    assert [one.outcome.told == [None] for one in first.sent] == [
        one.outcome.told == [None] for one in second.sent
    ]


# --- whatever happens to three brokers of a cluster ---


DEAD = f"{TOPIC}.{CHANNEL}.dead"
ATTEMPTS_MAX = 2
GIVE_UP_S = 400.0
HISTORIES_DEAD_LETTER = 6


class DeadLetterStorm(Storm):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.troubles = 0
        answers: list[object] = []
        metadata = self.cluster.nodes[0].cluster_node.replica_host.metadata
        assert metadata is not None
        changes = {"max_attempts": ATTEMPTS_MAX}
        metadata.change_channel(TOPIC, CHANNEL, changes, answers.append)
        self.cluster.until(lambda: answers)

    def consume(self, finished_share: float = 0.7) -> None:
        for node in self.cluster.up():
            consumer = self._consumer(node)
            for message in consumer.take() if consumer is not None else ():
                assert consumer is not None
                self._check(message)
                if is_hopeless(message.body):
                    consumer.requeue(message)
                elif self.dice.random() < finished_share:
                    consumer.finish(message)
                    self.finished.add(message.body)

    def kill(self) -> None:
        self.troubles += 1
        super().kill()

    def cut_off(self) -> None:
        self.troubles += 1
        super().cut_off()

    def letters(self) -> Counter[bytes]:
        found: Counter[bytes] = Counter()
        if DEAD not in self.cluster.up()[0].view.topics:
            return found
        self.cluster.until(lambda: self.cluster.leader(DEAD), CALM_S)
        leader = self.cluster.led_by(DEAD).broker.topics[DEAD].leader()
        reader = Reader(leader.log)
        for offset in range(leader.tail.committed_end):
            stored = reader.read(offset)
            known = origin(stored)
            assert known is not None
            assert (known.topic, known.channel) == (TOPIC, CHANNEL)
            found[stored.body] += 1
        return found

    def is_settled(self) -> bool:
        """Each message that was answered is finished or a letter, and no window has any left."""
        self.consume(finished_share=1)
        left = self.answered() - self.finished
        return not left - set(self.letters()) and not any(
            node.broker.topics[TOPIC].channels[CHANNEL].unfinished for node in self.cluster.up()
        )

    def answered(self) -> set[bytes]:
        return {one.body for one in self.sent if one.outcome.told == [None]}

    def check(self) -> None:
        letters = self.letters()
        assert {body for body in self.answered() if is_hopeless(body)} <= set(letters)
        assert max(letters.values(), default=0) <= 1 + self.troubles
        refused = self.refused | {
            one.body for one in self.sent if isinstance((one.outcome.told or [None])[0], Refused)
        }
        assert not refused & set(letters)

    def play(self) -> None:
        for _ in range(EVENTS):
            self.step()
        self.cluster.heal()
        self.start()
        for number in range(2):
            self.cluster.until(lambda n=number: self.cluster.leader(TOPIC, n), CALM_S)
        self.cluster.until(self.is_settled, GIVE_UP_S)
        self.check()


def is_hopeless(body: bytes) -> bool:
    return int(body) % 3 == 0


@each("seed", range(HISTORIES_DEAD_LETTER))
def test_what_is_given_up_is_a_dead_letter(seed: int) -> None:
    storm = DeadLetterStorm(seed)
    try:
        storm.play()
        assert sum(storm.letters().values()) > 3  # else nothing has happened
    finally:
        storm.cluster.close()


def test_a_letter_that_is_missing_is_noticed() -> None:
    storm = DeadLetterStorm(1)
    try:
        storm.play()
        storm.sent.append(storm.sent[0]._replace(body=b"3000000"))
        storm.sent[-1].outcome.told[:] = [None]
        with pytest.raises(AssertionError):
            storm.check()
    finally:
        storm.cluster.close()
