"""Journals of three nodes, with elections, sets that shrink and grow, frames that come late, losses
of power, wiped disks and writes that fail.

What was answered stands in the journal of every later leader (I21, I25), and none of them knows of
a log's start below what some replica has removed (I16).
"""

import random
from collections import deque
from typing import Any

from penstock.log.fold import Position, generation_of
from penstock.replication.journal import (
    NOTHING,
    AcknowledgePosition,
    DropBelow,
    HelloJournal,
    JournalFollower,
    JournalLeader,
    ReportHeld,
    ReportPosition,
    RequestSnapshot,
    RequestSync,
    SendHeld,
    SendRecord,
    SyncJournal,
    SyncOwn,
    TakeRecord,
    TakeSnapshot,
)

HISTORIES, STEPS = 250, 400
Entry = tuple[
    Position, frozenset[int], int
]  # the position, facts that stand there, the log's start
EMPTY: Entry = (NOTHING, frozenset(), 0)


class Node:
    def __init__(self, number: int, replica: int, epoch: int = 0) -> None:
        self.number, self.replica, self.epoch = number, replica, epoch
        self.entry = self.durable = EMPTY
        self.removed = 0  # all of its log below
        self.begin()

    def begin(self) -> None:
        position, _, start = self.entry
        self.leader: JournalLeader | None = None
        self.follower = JournalFollower(self.replica, self.epoch, position, start)
        self.sync_due = False


