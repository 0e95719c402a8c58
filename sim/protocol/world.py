"""Nodes, links and a coordinator, and a walk at random through everything that may happen to them.

There is no clock: what a timeout would decide, the dice decide, so that every timing is met and
many that no clock would produce. A history is a seed. It draws how many nodes there are, how often
each kind of event comes, and then the events, one after the other; after each of them the observer
checks its promises. At the end nothing fails any more, and the partition has to recover (`calm`).

Losses stay within what replication promises to survive: each set that may be in force keeps a
member whose disk has kept its word.
"""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from penstock.replication.record import LeaderId, Member, PartitionRecord
from sim.protocol.coordinator import Change, Coordinator
from sim.protocol.node import Kept, Node
from sim.protocol.observer import Observer

IDENTITY = 1
Focus = tuple[tuple[str, float], ...]  # names of events, and how much more often they come
STEPS = 300
Event = Callable[["World"], None]


class World:
    def __init__(self, seed: int, reckless: bool = False, focus: Focus = ()) -> None:
        self.dice = dice = random.Random(seed)
        self.throw = dice.random
        self.focus = dict(focus)
        self.reckless = reckless  # losses beyond what may be survived: then they must be reported
        self.waits = dice.random() < 0.5
        self.fed_max = dice.choice((1, 2, 3))  # batches in a row: a learner takes a few
        count = dice.choice((2, 3, 3, 3, 4))
        self._replicas = 100
        self._contents = 0
        replicas = min(count, 3)
        members_min = dice.choice((1, -(-replicas // 2), -(-replicas // 2)))
        kept = [Kept(self.new_replica()) for _ in range(count)]
        members = tuple(
            Member(n, kept[n].replica, 1) for n in range(dice.randint(members_min, replicas))
        )
        wanted = tuple(range(count))
        record = PartitionRecord(IDENTITY, 1, None, members, members_min, wanted)
        self.first_record = record
        self.coordinator = Coordinator(record, count)
        self.coordinator.last += 1
        self.coordinator.revision = self.coordinator.last
        self.observer = Observer(self)
        self.late: list[tuple[int, int, Any]] = []  # frames of links that have ended
        self.reads: list[tuple[int, int]] = []
        self.links: dict[tuple[int, int], deque[Any]] = {}
        self.waiting: list[tuple[int, int]] = []  # links with frames
        self.pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
        self.nodes = [Node(self, n, kept[n]) for n in range(count)]
        self._announce(record)
        for node in self.nodes:
            node.start(lost_memory=False)
            node.register()
        for one in range(count):
            for other in range(one):
                self.link(one, other)

        self._begin()

    def _begin(self) -> None:
        """Mostly the first election has been."""
        for node in self.nodes:
            node.look(9)
        if self.dice.random() < 0.8:
            self.nodes[0].elect(frozenset())
            self.coordinator.apply(0, answered=True)
            for node in self.nodes:
                node.look(9)
            self.coordinator.answers.clear()
            self.nodes[0].electing = None

    def _announce(self, record: PartitionRecord) -> None:
        self.coordinator.changes.append(Change(self.coordinator.revision, record))

    # --- requests of nodes ---

    def new_replica(self) -> int:
        self._replicas += 1
        return self._replicas

    def new_content(self) -> int:
        self._contents += 1
        return self._contents

    def send(self, source: int, target: int, frame: Any) -> None:
        queue = self.links.get((source, target))
        if queue is not None:
            if not queue:
                self.waiting.append((source, target))
            queue.append(frame)

    def linked_with(self, node: int) -> list[int]:
        return [other for one, other in self.links if one == node]

    # --- links ---

    def link(self, one: int, other: int) -> None:
        if (one, other) in self.links:
            return
        if not (self.nodes[one].active and self.nodes[other].active):
            return
        self.links[one, other], self.links[other, one] = deque(), deque()
        self.nodes[one].linked(other)
        self.nodes[other].linked(one)

    def unlink(self, one: int, other: int) -> None:
        if (one, other) not in self.links:
            return
        for source, target in ((one, other), (other, one)):
            frames = self.links.pop((source, target))
            self.late = [(source, target, frame) for frame in frames] or self.late
        self.observer.unlinked(one, other)
        self.nodes[one].unlinked(other)
        self.nodes[other].unlinked(one)

    def unlink_all(self, node: int) -> None:
        for other in self.linked_with(node):
            self.unlink(node, other)

    def deliver_one(self) -> bool:
        """The next frame of one of the links that have any."""
        waiting = self.waiting
        while waiting:
            index = int(self.throw() * len(waiting))
            pair = waiting[index]
            queue = self.links.get(pair)
            if queue:
                frame = queue.popleft()
                if not queue:
                    waiting[index] = waiting[-1]
                    waiting.pop()
                self.nodes[pair[1]].receive(pair[0], frame)
                return True
            waiting[index] = waiting[-1]  # that link has ended meanwhile
            waiting.pop()
        return False

    # --- the walk ---

    def draw(self) -> list[Event]:
        """The events of this history."""
        throw = self.throw
        weights = [
            weight * scales[int(throw() * count)] for weight, scales, count in _SCALED_WEIGHTS
        ]
        if self.focus:
            scale = self.focus.get
            names = (event.__name__ for event in EVENTS)
            weights = [one * scale(name, 1) for one, name in zip(weights, names, strict=True)]
        return self.dice.choices(EVENTS, weights, k=STEPS)

    def step(self, event: Event) -> None:
        event(self)
        if self.coordinator.applied:
            self.observer.check_changes()

    def run(self) -> None:
        """Every step, written out: a call for each would be a twentieth of a history."""
        applied, check = self.coordinator.applied, self.observer.check_changes
        for event in self.draw():
            event(self)
            if applied:
                check()

    def end(self) -> None:
        """Nothing comes after this. Without its cycles a world goes by itself, at no look of the
        collector at thousands of objects."""
        self.nodes.clear()
        self.observer.end()

    def any_node(self) -> Node:
        nodes = self.nodes
        return nodes[int(self.throw() * len(nodes))]

    def any_pair(self) -> tuple[int, int]:
        return self.pairs[int(self.throw() * len(self.pairs))]

    def running(self) -> Node | None:
        nodes = self.nodes
        node = nodes[int(self.throw() * len(nodes))]
        return node if node.active else None

    def leading(self) -> Node | None:
        """Mostly there is one; where there are two, either."""
        leaders = [node for node in self.nodes if node.machine is not None]
        if len(leaders) < 2:
            return leaders[0] if leaders else None
        return leaders[int(self.throw() * len(leaders))]


# --- events ---


def deliver(world: World) -> None:
    if world.waiting:
        world.deliver_one()


def deliver_much(world: World) -> None:
    for _ in range(6):
        if not (world.waiting and world.deliver_one()):
            return


def deliver_late(world: World) -> None:
    """A frame of an older link comes after the newer one was made."""
    if world.late:
        source, target, frame = world.late.pop(0)
        if (source, target) in world.links:
            world.nodes[target].receive(source, frame)


def publish(world: World) -> None:
    node = world.leading()
    if node is not None:
        node.publish(1 + int(world.throw() * 3), fails=False)


def fail_write(world: World) -> None:
    node = world.leading()
    if node is not None:
        node.publish(1, fails=True)


def sync(world: World) -> None:
    world.any_node().sync()


def sync_all(world: World) -> None:
    for node in world.nodes:
        if node.is_up:
            node.sync()


def fail_sync(world: World) -> None:
    node = world.running()
    if node is not None and not node.stopped and world.observer.may_lose(node.number):
        world.observer.forsake(node.number, node.kept.replica)
        node.fail_sync()


def look(world: World) -> None:
    node = world.running()
    if node is not None:
        node.look(1 + int(world.throw() * 3))


def look_all(world: World) -> None:
    for node in world.nodes:
        if node.active:
            node.look(100)


def apply_transaction(world: World) -> None:
    pending = world.coordinator.pending
    if pending:
        world.coordinator.apply(int(world.throw() * len(pending)), world.throw() < 0.75)


def lose_transaction(world: World) -> None:
    pending = world.coordinator.pending
    if pending:
        index = int(world.throw() * len(pending))
        if world.throw() < 0.7:
            world.coordinator.give_up(index)
        else:
            world.coordinator.forget(index)


def answer(world: World) -> None:
    answers = world.coordinator.answers
    if answers:
        one = answers.pop(int(world.throw() * len(answers)))
        node = world.nodes[one.node]
        if node.active and node.incarnation == one.incarnation:
            node.answered(one)


def read(world: World) -> None:
    if world.reads:
        number, incarnation = world.reads.pop(0)
        node = world.nodes[number]
        if node.active and node.incarnation == incarnation:
            node.read()


def elect(world: World) -> None:
    """A node believes that the leader is gone: mostly it is."""
    node = world.running()
    if node is None:
        return
    leader = node.record.leader
    if leader is not None:
        incarnations = (node.number, leader.node) in world.links
        if (
            incarnations
            and node.incarnations.get(leader.node) == leader.incarnation
            and world.throw() < 0.9
        ):
            return
    linked = {node.number, *world.linked_with(node.number)}
    node.elect(frozenset(range(len(world.nodes))) - linked)


def elect_last(world: World) -> None:
    """All members have lost memory: when all are back, the one that has the most leads."""
    node = world.running()
    if node is None or node.machine is not None:
        return
    reports = [one.report() for one in world.nodes if one.active]
    node.elect_last([report for report in reports if report is not None])


def shrink(world: World) -> None:
    """A leader finds members too slow."""
    node = world.leading()
    if node is None or node.machine is None:
        return
    others = [m.node for m in node.machine.record.members if m.node != node.number]
    if others:
        node.machine.drop((world.dice.choice(others),))
        node.work()


def resign(world: World) -> None:
    node = world.leading()
    if node is not None and node.machine is not None:
        node.machine.resign("asked to")
        node.work()


def cut_link(world: World) -> None:
    world.unlink(*world.any_pair())


def mend_link(world: World) -> None:
    world.link(*world.any_pair())


def isolate(world: World) -> None:
    world.unlink_all(world.any_node().number)


def kill(world: World) -> None:
    node = world.any_node()
    if node.is_up:
        node.end_process()
        if world.throw() < 0.5:
            node.start(lost_memory=False)


def lose_power(world: World) -> None:
    """What was not synced is gone, or a part of it."""
    node = world.any_node()
    log, kept = node.kept.log, node.kept
    unsynced = log.written_end - log.durable
    left = int(world.throw() * (unsynced + 1))
    loses = left < unsynced and (not world.waits or log.poisoned)
    if loses and not world.observer.may_lose(node.number):
        return
    node.end_process()
    log.lose_power(left)
    if loses:
        written = world.coordinator.entries[node.number].generation
        generation = max(kept.generation, written)
        world.observer.forsake(node.number, kept.replica, generation)
    node.kept.memory_lost_generation = -1  # known at the next start
    if world.throw() < 0.6:
        node.start(lost_memory=True)


def start(world: World) -> None:
    node = world.any_node()
    if not node.is_up:
        node.start(lost_memory=node.kept.memory_lost_generation < 0)


def register(world: World) -> None:
    node = world.any_node()
    if node.is_up and node.entry.incarnation != node.incarnation:
        node.register()


def back_up(world: World) -> None:
    node = world.any_node()
    if node.is_up:
        node.backup = node.kept.copy()


def roll_back(world: World) -> None:
    """The machine is set back to a snapshot of an older generation than the one written down."""
    node = world.any_node()
    backup = node.backup
    written = world.coordinator.entries[node.number].generation
    if backup is None or backup.generation >= written:
        return
    if world.observer.may_lose(node.number):
        world.observer.forsake(node.number, node.kept.replica)
        node.end_process()
        node.kept, node.backup = backup, None
        world.observer.replaced(node)


def recover(world: World) -> None:
    """An operator picks a leader that may lack what was committed. The record should say from which
    epoch on it is unclean; here it does in half of the cases."""
    node = world.running()
    if not world.reckless or node is None or node.machine is not None:
        return
    coordinator, kept = world.coordinator, node.kept
    record = coordinator.record
    leader_id = LeaderId(node.number, node.incarnation, kept.replica)
    epoch = record.epoch + 1
    coordinator.put(
        record._replace(
            epoch=epoch,
            leader=leader_id,
            members=(Member(node.number, kept.replica, kept.generation),),
            members_min=1,
            unclean_epoch=epoch if world.throw() < 0.5 else record.unclean_epoch,
        )
    )


def wipe(world: World) -> None:
    """Another, empty disk."""
    node = world.any_node()
    if world.observer.may_lose(node.number):
        world.observer.forsake(node.number, node.kept.replica)
        node.end_process()
        node.kept = Kept(world.new_replica())
        world.observer.replaced(node)


def rot(world: World) -> None:
    """The last batch of a replica that counts for nothing yet is another one."""
    node, truth = world.any_node(), world.observer.truth
    log = node.kept.log
    if any(m.node == node.number for members in world.observer.possible_sets() for m in members):
        return
    if 0 < log.written_end < len(truth) and log.hashes[-1] == truth[log.written_end - 1]:
        world.observer.forsake(node.number, node.kept.replica)
        batch = log.batches[-1]
        log.truncate(log.written_end - 1)
        log.append(batch._replace(content=world.new_content()))
        log.corrupt = True


def repair(world: World) -> None:
    """A replica that is stopped is copied again, as another."""
    node = world.running()
    if node is not None and node.stopped:
        node.become_new(keep_log=node.kept.ended)
        for other in world.linked_with(node.number):
            world.unlink(node.number, other)


_USUAL, _SWARM = (1,), (0, 0.3, 1, 1, 3)
WEIGHTS: dict[Event, tuple[float, tuple[float, ...]]] = {
    deliver: (40, (0.3, 1, 1)),
    deliver_much: (14, (0.3, 1, 1)),
    publish: (16, _USUAL),
    sync: (10, _USUAL),
    sync_all: (3, _SWARM),
    look: (8, _USUAL),
    look_all: (3, _SWARM),
    apply_transaction: (8, _USUAL),
    answer: (8, _USUAL),
    read: (4, _USUAL),
    elect: (6, (0.3, 1, 2)),
    elect_last: (1, _USUAL),
    mend_link: (6, _USUAL),
    start: (4, _USUAL),
    register: (5, _USUAL),
    lose_transaction: (2, _SWARM),
    shrink: (2, _SWARM),
    resign: (1, _SWARM),
    cut_link: (2, _SWARM),
    isolate: (0.7, _SWARM),
    kill: (1.2, _SWARM),
    lose_power: (1.6, _SWARM),
    fail_write: (0.7, _SWARM),
    fail_sync: (0.5, _SWARM),
    back_up: (2, _SWARM),
    roll_back: (1, _SWARM),
    wipe: (0.3, _SWARM),
    recover: (0.5, _SWARM),
    rot: (1, _SWARM),
    deliver_late: (2, _SWARM),
    repair: (2, _USUAL),
}
EVENTS = tuple(WEIGHTS)
_SCALED_WEIGHTS = tuple((weight, scales, len(scales)) for weight, scales in WEIGHTS.values())
