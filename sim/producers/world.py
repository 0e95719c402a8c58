"""Three nodes with a log each, and producers that send again what was not answered.

- *I30*: a message of a producer is committed at most once; what was answered OK is committed.
- *No gap*: a producer that counts right is never refused by the leader in office.
- *Calm*: when nothing fails any more, each is answered, and all tables are equal.

The log is a list, replicated by the rules of `docs/replication.md` in one step: a follower's
is cut where it leaves the leader's, and the rest is added. Leaders change, and old ones may not
notice; processes end; disks are wiped and copied again; segments go; tables are saved at any
moment.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from penstock.errors import SequenceGap
from penstock.replica.producerline import (
    ALL,
    Known,
    ProducerGuards,
    ProducerLine,
    Stamped,
    Verdict,
    judge,
)

NODES = 3
PRODUCERS = 3
STEPS = 150


class Broken(AssertionError):
    """A promise was not kept."""


class Batch(NamedTuple):
    """One message; `attempt` tells it from another one with the same numbers."""

    producer: int
    sequence: int
    attempt: int


class Producer:
    def __init__(self) -> None:
        self.sequence = 0  # of what it sends now
        self.answered = 0  # all below was answered OK


class Office:
    """`acknowledged`: the end of each node's log, as this leader knows it."""

    def __init__(self, epoch: int, start_end: int) -> None:
        self.epoch = epoch
        self.start_end = start_end
        self.acknowledged: dict[int, int] = {}
        self.waiting: list[tuple[int, int, int]] = []  # end, producer, sequence


class Node:
    """`saved` is the file of the table: its end, and what it says."""

    def __init__(self, number: int, guards: ProducerGuards) -> None:
        self.number = number
        self.guards = guards
        self.promised = 0
        self.begin(0)

    def begin(self, start: int, is_wiped: bool = False) -> None:
        """An empty log."""
        self.start = start
        self.batches: list[Batch] = []
        self.committed = start
        self.saved: tuple[int, dict[int, Known]] = (start, {})
        self.line = ProducerLine(start, {}, self.guards)
        self.office: Office | None = None
        self.is_wiped = is_wiped
        self.lacks_table = (is_wiped or start > 0) and self.guards.shipped_to_learners

    @property
    def end(self) -> int:
        return self.start + len(self.batches)

    def batch(self, offset: int) -> Batch:
        return self.batches[offset - self.start]

    def add(self, batch: Batch) -> None:
        self.batches.append(batch)
        self.line.wrote(stamped(batch, self.end))

    def cut(self, end: int) -> None:
        if end < self.committed:
            raise Broken(f"node {self.number}: cut at {end}, {self.committed} is committed")
        del self.batches[end - self.start :]
        if not self.line.cut(end):
            self.fold()

    def learn(self, committed: int) -> None:
        self.committed = max(self.committed, committed)
        self.line.committed(self.committed)

    def save(self) -> None:
        self.saved = (self.line.end_to_save(self.end), dict(self.line.table))

    def restart(self) -> None:
        self.office = None
        self.committed = min(self.committed, max(self.saved[0], self.start))
        self.fold()

    def fold(self) -> None:
        """The file, and the log from its end on."""
        end, table = self.saved
        end = min(end, self.end)
        self.line = ProducerLine(end, table, self.guards)
        for offset in range(max(end, self.start), self.end):
            self.line.wrote(stamped(self.batch(offset), offset + 1))
        self.line.committed(self.committed)

    def drop_below(self, start: int) -> None:
        start = min(start, self.saved[0], self.end)
        if start > self.start:
            del self.batches[: start - self.start]
            self.start = start


def stamped(batch: Batch, end: int) -> Stamped:
    return Stamped(end, batch.producer, 0, batch.sequence + 1, 0)


