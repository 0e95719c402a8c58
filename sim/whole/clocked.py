"""The whole world on a clock: nodes of real parts, with the product's own part in the cluster.

One queue holds all events (`sim/schedule.py`): ticks, frames that arrive, syncs that end, publishes
and trouble. Elections, sets and offices are decided by `penstock.cluster` over a shared store, by
time. Calls of the coordinator take their time, are lost, and overtake one another; a call that its
process has given up may arrive after the process has ended.

| what breaks | the others notice |
|---|---|
| a process ends | at once, and their attempts to connect are refused |
| a machine loses its power | after up to SILENCE_NS, and nothing refuses them |
| a process hangs, a cable is cut | after up to SILENCE_NS, each side by itself |

What a link held when it broke is lost, or comes late, on a newer link.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

from penstock.broker.ports import Lane
from penstock.cluster import keys
from penstock.cluster.coordinator import Put, Transaction
from penstock.cluster.documents import CLUSTER, RECORD, Cluster
from penstock.cluster.store import Store
from penstock.kernel import load
from penstock.limits import MS, SECOND
from penstock.replica.frames import FrameBroken, Frames
from penstock.replica.record import Member, Record
from sim.schedule import Schedule
from sim.timed.port import NEVER_NS, Passage, Port
from sim.whole.node import NAME, TICK_NS, Node
from sim.whole.observer import WholeObserver

IDENTITY = 1
NODES = 3
CONNECT_NS = 500 * MS  # between two attempts to link
SILENCE_NS = 2 * SECOND  # of a peer, before its link is given up
LATE_SHARE = 0.1  # of the frames that a link held when it broke
CANARY = 500  # of so many messages one is lost, where the harness is tested
_KEY = keys.partition(*NAME)


class Link:
    """Of two processes. On a lane no frame overtakes another."""

    __slots__ = ("arrives_ns", "is_broken", "readers", "unnoticed")

    def __init__(self, nodes: tuple[int, int]) -> None:
        self.is_broken = False
        self.unnoticed = set(nodes)  # of those that think it lives
        self.arrives_ns: dict[tuple[int, Lane], int] = {}
        self.readers = {(node, lane): Frames(node) for node in nodes for lane in Lane}


class Weather:
    """How bad things are in this history."""

    def __init__(self, dice: random.Random) -> None:
        self.answers_lost = dice.choice((0, 0, 0.02, 0.1))
        self.answers_late = dice.choice((0, 0, 0.05, 0.2))
        self.publish_ns = dice.choice((30, 60, 150)) * MS
        self.sync_ns = dice.choice((1, 5, 20)) * MS


class ClockedWorld:
    def __init__(self, seed: int, kernel: str = "", canary: bool = False) -> None:
        self.dice = dice = random.Random(seed)
        self.schedule = Schedule(dice, dice.randrange(SECOND))
        self.kernel: SimpleNamespace = load("pure" if kernel == "pure" else "compiled")
        self.waits = dice.random() < 0.6
        self.canary = canary
        self.weather = Weather(dice)
        self.is_calm = False
        self.publishes = True
        self.cuts: set[frozenset[int]] = set()
        self.cut_off: set[int] = set()  # nodes that do not reach the coordinator
        self.slow: dict[int, int] = {}  # how much longer the frames of a node take
        self.links: dict[frozenset[int], Link] = {}
        self.frames_count = 0  # of partitions, that were sent
        self.ghosts: list[Port] = []  # of processes that have ended
        self.changed_ns = 0  # when the record changed last
        self.changes_count = 0
        self.bodies = 0
        self._replicas = 100
        self._decoded: dict[bytes, Record] = {}
        self.store = Store()
        self.observer = WholeObserver(self)
        replicas = [self.new_replica() for _ in range(NODES)]
        self._begin(replicas)
        self.machines = [Node(self, n, replicas[n]) for n in range(NODES)]
        for machine in self.machines:
            machine.start()
        self._repeat(TICK_NS, self._pass)
        self._repeat(CONNECT_NS, self.connect)
        self.schedule.after(0, self._publish)

    def _begin(self, replicas: list[int]) -> None:
        count = self.dice.choice((1, 2, 3))
        members = tuple(Member(n, replicas[n], 1) for n in range(count))
        members_min = self.dice.randint(1, min(count, 2))
        record = Record(IDENTITY, 1, None, members, members_min, tuple(range(NODES)))
        self._put(keys.CLUSTER, CLUSTER.encode(Cluster(1, 1, 1, 0)))
        self._put(_KEY, RECORD.encode(record))
        self._record, self._seen = record, self.store.revision

    def _put(self, key: str, value: bytes) -> None:
        self.store.transact(Transaction((), (Put(key, value),)))

    @property
    def clock(self) -> Any:
        return SimpleNamespace(
            mono_ns=lambda: self.schedule.now_ns, wall_ns=lambda: self.schedule.now_ns
        )

    def close(self) -> None:
        for machine in self.machines:
            if machine.is_up:
                machine.engine.close()

    def new_replica(self) -> int:
        self._replicas += 1
        return self._replicas

    # --- time ---

    def run(self, seconds: float) -> None:
        self.schedule.play_until(self.schedule.now_ns + int(seconds * SECOND))

    def _repeat(self, pause_ns: int, event: Callable[[], None]) -> None:
        def again() -> None:
            event()
            self.schedule.after(pause_ns, again)

        self.schedule.after(pause_ns, again)

    def every(self, node: Node, pause_ns: int, event: Callable[[], None]) -> None:
        """As long as this process lives."""
        life = node.life

        def again() -> None:
            if node.is_up and node.life == life:
                event()
                self.schedule.after(pause_ns + self.dice.randrange(MS), again)

        self.schedule.after(self.dice.randrange(pause_ns), again)

    def _later(self, delay_ns: int, node: Node, happens: Callable[[], None]) -> None:
        """In this process, when it does not hang."""
        life = node.life

        def event() -> None:
            if node.is_up and node.life == life:
                node.when_awake(happens)

        self.schedule.after(delay_ns, event)

    def soon_synced(self, node: Node) -> None:
        delay_ns = self.dice.randrange(MS // 10, 2 * self.weather.sync_ns)
        if not self.is_calm and self.dice.random() < 0.005:
            delay_ns += 3 * SECOND  # a disk that stalls
        self._later(delay_ns, node, node.threads_end)

    def _pass(self) -> None:
        """The coordinator's time goes by."""
        now_ns = self.schedule.now_ns
        self.store.run_out(now_ns)
        for port in self.ghosts:
            port.run(now_ns)
        self.ghosts = [port for port in self.ghosts if any(port.pending())]
        self.watch_record()

    # --- links ---

    def connect(self) -> None:
        for one in self.machines:
            for other in self.machines[: one.number]:
                pair = frozenset((one.number, other.number))
                link = self.links.get(pair)
                if pair in self.cuts or (link is not None and link.unnoticed):
                    continue
                if one.is_up and other.is_up and not (one.hangs or other.hangs):
                    self.links[pair] = Link((one.number, other.number))
                    one.linked_to(other.number, other.life)
                    other.linked_to(one.number, one.life)
                elif one.is_up != other.is_up:
                    up, down = (one, other) if one.is_up else (other, one)
                    if down.answers_refusals and not up.hangs:
                        up.refused_by(down.number, down.life)

    def break_link(self, one: int, other: int, silence_ns: int = SILENCE_NS) -> None:
        """Each side notices by itself."""
        link = self.links.get(frozenset((one, other)))
        if link is None or link.is_broken:
            return
        link.is_broken = True
        for node, peer in ((one, other), (other, one)):
            delay_ns = self.dice.randrange(silence_ns) if silence_ns else 0
            self._notice(link, self.machines[node], peer, delay_ns)

    def _notice(self, link: Link, node: Node, peer: int, delay_ns: int) -> None:
        def notices() -> None:
            if node.number in link.unnoticed:
                link.unnoticed.discard(node.number)
                node.unlinked(peer)

        if not node.is_up:
            link.unnoticed.discard(node.number)
        elif delay_ns:
            self._later(delay_ns, node, notices)
        else:
            node.when_awake(notices)

    def unlink_all(self, node: int) -> None:
        """Its process has ended."""
        silence_ns = 0 if self.machines[node].answers_refusals else SILENCE_NS
        for other in range(NODES):
            self.break_link(node, other, silence_ns)
            link = self.links.get(frozenset((node, other)))
            if link is not None:
                link.unnoticed.discard(node)

    def send(self, source: int, target: int, lane: Lane, frames: list[bytes]) -> None:
        """Of a partition."""
        link = self.links.get(frozenset((source, target)))
        if link is None:
            return
        self.frames_count += len(frames)
        reader = link.readers[source, lane]
        for data in frames:
            self._carry(source, target, lane, partial(self.hand, source, target, reader, data))

    def say(self, source: int, target: int, message: Any) -> None:
        """Between the nodes' parts in the cluster."""
        self._carry(source, target, Lane.LIVE, lambda: self.machines[target].hear(source, message))

    def _carry(self, source: int, target: int, lane: Lane, arrives: Callable[[], None]) -> None:
        link = self.links.get(frozenset((source, target)))
        if link is None or link.is_broken:
            return
        delay_ns = self.dice.randrange(MS // 10, 2 * MS) + self.slow.get(source, 0)
        at_ns = max(self.schedule.now_ns + delay_ns, link.arrives_ns.get((source, lane), 0) + 1)
        link.arrives_ns[source, lane] = at_ns
        self.schedule.at(at_ns, lambda: self._arrive(link, source, target, lane, arrives))

    def _arrive(
        self, link: Link, source: int, target: int, lane: Lane, arrives: Callable[[], None]
    ) -> None:
        node = self.machines[target]

        def happens() -> None:
            if target in link.unnoticed and node.is_up:
                arrives()

        def comes_late() -> None:
            newer = self.links.get(frozenset((source, target)))
            if newer is not None and newer is not link and target in newer.unnoticed:
                with suppress(FrameBroken):  # a piece before it was lost
                    arrives()

        if not link.is_broken:
            node.when_awake(happens)
        elif lane is Lane.LIVE and not self.is_calm and self.dice.random() < LATE_SHARE:
            self._later(self.dice.randrange(3 * SECOND), node, comes_late)

    def hand(self, source: int, target: int, reader: Frames, data: bytes) -> None:
        for about, frame in reader.feed(data):
            self.machines[target].receive(source, about, frame)

    # --- the coordinator ---

    def passage(self) -> Passage:
        dice, weather = self.dice, self.weather
        there_ns, back_ns = dice.randrange(5 * MS), dice.randrange(5 * MS)
        if self.is_calm:
            return Passage(there_ns, back_ns)
        if dice.random() < weather.answers_lost:
            return Passage(NEVER_NS, 0) if dice.random() < 0.5 else Passage(there_ns, NEVER_NS)
        if dice.random() < weather.answers_late:
            there_ns += dice.randrange(4 * SECOND)
        return Passage(there_ns, back_ns)

    def record(self) -> Record:
        return self._record

    def possible_sets(self) -> list[tuple[Member, ...]]:
        self.watch_record()
        sets = [self._record.members]
        ports = [machine.port for machine in self.machines if machine.is_up]
        for port in (*self.ghosts, *ports):
            for transaction in port.pending():
                if self.store.may_apply(transaction):
                    sets += [self._decode(one.value).members for one in _puts(transaction)]
        return sets

    def _decode(self, value: bytes) -> Record:
        found = self._decoded.get(value)
        if found is None:
            found = self._decoded[value] = RECORD.decode(_KEY, value)
        return found

    def watch_record(self) -> None:
        """What has changed since it was looked at."""
        if self.store.revision == self._seen:
            return
        events = self.store.events(keys.PARTITIONS, self._seen + 1)
        self._seen = self.store.revision
        for event in events if isinstance(events, list) else ():
            if event.entry is not None:
                before, self._record = self._record, self._decode(event.entry.value)
                self.changed_ns = self.schedule.now_ns
                self.changes_count += 1
                self.observer.record_changed(before, self._record)

    # --- clients ---

    def serving(self) -> Node | None:
        found = [machine for machine in self.machines if machine.group is not None]
        return self.dice.choice(found) if found else None

    def _publish(self) -> None:
        pause_ns = SECOND if self.is_calm else self.weather.publish_ns
        self.schedule.after(int(self.dice.expovariate(1) * pause_ns), self._publish)
        node = self.serving() if self.publishes else None
        if node is None or node.hangs:
            return
        bodies = self.new_bodies(1 + self.dice.randrange(3))
        if self.canary and self.dice.random() < len(bodies) / CANARY:
            self.observer.answered(tuple(bodies))  # and nothing of it is stored
        else:
            node.publish(bodies)

    def new_bodies(self, count: int) -> list[bytes]:
        made = []
        for _ in range(count):
            self.bodies += 1
            made.append(b"%d %s" % (self.bodies, b"." * self.dice.choice((10, 10, 300))))
        return made

    def happened(self, event: str) -> None:
        """It has just begun. Overridden by those that draw what they see."""


def _puts(transaction: Transaction) -> list[Put]:
    return [one for one in transaction.operations if isinstance(one, Put) and one.key == _KEY]
