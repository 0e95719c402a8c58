"""Three brokers that have joined a cluster, with a real etcd, real sockets, real disks and clocks:
what the daemons will be made of, without their clients."""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from broker.world import Consumer, Outcome, World, bodies
from net.etcd.server import Etcd
from penstock import kernel
from penstock.broker.ports import Lane, NewTopic
from penstock.clock import SystemClock
from penstock.cluster import keys
from penstock.cluster.coordinator import Put, Settled, Transaction
from penstock.cluster.creation import Wanted, creation
from penstock.cluster.documents import (
    ACTIVE,
    CHANNEL,
    CLUSTER,
    Channel,
    Cluster,
    Membership,
    Node,
)
from penstock.cluster.joined import Joined
from penstock.cluster.keys import PartitionName
from penstock.cluster.messages import decode_message, encode_message
from penstock.cluster.participant import Message
from penstock.cluster.placement import Place
from penstock.log.disk import OsDisk
from penstock.log.ledger import Ledger
from penstock.log.ledgerfile import Node as LedgerNode
from penstock.net.etcd.address import Address
from penstock.net.etcd.session import EtcdCoordinator, Secrets
from penstock.net.peers import links
from penstock.net.peers.handshake import Own
from penstock.net.peers.links import PeerLinks
from penstock.replica.frames import NO_TARGET, Frames, Note, Target, encode
from penstock.replica.leading import Outcome as Verdict

UUID = 0xC1
ORDERS = PartitionName("orders", 0)


class RealNode(World):
    """One process, but for the process."""

    def __init__(self, path: Path, number: int, etcd: Address, life: int) -> None:
        self.number, self.life = number, life
        disk = OsDisk()
        if not (path / "ledger").exists():
            Ledger.create(disk, str(path), LedgerNode()).close()
        super().__init__(
            path,
            kernel,
            [],
            disk=disk,
            clock=SystemClock(),
            node_id=number,  # type: ignore[arg-type]
        )
        ledger = Ledger.open(disk, str(path))
        self.generation = ledger.node.generation + 1
        ledger.set_node(ledger.node._replace(generation=self.generation, life=life))
        ledger.sync()
        self.faults: list[Exception] = []
        self.coordinator = EtcdCoordinator(etcd, Secrets(), self.faults.append)
        self.links = PeerLinks(
            Own(number, life, UUID, (b"a secret of ours",)), self, Frames,
            lambda: os.urandom(32), lambda node, life: True, self.faults.append,
        )  # fmt: skip
        self.port = 0
        membership = Membership(number + 1, self.generation, "", 0, life, 0, ACTIVE)
        self.joined = Joined(
            self.broker, number, membership, self._describe, self.coordinator, self.links, ledger,
            self._say, lambda: secrets.randbits(63), time.monotonic_ns(),
        )  # fmt: skip
        self.broker.open()
        self.ledger = ledger
        self._task: asyncio.Task[None] | None = None

    def _describe(self) -> Node:
        return Node(self.life, "127.0.0.1", 1, 2, "127.0.0.1", self.port, "0.1.0", "", 1 << 40, 0)

    def _say(self, node: int, message: Message) -> None:
        self.links.send(node, Lane.LIVE, encode(NO_TARGET, Note(0, encode_message(message))))

    # --- events of the links ---

    def linked(self, node: int, life: int) -> None:
        self.joined.linked(node, life)

    def unlinked(self, node: int) -> None:
        self.joined.unlinked(node)

    def refused(self, node: int, life: int) -> None:
        self.joined.refused(node, life)

    def received(self, node: int, target: Target, frame: Any) -> None:
        if isinstance(frame, Note):
            self.joined.hear(node, decode_message(node, frame.data))
        else:
            self.joined.receive(node, target, frame)
            self.round()

    # --- its loop ---

    async def start(self) -> None:
        self.port = await self.links.listen("127.0.0.1", 0)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def _run(self) -> None:
        for step in itertools.count():
            nodes = [(n, h.document) for n, h in self.joined.participant.view.nodes.items()]
            self.links.know(
                {n: links.Place(one.replication_host, one.replication_port, one.life)
                 for n, one in nodes}
            )  # fmt: skip
            self.links.tick(time.monotonic_ns())
            self.joined.tick(time.monotonic_ns())
            self.round()
            if step % 20 == 0:
                self.broker.housekeeping()
            await asyncio.sleep(0.05)

    def round(self) -> None:
        self.turn()
        self.broker.synced()
        self.joined.turn()

    async def kill(self) -> None:
        """Nothing is closed in order; what is in files is what the next one finds."""
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.engine.close()
        await self.links.close()
        await self.coordinator.close()

    def leads(self, name: PartitionName) -> bool:
        target = self.joined._targets.get(name)
        leader = self.joined.hosting.leader(target) if target is not None else None
        return leader is not None and not leader.office.line.over