class World:
    def __init__(self, seed: int, guards: ProducerGuards = ALL) -> None:
        self.rng = random.Random(seed)
        self.nodes = [Node(number, guards) for number in range(NODES)]
        self.producers = [Producer() for _ in range(PRODUCERS)]
        self.epoch = 0  # the record: this, its leader, the members
        self.leader = 0
        self.members = set(range(NODES))
        self.committed: list[Batch] = []
        self.attempts = 0
        self.seen: Counter[str] = Counter()
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.publish, 20), (self.replicate, 30), (self.commit, 15), (self.save, 4),
            (self.elect, 3), (self.regroup, 4), (self.restart, 3), (self.wipe, 1),
            (self.drop, 3),
        ]  # fmt: skip

    def play(self) -> None:
        self.elect()
        steps, weights = zip(*self.steps, strict=True)
        for _ in range(STEPS):
            self.rng.choices(steps, weights)[0]()
        self.calm()

    def led(self) -> tuple[Node, Office] | None:
        """Any leader, one that was deposed and has not noticed, too."""
        led = [(node, node.office) for node in self.nodes if node.office is not None]
        return self.rng.choice(led) if led else None

    def in_force(self) -> tuple[Node, Office] | None:
        node = self.nodes[self.leader]
        office = node.office
        return (node, office) if office is not None and office.epoch == self.epoch else None

    # --- publishes ---

    def publish(self) -> None:
        """First or again: the producer does not know what came of the last time."""
        if found := self.led():
            number = self.rng.randrange(PRODUCERS)
            self.ask(*found, number, self.producers[number].sequence)

    def ask(self, node: Node, office: Office, number: int, sequence: int) -> None:
        line = node.line
        try:
            verdict = judge(line.table.get(number), line.newest(number), 0, sequence, 1)
        except SequenceGap as error:
            if office.epoch == self.epoch:
                raise Broken(
                    f"producer {number}: {sequence} is a gap, {error.expected} is not"
                ) from error
            return  # a refusal of who is not in office is no answer
        self.seen[verdict.name] += 1
        if verdict is Verdict.NEW:
            self.attempts += 1
            node.add(Batch(number, sequence, self.attempts))
        if verdict is Verdict.STORED:
            self.answer(number, sequence)
        else:
            office.waiting.append((node.end, number, sequence))

    def answer(self, number: int, sequence: int) -> None:
        if not any(one[:2] == (number, sequence) for one in self.committed):
            raise Broken(f"I30: {sequence} of producer {number} was answered, and is not committed")
        producer = self.producers[number]
        if sequence == producer.sequence:
            producer.sequence += 1
        producer.answered = max(producer.answered, sequence + 1)

    # --- replication ---

    def replicate(self) -> None:
        if found := self.led():
            node, office = found
            other = self.rng.choice([one for one in self.nodes if one is not node])
            self.feed(node, office, other, self.rng.randint(0, 4))

    def feed(self, node: Node, office: Office, other: Node, count: int) -> None:
        if other.promised > office.epoch:
            node.office = None
            return
        other.promised = office.epoch
        other.office = None
        self.match(node, other)
        for offset in range(other.end, min(other.end + count, node.end)):
            other.add(node.batch(offset))
        other.learn(min(node.committed, other.end))
        self.ship(node, other)
        other.drop_below(node.start)
        office.acknowledged[other.number] = other.end

    def match(self, node: Node, other: Node) -> None:
        if other.end < node.start or other.is_wiped or other.start > node.end:
            other.begin(node.start)
            other.promised = self.nodes[other.number].promised
        common = max(node.start, other.start)
        while common < min(node.end, other.end) and node.batch(common) == other.batch(common):
            common += 1
        if common < other.end:
            self.seen["cut"] += 1
            other.cut(common)

    def ship(self, node: Node, other: Node) -> None:
        """The leader's table, once the learner's log reaches as far."""
        if other.lacks_table and other.start <= node.line.end <= other.end:
            other.lacks_table = False
            other.line = ProducerLine(node.line.end, node.line.table, other.guards)
            for offset in range(node.line.end, other.end):
                other.line.wrote(stamped(other.batch(offset), offset + 1))
            other.save()
            self.seen["shipped"] += 1

    def commit(self) -> None:
        if found := self.led():
            node, office = found
            members = self.members if office.epoch == self.epoch else set(range(NODES))
            ends = [office.acknowledged.get(one, 0) for one in members - {node.number}]
            self.commit_to(node, office, min([node.end, *ends]))

    def commit_to(self, node: Node, office: Office, end: int) -> None:
        for offset in range(len(self.committed), end):
            batch = node.batch(offset)
            if any(one[:2] == batch[:2] for one in self.committed):
                raise Broken(f"I30: {batch.sequence} of producer {batch.producer} twice")
            self.committed.append(batch)
        node.learn(end)
        done = [one for one in office.waiting if one[0] <= end]
        office.waiting = [one for one in office.waiting if one[0] > end]
        for _, number, sequence in done:
            self.answer(number, sequence)
            self.seen["answered"] += 1

    # --- the record ---

    def elect(self) -> None:
        number = self.rng.choice(sorted(self.members))
        node = self.nodes[number]
        self.epoch += 1
        self.leader = number
        node.promised = self.epoch
        node.office = Office(self.epoch, node.end)
        self.seen["elected"] += 1
        self.seen["inherited"] += node.end > node.committed

    def regroup(self) -> None:
        if found := self.in_force():
            node, office = found
            other = self.rng.choice([one for one in self.nodes if one is not node])
            if other.number not in self.members:
                self.take_in(node, office, other)
            elif self.rng.random() < 0.5:
                self.members.discard(other.number)

    def take_in(self, node: Node, office: Office, other: Node) -> None:
        end = office.acknowledged.get(other.number, -1)
        if end >= max(office.start_end, node.committed) and not other.lacks_table:
            self.members.add(other.number)
            self.seen["grown"] += 1

    # --- what goes wrong, and what goes on ---

    def restart(self) -> None:
        node = self.rng.choice(self.nodes)
        node.restart()
        self.forget(node)

    def wipe(self) -> None:
        """Of a replica that was left out: the others have all."""
        left_out = [node for node in self.nodes if node.number not in self.members]
        if left_out:
            node = self.rng.choice(left_out)
            node.begin(0, is_wiped=True)
            self.forget(node)
            self.seen["wiped"] += 1

    def forget(self, node: Node) -> None:
        """Acknowledgements end with the link."""
        for one in self.nodes:
            if one.office is not None:
                one.office.acknowledged.pop(node.number, None)

    def save(self) -> None:
        self.rng.choice(self.nodes).save()

    def drop(self) -> None:
        """The leader's retention; others follow it."""
        if found := self.in_force():
            node, _ = found
            node.drop_below(self.rng.randint(node.start, node.committed))

    # --- calm ---

    def calm(self) -> None:
        self.elect()
        found = self.in_force()
        if found is None:
            raise RuntimeError("an election without an office")
        node, office = found
        self.members = {node.number}
        self.spread(node, office)
        for number, producer in enumerate(self.producers):
            self.ask(node, office, number, producer.sequence)
        self.spread(node, office)
        for number, producer in enumerate(self.producers):
            if producer.answered < producer.sequence:
                raise Broken(f"Calm: producer {number} waits for {producer.answered}")
        for other in self.nodes:
            self.compare(node, other)

    def spread(self, node: Node, office: Office) -> None:
        self.commit_to(node, office, node.end)
        for other in self.nodes:
            if other is not node:
                self.feed(node, office, other, node.end)

    def compare(self, node: Node, other: Node) -> None:
        if other.line.table != node.line.table:
            raise Broken(f"Calm: node {other.number} has {other.line.table}, not {node.line.table}")