class World:
    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.replicas = self.sessions = self.epoch = self.facts = self.generations = 0
        self.nodes = [Node(number, self.new_replica()) for number in range(3)]
        self.members = {(node.number, node.replica) for node in self.nodes}
        self.links: dict[tuple[int, int], deque[Any]] = {}  # the leader's and the follower's frames
        self.late: list[tuple[int, int, Any]] = []
        self.answered: set[int] = set()
        self.elect()

    def new_replica(self) -> int:
        self.replicas += 1
        return self.replicas

    # --- links ---

    def unlink(self, number: int) -> None:
        for pair in [one for one in self.links if number in one]:
            frames = self.links.pop(pair)
            self.late += [(*pair, frame) for frame in frames if self.dice.random() < 0.5]
            leader = self.nodes[pair[0]].leader
            if leader is not None:
                leader.unlinked(pair[1])

    def link(self, source: int, target: int) -> None:
        leader = self.nodes[source].leader
        if leader is not None and source != target:
            self.unlink(target)
            self.sessions += 1
            self.links[source, target], self.links[target, source] = deque(), deque()
            leader.linked(target, self.sessions)

    def deliver(self) -> None:
        pairs = [pair for pair, frames in self.links.items() if frames]
        if pairs:
            pair = self.dice.choice(pairs)
            self.receive(*pair, self.links[pair].popleft())

    def receive(self, source: int, target: int, frame: Any) -> None:
        node = self.nodes[target]
        leader, follower = node.leader, node.follower
        match frame:
            case HelloJournal(_, session, epoch) if epoch >= node.epoch:
                if leader is not None:
                    leader.leave()
                    node.begin()
                node.epoch = epoch
                node.follower.hello(session, epoch)
            case SendRecord(_, session, epoch, position, record, held) if leader is None:
                follower.record(session, epoch, position, record, held)
            case SendHeld(_, session, epoch, held) if leader is None:
                follower.held(session, epoch, held)
            case RequestSync(_, session, epoch, position) if leader is None:
                follower.sync_requested(session, epoch, position)
            case ReportPosition(session, _, replica, position) if leader is not None:
                leader.position_reported(source, session, replica, position)
            case RequestSnapshot(session, _) if leader is not None:
                leader.snapshot_requested(source, session)
            case AcknowledgePosition(session, _, replica, written, synced) if leader is not None:
                leader.acknowledged(source, session, replica, written, synced)
        self.work(node)

    # --- effects ---

    def work(self, node: Node) -> None:
        machine = node.leader or node.follower
        while machine.out:
            match machine.out.pop(0):
                case TakeRecord(entry) | TakeSnapshot(entry) as effect:
                    self.take(node, entry, isinstance(effect, TakeSnapshot))
                case SyncJournal() | SyncOwn():
                    node.sync_due = True
                case DropBelow(start):
                    node.removed = max(node.removed, start)
                case ReportHeld(fact):
                    self.answered.add(fact)
                case HelloJournal() | SendRecord() | SendHeld() | RequestSync() as effect:
                    self.send(node.number, effect.node, effect)
                case effect:
                    leaders = [one for one, other in self.links if other == node.number]
                    for number in leaders:
                        self.send(node.number, number, effect)

    def send(self, source: int, target: int, frame: Any) -> None:
        if (source, target) in self.links:
            self.links[source, target].append(frame)

    def take(self, node: Node, entry: Entry, is_snapshot: bool) -> None:
        """A snapshot says all, and a record what is new."""
        if self.dice.random() < 0.02:
            node.follower.write_failed()
            return
        position, facts, start = entry
        node.entry = position, facts if is_snapshot else node.entry[1] | facts, start
        node.follower.wrote(position, start)

    # --- what happens ---

    def leading(self) -> Node | None:
        led = [node for node in self.nodes if node.leader is not None]
        return self.dice.choice(led) if led else None

    def say(self) -> None:
        node = self.leading()
        if node is None or node.leader is None:
            return
        position, facts, start = node.entry
        self.facts += 1
        if node.leader.must_begin or self.dice.random() < 0.05:
            self.generations += 1
            position = Position(generation_of(node.epoch, self.generations), 0)
        else:
            position = position._replace(sequence=position.sequence + 1)
        start += self.dice.random() < 0.2
        node.entry = position, facts | {self.facts}, start
        new = frozenset({self.facts}) if position.sequence else node.entry[1]
        node.leader.wrote(position, (position, new, start), start)
        node.leader.when_held(position, self.facts)
        self.work(node)

    def sync(self, node: Node) -> None:
        if node.sync_due:
            node.sync_due = False
            node.durable = node.entry
            (node.leader or node.follower).synced(node.entry[0])
            self.work(node)

    def lose_power(self, node: Node) -> None:
        self.unlink(node.number)
        node.entry = self.dice.choice((node.durable, node.entry))
        node.begin()

    def wipe(self, node: Node) -> None:
        if (node.number, node.replica) not in self.members:
            self.unlink(node.number)
            self.nodes[node.number] = Node(node.number, self.new_replica(), node.epoch)

    def elect(self) -> None:
        node = self.dice.choice([n for n in self.nodes if (n.number, n.replica) in self.members])
        self.unlink(node.number)
        self.epoch += 1
        node.begin()
        node.epoch = self.epoch
        position, facts, start = node.entry
        assert self.answered <= facts, f"{self.answered - facts} were answered, and are not known"
        removed = max(one.removed for one in self.nodes)
        assert removed <= start, f"I16: removed up to {removed}, the leader's log begins at {start}"
        node.leader = JournalLeader(node.number, self.epoch, position, start)
        node.leader.needs(self.members)
        for other in self.nodes:
            self.link(node.number, other.number)

    def regroup(self) -> None:
        """By the leader in force only: others' changes are refused."""
        for node in self.nodes:
            if node.leader is None or node.epoch != self.epoch:
                continue
            other = self.dice.choice([one for one in self.nodes if one is not node])
            entry = other.number, other.replica
            if entry in self.members and self.dice.random() < 0.5:
                self.members.discard(entry)
            elif node.leader.is_level(*entry):
                self.members = {one for one in self.members if one[0] != other.number} | {entry}
            node.leader.needs(self.members)
            self.work(node)

    def step(self) -> None:
        node = self.dice.choice(self.nodes)
        acts = ("deliver", "say", "sync", "housekeep", "elect", "power", "wipe", "regroup",
                "link", "late")  # fmt: skip
        match self.dice.choices(acts, (60, 15, 15, 2, 2, 1.5, 1, 4, 3, 2))[0]:
            case "sync":
                self.sync(node)
            case "housekeep" if node.leader is None:
                node.follower.sync_all()
                node.follower.try_again()
                self.work(node)
            case "power":
                self.lose_power(node)
            case "wipe":
                self.wipe(node)
            case "link":
                led = self.leading()
                if led is not None:
                    self.link(led.number, node.number)
                    self.work(led)
            case "late" if self.late:
                self.receive(*self.late.pop(self.dice.randrange(len(self.late))))
            case "deliver" | "say" | "elect" | "regroup" as act:
                getattr(self, act)()
                for one in self.nodes:
                    self.work(one)


def test_every_later_leader_has_the_answered_changes() -> None:
    answered = elected = 0
    for seed in range(HISTORIES):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
        answered += len(world.answered)
        elected += world.epoch
    assert answered > HISTORIES
    assert elected > 3 * HISTORIES