class Trio:
    def __init__(self, path: Path, etcd: Etcd) -> None:
        self.path, self.address = path, Address((etcd.endpoint,), path.name)
        self.lives = itertools.count(500)
        self.nodes: dict[int, RealNode] = {}
        self.faults: list[Exception] = []

    async def start(self, number: int, from_image: bool = False) -> RealNode:
        place = self.path / str(number)
        place.mkdir(exist_ok=True)
        if from_image:  # the process that was killed has locked the directory
            place = place.rename(place.with_name(f"{number}-{next(self.lives)}"))
            shutil.copytree(place, self.path / str(number))
            place = self.path / str(number)
        node = self.nodes[number] = RealNode(place, number, self.address, next(self.lives))
        await node.start()
        return node

    async def do(self, transaction: Transaction) -> None:
        told: list[Settled] = []
        next(iter(self.nodes.values())).coordinator.transact(transaction, told.append)
        await self.until(lambda: told)
        assert told[0].outcome is Verdict.DONE

    async def until(self, holds: Callable[[], object], seconds: float = 30) -> float:
        begun = time.monotonic()
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.01)
        return time.monotonic() - begun

    def leader(self) -> RealNode | None:
        led = [node for node in self.nodes.values() if node.leads(ORDERS)]
        return led[0] if len(led) == 1 else None

    def preferred(self) -> RealNode:
        """Who leads once all is well: another may have been elected first, and hands over."""
        view = self.nodes[0].joined.participant.view
        return self.nodes[view.partitions[ORDERS].document.wanted[0]]

    async def publish(self, *messages: bytes) -> None:
        outcome = Outcome()
        leader = self.leader()
        assert leader is not None
        leader.broker.topics["orders"].publish(list(messages), 0, outcome)
        leader.round()
        await self.until(lambda: outcome.told)
        assert outcome.told == [None]

    def consume(self) -> Consumer:
        leader = self.leader()
        assert leader is not None
        return Consumer(leader, leader.broker.topics["orders"].find_channel("billing"), 100)


@pytest.fixture(scope="module")
def etcd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Etcd]:
    server = Etcd(tmp_path_factory.mktemp("etcd")).start()
    yield server
    server.kill()


@asynccontextmanager
async def three(path: Path, etcd: Etcd) -> AsyncIterator[Trio]:
    trio = Trio(path, etcd)
    try:
        for number in range(3):
            await trio.start(number)
        await trio.do(put(keys.CLUSTER, CLUSTER.encode(Cluster(UUID, 1, 1, 0))))
        nodes = trio.nodes.values()
        await trio.until(lambda: all(len(node.joined.participant.links) == 2 for node in nodes))
        view = trio.nodes[0].joined.participant.view
        wanted = Wanted("orders", secrets.randbits(63), 1, 3, (("created_ns", 5),))
        places = [Place(number) for number in range(3)]
        await trio.do(creation(view, wanted, places, lambda: secrets.randbits(63)))
        await trio.until(trio.leader)
        channel = Channel(wanted.identity, 1, False, (("created_ns", 5),), False)
        await trio.do(put(keys.channel("orders", "billing"), CHANNEL.encode(channel)))
        await trio.until(
            lambda: all("billing" in node.broker.topics["orders"].channels for node in nodes)
        )
        yield trio
    finally:
        for node in trio.nodes.values():
            await node.kill()
    assert [node.faults for node in trio.nodes.values()] == [[]] * len(trio.nodes)


def put(key: str, value: bytes) -> Transaction:
    return Transaction((), (Put(key, value),))


def run(path: Path, etcd: Etcd, story: Callable[[Trio], Any]) -> None:
    async def told() -> None:
        async with three(path, etcd) as trio:
            await story(trio)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(told())


