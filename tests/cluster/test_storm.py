"""Whatever happens to three brokers of a cluster: what is given up is a dead letter, and nothing
else is. What `sim.brokers` promises of messages holds for those of a channel with dead letters.

A history is a seed. Publishers and consumers go on while nodes are killed, lose their power, are
cut off and come back. At the end nothing fails any more, and everything has to be there.
"""

import random
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from broker.world import Consumer, Outcome
from cases import each
from penstock import kernel
from penstock.broker.channels.dead_letter import origin
from penstock.errors import Refused, StorageError
from penstock.log.messages import MessageReader
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import JoinedNode

EVENTS = 120
CALM_S = 120.0
SETTLED_S = 400.0
TOPIC, CHANNEL = "orders", "billing"
DEAD = f"{TOPIC}.{CHANNEL}.dead"
ATTEMPTS_MAX = 2
HISTORIES = 6


def is_hopeless(body: bytes) -> bool:
    """Every third message is put back until it is given up."""
    return int(body) % 3 == 0


class Sent(NamedTuple):
    body: bytes
    outcome: Outcome


class Storm:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = JoinedCluster(kernel)
        self.cluster.dice = self.dice
        self.sent: list[Sent] = []
        self.finished: set[bytes] = set()
        self.consumers: dict[int, Consumer] = {}  # by the incarnation of the process
        self.troubles = 0
        self.cluster.make(TOPIC, partitions=2, durability="disk")
        self.cluster.make_channel(TOPIC, CHANNEL, max_attempts=ATTEMPTS_MAX)

    # --- clients ---

    def publish(self) -> None:
        node = self.dice.choice(self.cluster.up())
        body = b"%d" % len(self.sent)
        outcome = Outcome()
        with suppress(Refused, StorageError, KeyError):  # no partition is led, or no topic there
            node.broker.topics[TOPIC].publish([body], 0, outcome)
        node.turn()
        self.sent.append(Sent(body, outcome))

    def consume(self, finished_share: float = 0.7) -> None:
        for node in self.cluster.up():
            consumer = self._consumer(node)
            for message in consumer.take() if consumer is not None else ():
                assert consumer is not None
                assert int(message.body) < len(self.sent), "never published"
                if is_hopeless(message.body):
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
        reader = MessageReader(leader.log)
        for offset in range(leader.tail.committed_end):
            stored = reader.read(offset)
            known = origin(stored)
            assert known is not None
            assert (known.topic, known.channel) == (TOPIC, CHANNEL)
            found[stored.body] += 1
        return found

    def answered(self) -> set[bytes]:
        return {one.body for one in self.sent if one.outcome.answers == [None]}

    def check(self) -> None:
        letters, answered = self.letters(), self.answered()
        assert answered <= self.finished | set(letters)
        assert {body for body in answered if is_hopeless(body)} <= set(letters)
        assert max(letters.values(), default=0) <= 1 + self.troubles

    def play(self) -> None:
        for _ in range(EVENTS):
            self.step()
        self.calm()
        self.check()


@each("seed", range(HISTORIES))
def test_exhausted_messages_become_dead_letters(seed: int) -> None:
    storm = Storm(seed)
    try:
        storm.play()
        assert len(storm.answered()) > EVENTS / 10  # else nothing has happened
        assert sum(storm.letters().values()) > 3
    finally:
        storm.cluster.close()
