"""Nodes, links and a coordinator on one clock, which moves in steps.

A step delivers what has arrived, lets each node take a turn, and offers each partition a publish.
Trouble comes from the scenario: it cuts, kills and hangs what it likes. What a network does at once
(a process that ends breaks its links and refuses new ones) the world does by itself.
"""

from __future__ import annotations

import random
from typing import Any, NamedTuple

from penstock.cluster import keys
from penstock.cluster.coordinator import Put, Transaction
from penstock.cluster.documents import CLUSTER, RECORD, Cluster
from penstock.cluster.keys import PartitionName
from penstock.cluster.rules import ALL, Rules
from penstock.cluster.store import Store
from penstock.limits import MS, SECOND
from penstock.replica.record import Member, Record, broken_rule
from sim.protocol.modellog import ModelLog
from sim.timed.node import Node

STEP_NS = 50 * MS
CONNECT_NS = 500 * MS  # between two attempts to link
IDENTITY = 7


class Frame(NamedTuple):
    due_ns: int
    source: int
    target: int
    frame: Any


class Promise(Exception):
    """What must hold does not."""


class World:
    def __init__(self, seed: int, rules: Rules = ALL, nodes: int = 3, partitions: int = 4) -> None:
        self.dice = random.Random(seed)
        self.rules = rules
        self.now_ns = self.dice.randrange(SECOND)
        self.store = Store()
        self.names = [PartitionName("t", number) for number in range(partitions)]
        self.truth: dict[PartitionName, list[int]] = {name: [] for name in self.names}
        self.changes: dict[PartitionName, list[tuple[int, Record]]] = {}
        self.cuts: set[tuple[int, int]] = set()  # pairs of nodes that cannot reach each other
        self.slow: dict[int, int] = {}  # how long the frames of a node take
        self._frames: list[Frame] = []
        self._contents = 0
        self._connect_due_ns = 0
        self._begin(nodes)

    def _begin(self, count: int) -> None:
        self._put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 0)))
        self.nodes = [Node(self, number) for number in range(count)]
        for name in self.names:
            order = [(name.number + place) % count for place in range(count)]
            members = tuple(
                Member(number, self.nodes[number].replicas[name].replica, 1)
                for number in range(count)
            )
            record = Record(IDENTITY, 1, None, members, (count + 1) // 2, tuple(order))
            self.changes[name] = [(self.now_ns, record)]
            self._put(keys.partition(*name), RECORD.encode(record))
        self._seen = self.store.revision
        for node in self.nodes:
            node.start()

    def _put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))

    def new_content(self) -> int:
        self._contents += 1
        return self._contents

    def committed(self, name: PartitionName, log: ModelLog, end: int) -> None:
        """What leaders commit is one sequence."""
        truth = self.truth[name]
        known = min(end, len(truth))
        if log.hashes[:known] != truth[:known]:
            raise Promise(f"{name}: another sequence is committed than was")
        truth.extend(log.hashes[known:end])

    # --- trouble ---

    def cut(self, one: int, other: int) -> None:
        self.cuts.update({(one, other), (other, one)})
        self._unlink(one, other)

    def mend(self) -> None:
        self.cuts.clear()
        for node in self.nodes:
            node.port.is_cut = False

    def kill(self, number: int) -> None:
        for other in tuple(self.nodes[number].links):
            self._unlink(number, other)
        self.nodes[number].end()

    def _unlink(self, one: int, other: int) -> None:
        if other not in self.nodes[one].links:
            return
        pair = {one, other}
        self._frames = [frame for frame in self._frames if {frame.source, frame.target} != pair]
        self.nodes[one].unlinked(other)
        self.nodes[other].unlinked(one)

    # --- time ---

    def run(self, seconds: float) -> None:
        end_ns = self.now_ns + int(seconds * SECOND)
        while self.now_ns < end_ns:
            self.step()

    def step(self) -> None:
        self.now_ns += STEP_NS
        self.store.run_out(self.now_ns)
        if self.now_ns >= self._connect_due_ns:
            self._connect_due_ns = self.now_ns + CONNECT_NS
            self._connect()
        self._deliver()
        for node in self.nodes:
            if node.is_up and not node.hangs:
                node.turn()
            elif node.is_up and not self.rules.lease_kept_by_loop:
                self._keep_from_thread(node)
        for node in self.nodes:
            if node.is_up and not node.hangs:
                for replica in node.replicas.values():
                    replica.publish()
                    replica.work()
        self._watch_records()

    def _keep_from_thread(self, node: Node) -> None:
        for entry in self.store.entries_of(keys.node(node.number)):
            self.store.keep(entry.lease, self.now_ns)

    def _connect(self) -> None:
        for one in self.nodes:
            for other in self.nodes[: one.number]:
                pair = one.number, other.number
                if pair in self.cuts or other.number in one.links:
                    continue
                if one.is_up and other.is_up and not (one.hangs or other.hangs):
                    one.linked(other.number, other.life)
                    other.linked(one.number, one.life)
                elif one.is_up != other.is_up:
                    up, down = (one, other) if one.is_up else (other, one)
                    if not up.hangs:
                        up.refused(down.number, down.life)

    def send(self, source: int, target: int, frame: Any) -> None:
        if target in self.nodes[source].links:
            due_ns = self.now_ns + self.slow.get(source, 0)
            self._frames.append(Frame(due_ns, source, target, frame))

    def _deliver(self) -> None:
        """What comes from one node comes in its order."""
        frames, self._frames = self._frames, []
        for frame in frames:
            if frame.due_ns > self.now_ns or self.nodes[frame.target].hangs:
                self._frames.append(frame)
            elif frame.source in self.nodes[frame.target].links:
                self.nodes[frame.target].receive(frame.source, frame.frame)

    # --- what is seen ---

    def _watch_records(self) -> None:
        events = self.store.events(keys.PARTITIONS, self._seen + 1)
        self._seen = self.store.revision
        for event in events if isinstance(events, list) else ():
            if event.entry is None:
                raise Promise(f"{event.key} is gone")
            name = keys.partition_of(event.key)
            record = RECORD.decode(event.key, event.entry.value)
            broken = broken_rule(self.changes[name][-1][1], record)
            if broken is not None:
                raise Promise(f"{name}: {broken}")
            self.changes[name].append((self.now_ns, record))

    def record(self, name: PartitionName) -> Record:
        return self.changes[name][-1][1]

    def changes_since(self, since_ns: int) -> int:
        return sum(at_ns > since_ns for rows in self.changes.values() for at_ns, _ in rows)

    def elections_since(self, since_ns: int) -> int:
        """How many records have a higher epoch than they had then."""
        count = 0
        for rows in self.changes.values():
            before = max(record.epoch for at_ns, record in rows if at_ns <= since_ns)
            count += rows[-1][1].epoch > before
        return count

    def leader(self, name: PartitionName) -> Node | None:
        """Who is in office, by the record in force."""
        record = self.record(name)
        for node in self.nodes:
            line = node.replicas[name].line
            if node.is_up and line is not None and line.record.epoch == record.epoch:
                return node
        return None