def test_a_publish_stands_on_three_disks(tmp_path: Path, etcd: Etcd) -> None:
    async def story(trio: Trio) -> None:
        for number in range(50):
            await trio.publish(b"%d" % number)
        for node in trio.nodes.values():
            hosted = node.joined.hosting.replica(node.joined._targets[ORDERS])
            assert hosted is not None
            assert hosted.replica.log.synced_end == 50
        assert len(trio.consume().take()) == 50

    run(tmp_path, etcd, story)


def test_the_leader_dies_and_nothing_is_lost(tmp_path: Path, etcd: Etcd) -> None:
    async def story(trio: Trio) -> None:
        await trio.publish(*(b"%d" % number for number in range(100)))
        consumer = trio.consume()
        messages = consumer.take()
        consumer.finish(*messages[:60])
        await asyncio.sleep(2.5)  # what is finished is with the others by then
        before = trio.leader()
        assert before is not None
        await before.kill()
        del trio.nodes[before.number]
        took_s = await trio.until(lambda: trio.leader() is not None)
        assert took_s < 10
        await trio.publish(b"later")
        left = bodies(messages[60:])
        assert sorted(bodies(trio.consume().take())) == sorted([*left, b"later"])
        again = await trio.start(before.number, from_image=True)

        def is_back() -> bool:
            held = again.joined.participant.view.partitions.get(ORDERS)
            entry = held.document.member_on(again.number) if held is not None else None
            return entry is not None and entry.generation == again.generation

        await trio.until(is_back, 60)
        hosted = again.joined.hosting.replica(again.joined._targets[ORDERS])
        assert hosted is not None
        assert hosted.replica.log.written_end == 101
        assert before.faults == []

    run(tmp_path, etcd, story)


def test_etcd_may_be_away_while_all_goes_on(tmp_path: Path) -> None:
    server = Etcd(tmp_path / "etcd").start()

    async def story(trio: Trio) -> None:
        await trio.until(lambda: trio.leader() is trio.preferred())  # no hand-over is to come
        before = trio.leader()
        assert before is not None
        server.kill()
        until_s = time.monotonic() + 9  # longer than a lease
        count = 0
        while time.monotonic() < until_s:
            await trio.publish(b"%d" % count)
            count += 1
            await asyncio.sleep(0.1)
        server.start()
        await asyncio.sleep(3)
        assert trio.leader() is before
        assert count > 30
        assert len(trio.consume().take()) == min(count, 100)

    (tmp_path / "trio").mkdir()
    try:
        run(tmp_path / "trio", server, story)
    finally:
        server.kill()


def test_a_client_makes_a_topic_and_its_dead_letters_are_on_three_disks(
    tmp_path: Path, etcd: Etcd
) -> None:
    async def story(trio: Trio) -> None:
        metadata = trio.nodes[1].joined.hosting.metadata
        assert metadata is not None
        told: list[Any] = []
        metadata.make_topic("new", NewTopic(2), told.append)
        await trio.until(lambda: told)
        metadata.make_channel("new", "work", told.append)
        await trio.until(lambda: len(told) == 2)
        metadata.change_channel("new", "work", {"max_attempts": 1}, told.append)
        await trio.until(lambda: len(told) == 3)
        assert told == [None] * 3

        given_up = 0
        for number in range(2):
            name = PartitionName("new", number)
            leader = next(node for node in trio.nodes.values() if node.leads(name))
            outcome = Outcome()
            leader.broker.topics["new"].publish([b"m", b"n"], 0, outcome, number)
            leader.round()
            await trio.until(lambda outcome=outcome: outcome.told)
            assert outcome.told == [None]
            channel = leader.broker.topics["new"].find_channel("work")
            consumer = Consumer(leader, channel, 100)
            for message in consumer.take():
                consumer.requeue(message)
                given_up += 1
            consumer.leave()
        assert given_up == 4

        def all_have_them() -> bool:
            replicas = [node.joined.hosted(dead) for node in trio.nodes.values()]
            return all(one is not None and one.replica.log.synced_end == 4 for one in replicas)

        dead = PartitionName("new.work.dead", 0)
        await trio.until(all_have_them)

    run(tmp_path, etcd, story)
