"""Three nodes with clocks of their own make the ids of three partitions of a topic.

- *I17*: ids rise along a partition, and no two messages of the topic have the same.
- *Calm*: when nothing fails any more, each leader makes ids.

Every log is with all nodes: replication is not what is tested here. Clocks differ by up to a
minute, and jump; leaders change; a node starts again, or another machine takes its place, with an
empty disk and another clock. What a node asks the coordinator to write arrives later, or never.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from penstock.cluster.idfloor import ALL, IdGuards, NodeIds
from penstock.limits import MS, SECOND

NODES = 3
PARTITIONS = 3
STEPS = 150
SKEW_NS = 60 * SECOND
BEGUN_NS = 1_700_000_000 * SECOND
BATCH_MAX = 3


class Broken(AssertionError):
    """A promise was not kept."""


class Node:
    def __init__(self, number: int, clock_ns: int, ids: NodeIds) -> None:
        self.number = number
        self.clock_ns = clock_ns  # ahead of true time
        self.ids = ids


class World:
    def __init__(self, seed: int, guards: IdGuards = ALL) -> None:
        self.rng = random.Random(seed)
        self.guards = guards
        self.now_ns = BEGUN_NS
        self.floors = [0] * NODES  # in the coordinator
        self.asked: list[tuple[int, NodeIds, int]] = []
        self.nodes = [self.machine(number) for number in range(NODES)]
        self.logs: list[list[int]] = [[] for _ in range(PARTITIONS)]
        self.leaders = [number % NODES for number in range(PARTITIONS)]
        self.made: set[int] = set()
        self.seen: Counter[str] = Counter()
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.publish, 30), (self.pass_time, 20), (self.ask, 10), (self.write, 10),
            (self.lose, 1), (self.elect, 5), (self.restart, 2), (self.replace, 2),
            (self.set_clock, 2),
        ]  # fmt: skip

    def machine(self, number: int) -> Node:
        """A process on a machine with a clock of its own. It reads the floor before it begins."""
        clock_ns = self.rng.randint(-SKEW_NS, SKEW_NS)
        return Node(number, clock_ns, NodeIds(number, self.floors[number], self.guards))

    def play(self) -> None:
        steps, weights = zip(*self.steps, strict=True)
        for _ in range(STEPS):
            self.rng.choices(steps, weights)[0]()
        self.calm()

    # --- steps ---

    def publish(self) -> None:
        self.publish_to(self.rng.randrange(PARTITIONS))

    def publish_to(self, partition: int) -> bool:
        node, log = self.nodes[self.leaders[partition]], self.logs[partition]
        count = self.rng.randint(1, BATCH_MAX)
        base_id = node.ids.take(count, self.now_ns + node.clock_ns)
        if base_id is None:
            self.seen["waited"] += 1
            return False
        for id in range(base_id, base_id + count):
            if log and id <= log[-1]:
                raise Broken(f"I17: id {id} follows {log[-1]} in partition {partition}")
            if id in self.made:
                raise Broken(f"I17: node {node.number} makes id {id} once more")
            self.made.add(id)
            log.append(id)
        self.seen["made"] += count
        return True

    def pass_time(self) -> None:
        self.now_ns += self.rng.choice((MS // 10, 2 * MS, 100 * MS, 2 * SECOND))

    def ask(self) -> None:
        """As the loop does, a few times a second."""
        node = self.rng.choice(self.nodes)
        wanted = node.ids.wanted(self.now_ns + node.clock_ns)
        if wanted is not None:
            self.asked.append((node.number, node.ids, wanted))

    def write(self) -> None:
        """The floor only rises: the transaction compares the revision that it was read at."""
        if self.asked:
            number, ids, wanted = self.asked.pop(self.rng.randrange(len(self.asked)))
            if self.nodes[number].ids is ids:  # a later start has moved the revision
                self.floors[number] = max(self.floors[number], wanted)
                ids.written(wanted)

    def lose(self) -> None:
        """Applied, and its answer is lost."""
        if self.asked:
            number, ids, wanted = self.asked.pop(self.rng.randrange(len(self.asked)))
            if self.nodes[number].ids is ids:
                self.floors[number] = max(self.floors[number], wanted)
                self.seen["lost"] += 1

    def elect(self) -> None:
        self.lead(self.rng.randrange(PARTITIONS), self.rng.randrange(NODES))
        self.seen["elected"] += 1

    def lead(self, partition: int, number: int) -> None:
        self.leaders[partition] = number
        log = self.logs[partition]
        self.nodes[number].ids.lead(log[-1] if log else 0)

    def restart(self) -> None:
        """The same machine, and the same clock."""
        node = self.rng.choice(self.nodes)
        node.ids = NodeIds(node.number, self.floors[node.number], self.guards)
        self.after_start(node.number)

    def replace(self) -> None:
        number = self.rng.randrange(NODES)
        self.nodes[number] = self.machine(number)
        self.after_start(number)
        self.seen["replaced"] += 1

    def after_start(self, number: int) -> None:
        for partition, leader in enumerate(self.leaders):
            if leader == number:
                self.lead(partition, self.rng.randrange(NODES))

    def set_clock(self) -> None:
        self.rng.choice(self.nodes).clock_ns = self.rng.randint(-SKEW_NS, SKEW_NS)

    # --- calm ---

    def calm(self) -> None:
        for node in self.nodes:
            wanted = node.ids.wanted(self.now_ns + node.clock_ns)
            if wanted is not None:
                node.ids.written(wanted)
        for partition in range(PARTITIONS):
            if not self.publish_to(partition):
                raise Broken(f"Calm: partition {partition} gets no ids")
