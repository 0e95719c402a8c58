"""Forwarders and the partitions of a topic, whose answers get lost.

- *I30*: a message of an idempotent producer stands at most once in the topic, and is never refused
  as a gap.
- *I31*: a publish without a stamp that was answered OK stands exactly once; its publisher does not
  repeat it.
- *I36*: what was refused is not stored.

Each partition has the real table's judgement (`replica.producerline`). An attempt is refused, or
stored and answered, or stored and its answer lost, or lost itself. An idempotent producer
sends its message through any forwarder, and after *unknown* or *refused* through another one.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from penstock.cluster.forwarding import ALL, Forward, ForwardGuards, Verdict
from penstock.errors import SequenceGap
from penstock.replica.leading import Outcome
from penstock.replica.producerline import Known, judge
from penstock.replica.producerline import Verdict as Judged

PARTITIONS = 3
PRODUCERS = 2
PUBLISHES = 30
ATTEMPTS_MAX = 2  # until the deadline
INNER_FIRST = 1000  # producer ids of forwarders, one for each publish


class Broken(AssertionError):
    """A promise was not kept."""


class Stored(NamedTuple):
    producer_id: int
    sequence: int
    message: int


class World:
    def __init__(self, seed: int, guards: ForwardGuards = ALL) -> None:
        self.rng = random.Random(seed)
        self.guards = guards
        self.tables: list[dict[int, Known]] = [{} for _ in range(PARTITIONS)]
        self.stored: list[Stored] = []
        self.messages = 0
        self.sequences = [0] * PRODUCERS
        self.seen: Counter[str] = Counter()

    def play(self) -> None:
        for _ in range(PUBLISHES):
            if self.rng.random() < 0.5:
                self.publish()
            else:
                self.publish_stamped(self.rng.randrange(PRODUCERS))

    # --- publishers ---

    def publish(self) -> None:
        """Once: its publisher has no way to say that something is a repeat."""
        self.messages += 1
        message = self.messages
        inner_id = INNER_FIRST + message
        forward = Forward(self.rng.randrange(PARTITIONS), ATTEMPTS_MAX, guards=self.guards)
        verdict = self.carry(forward, inner_id, 0, message)
        count = sum(one.message == message for one in self.stored)
        self.seen[verdict.name] += 1
        if verdict is Verdict.OK and count != 1:
            raise Broken(f"I31: message {message} was answered OK, and stands {count} times")
        if verdict is Verdict.REFUSED and count:
            raise Broken(f"I36: message {message} was refused, and stands {count} times")

    def publish_stamped(self, producer: int) -> None:
        """Until it is answered, through one forwarder after the other."""
        self.messages += 1
        sequence = self.sequences[producer]
        verdict = None
        while verdict is not Verdict.OK:
            preferred = self.rng.randrange(PARTITIONS)
            forward = Forward(preferred, ATTEMPTS_MAX, producer + 1, PARTITIONS, guards=self.guards)
            verdict = self.carry(forward, producer + 1, sequence, self.messages)
            self.seen[f"stamped {verdict.name}"] += 1
        self.sequences[producer] += 1
        count = sum(one[:2] == (producer + 1, sequence) for one in self.stored)
        if count != 1:
            raise Broken(f"I30: {sequence} of producer {producer} stands {count} times")

    # --- between nodes ---

    def carry(self, forward: Forward, producer_id: int, sequence: int, message: int) -> Verdict:
        for now_ns in range(ATTEMPTS_MAX + 1):
            partition = forward.partition
            outcome = self.attempt(partition, Stored(producer_id, sequence, message))
            others = [one for one in range(PARTITIONS) if one != partition]
            self.rng.shuffle(others)
            forward.ended(outcome, others, now_ns)
            if forward.verdict is not None:
                return forward.verdict
        raise Broken("no answer at the deadline")

    def attempt(self, partition: int, one: Stored) -> Outcome:
        throw = self.rng.random()
        if throw < 0.25:
            return Outcome.REFUSED
        if throw < 0.4:
            return Outcome.UNKNOWN  # it never arrived
        self.take(partition, one)
        return Outcome.UNKNOWN if throw < 0.6 else Outcome.DONE

    def take(self, partition: int, one: Stored) -> None:
        table = self.tables[partition]
        try:
            judged = judge(table.get(one.producer_id), None, 0, one.sequence, 1)
        except SequenceGap as error:
            raise Broken(
                f"I30: {one.sequence} of {one.producer_id} is called a gap in {partition}"
            ) from error
        if judged is Judged.NEW:
            table[one.producer_id] = Known(0, one.sequence + 1, 0)
            self.stored.append(one)
        else:
            self.seen["repeats"] += 1
