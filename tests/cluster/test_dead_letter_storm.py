"""Whatever happens to three brokers of a cluster: a message that a channel gives up becomes a dead
letter at least once, and once more at most for each trouble that may have cost an answer.

A history is a seed, as in `test_storm.py`. Some messages are never finished by anyone.
"""

from __future__ import annotations

from collections import Counter

import pytest

from cases import each
from penstock.broker.letters import origin
from penstock.broker.stored import Reader
from penstock.errors import Refused

from .test_storm import CALM_S, CHANNEL, EVENTS, TOPIC, Storm

DEAD = f"{TOPIC}.{CHANNEL}.dead"
ATTEMPTS_MAX = 2
GIVE_UP_S = 400.0
HISTORIES = 6


class DeadLetterStorm(Storm):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.troubles = 0
        answers: list[object] = []
        metadata = self.cluster.nodes[0].joined.hosting.metadata
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


@each("seed", range(HISTORIES))
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
