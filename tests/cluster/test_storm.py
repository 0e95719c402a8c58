"""Whatever happens to three brokers of a cluster: nothing acknowledged is lost, nothing refused is
stored, no message comes that was never published, and what is given up is a dead letter.

A history is a seed. Publishers and consumers go on while nodes are killed, lose their power, are
cut off and come back. At the end nothing fails any more, and everything has to be there.
"""

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
SETTLED_S = 400.0
TOPIC, CHANNEL = "orders", "billing"
DEAD = f"{TOPIC}.{CHANNEL}.dead"
ATTEMPTS_MAX = 2
# Seeds, and whether every third message is put back until it is given up.
HISTORIES = [(seed, False) for seed in range(14)] + [(seed, True) for seed in range(6)]


class Sent(NamedTuple):
    body: bytes
    outcome: Outcome


class Storm:
    def __init__(self, seed: int, gives_up: bool) -> None:
        self.dice = random.Random(seed)
        self.gives_up = gives_up
        self.cluster = JoinedCluster(kernel)
        self.cluster.dice = self.dice
        self.sent: list[Sent] = []
        self.refused: set[bytes] = set()
        self.received: set[bytes] = set()
        self.finished: set[bytes] = set()
        self.consumers: dict[int, Consumer] = {}  # by the incarnation of the process
        self.troubles = 0
        self.cluster.make(TOPIC, partitions=2, durability="disk")
        settings = {"max_attempts": ATTEMPTS_MAX} if gives_up else {}
        self.cluster.make_channel(TOPIC, CHANNEL, **settings)

    def is_hopeless(self, body: bytes) -> bool:
        return self.gives_up and int(body) % 3 == 0

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
            for message in consumer.take() if consumer is not None else ():
                assert consumer is not None
                self._check(message)
                if self.is_hopeless(message.body):
                    consumer.requeue(message)
                elif self.dice.random() < finished_share:
                    consumer.finish(message)
                    self.finished.add(message.body)

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
        self.received.add(message.body)

    # --- trouble ---

    def kill(self) -> None:
        if len(self.cluster.up()) == len(self.cluster.nodes):
            self.troubles += 1
            node = self.dice.choice(self.cluster.up())
            self.cluster.kill(node.number, power=self.dice.random() < 0.5)

    def start(self) -> None:
        for node in self.cluster.nodes:
            if not node.is_up:
                self.cluster.start(node.number)

    def cut_off(self) -> None:
        self.troubles += 1
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
        cluster.until(self.is_settled, SETTLED_S)

    def is_settled(self) -> bool:
        """Each message that was answered is finished or a letter, and no window has any left."""
        self.consume(finished_share=1)
        left = self.answered() - self.finished
        return not left - set(self.letters()) and not any(
            node.broker.topics[TOPIC].channels[CHANNEL].unfinished for node in self.cluster.up()
        )

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

    def answered(self) -> set[bytes]:
        return {one.body for one in self.sent if one.outcome.told == [None]}

    def check(self) -> None:
        letters, answered = self.letters(), self.answered()
        assert answered <= self.finished | set(letters)
        assert {body for body in answered if self.is_hopeless(body)} <= set(letters)
        assert max(letters.values(), default=0) <= self.gives_up * (1 + self.troubles)
        refused = self.refused | {
            one.body for one in self.sent if isinstance((one.outcome.told or [None])[0], Refused)
        }
        assert not refused & (self.received | set(letters))

    def play(self) -> None:
        for _ in range(EVENTS):
            self.step()
        self.calm()
        self.check()


@each(("seed", "gives_up"), HISTORIES)
def test_nothing_acknowledged_is_lost(seed: int, gives_up: bool) -> None:
    storm = Storm(seed, gives_up)
    try:
        storm.play()
        assert len(storm.answered()) > EVENTS / 10  # else nothing has happened
        assert sum(storm.letters().values()) > 3 or not gives_up
    finally:
        storm.cluster.close()


@pytest.mark.parametrize("gives_up", [False, True])
def test_a_message_that_is_missing_is_noticed(gives_up: bool) -> None:
    storm = Storm(1, gives_up)
    try:
        storm.play()
        answered = Outcome()
        answered(None)
        storm.sent.append(Sent(b"3000000", answered))
        with pytest.raises(AssertionError):
            storm.check()
    finally:
        storm.cluster.close()
