"""Clients as people have them, before a cluster whose leaders change: none has to know of it."""

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from e2e.lookupd import Lookupd
from e2e.test_clients import END_S_MAX, LIBRARIES, PUBLISHED, Child
from e2e.v2client import V2Client
from penstock.client import Consumer, IdempotentProducer

from .processes import Cluster
from .traffic import Publisher


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster
        assert cluster.faults() == []


@pytest.fixture(scope="module")
def lookupd(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lookupd]:
    flag = f"--cluster=etcd://{cluster.etcd.endpoint}/stories"
    with Lookupd(tmp_path_factory.mktemp("lookupd"), flag) as lookupd:
        yield lookupd


class OwnConsumer(threading.Thread):
    """Penstock's client, for as long as nobody says that it is over."""

    def __init__(self, topic: str, lookupd: Lookupd) -> None:
        super().__init__(daemon=True)
        self.topic, self.lookupd = topic, f"127.0.0.1:{lookupd.http_port}"
        self.got: set[str] = set()
        self.over = threading.Event()

    def run(self) -> None:
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        task = asyncio.create_task(self._take())
        while not self.over.is_set() and not task.done():
            await asyncio.sleep(0.1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def _take(self) -> None:
        async with Consumer(self.topic, "own", lookupds=self.lookupd, max_in_flight=20) as consumer:
            async for message in consumer:
                self.got.add(message.body.decode())
                await message.fin()


def test_consumers_of_all_libraries_get_what_was_acknowledged(
    cluster: Cluster, lookupd: Lookupd, tmp_path: Path
) -> None:
    cluster.make("/topic/create?topic=met&partition_num=3")
    for channel in (*LIBRARIES, "own"):
        cluster.make(f"/channel/create?topic=met&channel={channel}")
    publishers = [Publisher(each, "met") for each in cluster.nodes]
    own = OwnConsumer("met", lookupd)
    own.start()
    children = [_consuming(library, lookupd, tmp_path) for library in LIBRARIES]
    try:
        cluster.until(lambda: _all_consume(cluster, (*LIBRARIES, "own")), END_S_MAX)
        for publisher in publishers:
            publisher.start()
        time.sleep(3)
        leader = cluster.leader("met")
        leader.kill()
        cluster.until(lambda: cluster.leader("met") is not leader)
        time.sleep(3)
        leader.start()
        time.sleep(1)
        cluster.until(lambda: sum(len(one.acked) for one in publishers) > 100)
        for publisher in publishers:
            publisher.over.set()
        for publisher in publishers:
            publisher.join(30)
        acked = {body.decode() for one in publishers for body in one.acked}
        for library in LIBRARIES:
            _wait_for(
                cluster, tmp_path, library, acked, lambda name=library: _came(tmp_path / name)
            )
        _wait_for(cluster, tmp_path, "own", acked, lambda: own.got)
    finally:
        own.over.set()
        for child in children:
            child.__exit__()
        own.join(10)


def _wait_for(
    cluster: Cluster, tmp_path: Path, channel: str, acked: set[str], came: Callable[[], set[str]]
) -> None:
    ends_s = time.monotonic() + END_S_MAX
    while missing := acked - came():
        if time.monotonic() > ends_s:
            stats = [node.ask(f"/stats?format=json&channel={channel}") for node in cluster.nodes]
            rows = [topic["channels"] for each in stats for topic in each["topics"]]
            print(*(path.read_text()[-4000:] for path in tmp_path.glob(f"{channel}.err")))
            pytest.fail(f"{channel} did not get {sorted(missing)[:20]}: {rows}")
        time.sleep(0.05)


def _all_consume(cluster: Cluster, channels: Sequence[str]) -> bool:
    """At every node: ansq ends when one of them is away as it begins."""
    for node in cluster.nodes:
        (topic,) = node.ask("/stats?format=json&topic=met")["topics"]
        counts = {row["channel_name"]: row["client_count"] for row in topic["channels"]}
        if not all(counts[channel] for channel in channels):
            return False
    return True


def _consuming(library: str, lookupd: Lookupd, path: Path) -> Child:
    options = {
        "topic": "met", "channel": library, "count": 1_000_000, "max_in_flight": 20, "port": 0,
        "lookupd": f"http://127.0.0.1:{lookupd.http_port}",
    }  # fmt: skip
    with (path / library).open("w") as out, (path / f"{library}.err").open("w") as err:
        return Child(f"{library}_consumer", json.dumps(options), out=out, err=err)


def _came(path: Path) -> set[str]:
    lines = path.read_text().splitlines()
    return {json.loads(line)["body"] for line in lines if line.endswith("}")}


def test_an_idempotent_producer_outlives_the_leaders(cluster: Cluster) -> None:
    """It knows one node at first hand, and stores each message once, in order."""
    cluster.make("/topic/create?topic=numbered&replicator=3")
    cluster.make("/channel/create?topic=numbered&channel=all")
    cluster.until(lambda: cluster.is_whole("numbered"))
    killed = threading.Thread(target=_kill_leaders, args=(cluster, "numbered"))

    async def publish() -> None:
        addresses = [f"127.0.0.1:{node.ports[1]}" for node in cluster.nodes]
        async with IdempotentProducer(addresses) as producer:
            killed.start()
            number = 0
            while killed.is_alive():
                await asyncio.gather(
                    *(producer.pub("numbered", b"%d" % (number + one)) for one in range(20))
                )
                number += 20
            assert producer.counts.stored == number

    asyncio.run(publish())
    killed.join()
    node = cluster.leader("numbered")
    with V2Client(node.ports[0], host=node.host) as client:
        client.sub("numbered", "all")
        client.rdy(2500)  # none is finished: the leadership may move to the node that prefers it
        bodies = [message.body for message in iter(lambda: client.message(1.0), None)]
    assert bodies == [b"%d" % number for number in range(len(bodies))]
    assert len(bodies) > 100


def _kill_leaders(cluster: Cluster, topic: str) -> None:
    for _ in range(2):
        time.sleep(0.5)
        leader = cluster.leader(topic)
        leader.kill()
        time.sleep(0.5)
        leader.start()
        cluster.until(lambda: cluster.is_whole(topic))


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_producer_need_not_know_who_leads(cluster: Cluster, library: str) -> None:
    topic = f"made-by-{library}"
    cluster.make(f"/topic/create?topic={topic}")
    cluster.make(f"/channel/create?topic={topic}&channel=work")
    other = next(node for node in cluster.nodes if node is not cluster.leader(topic))
    with Child(f"{library}_producer", str(other.ports[0]), topic) as producer:
        assert producer.lines()[0] == ["OK"] * 103
    rows = cluster.leader(topic).ask(f"/stats?format=json&topic={topic}")["topics"]
    assert rows[0]["message_count"] == len(PUBLISHED)
