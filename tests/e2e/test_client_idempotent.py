"""IdempotentProducer against a real nsqd: answers that are lost, kill -9, and a log in which every
message stands once and in order."""

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from cases import fresh_seed
from client.server import Server
from penstock.client import IdempotentProducer
from penstock.kernel import decode_bodies
from penstock.log.disk import OsDisk
from penstock.log.partition import PartitionLog

from .daemon import Daemon


class Cutter(Server):
    """`port` is looked up for each connection, so nsqd may come back on another one."""

    def __init__(self, daemon: Any, rng: random.Random, share: float) -> None:
        super().__init__()
        self._daemon = daemon
        self._rng = rng
        self.share = share  # of the answers that are lost
        self.lost = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, out = await asyncio.open_connection("127.0.0.1", self._daemon.http_port)
        except OSError:
            return
        forth = asyncio.ensure_future(self._forth(reader, out))
        try:
            while data := await back.read(1 << 16):
                if self._rng.random() < self.share:
                    self.lost += 1
                    break
                writer.write(data)
                await writer.drain()
        except OSError:
            return  # either side is gone: so is the other
        finally:
            forth.cancel()
            out.transport.abort()

    async def _forth(self, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                out.write(data)
                await out.drain()
            out.transport.abort()
        except OSError:
            out.transport.abort()


PATIENCE_S = 100.0
KILLS = 4
TOPICS = ["a", "b", "c"]


async def elsewhere(work: object) -> None:
    """Run `work` in a thread: this loop serves the proxy meanwhile."""
    await asyncio.get_running_loop().run_in_executor(None, work)  # type: ignore[arg-type]


def in_the_log(data_path: Path, topic: str) -> list[bytes]:
    log = PartitionLog.open(OsDisk(), data_path / "topics" / topic / "0")
    found = [body for _, batch in log.batches(0) for body in decode_bodies(batch, 0)]
    log.close()
    return found


@pytest.mark.parametrize("durability", ["disk", pytest.param("os", marks=pytest.mark.long)])
def test_answers_are_lost_and_the_daemon_is_killed(tmp_path: Path, durability: str) -> None:
    seed = fresh_seed()
    print(f"PENSTOCK_TEST_SEED={seed}")  # shown when it fails
    rng = random.Random(f"{seed} {durability}")
    sent: dict[str, list[bytes]] = {topic: [] for topic in TOPICS}

    async def publish(producer: IdempotentProducer, topic: str, quit: asyncio.Event) -> None:
        rng_mine = random.Random(rng.random())
        while not quit.is_set():
            futures = []
            for _ in range(rng_mine.randint(1, 40)):
                count = rng_mine.choice([1, 1, 1, 3])
                start = len(sent[topic])
                bodies = [b"%d" % (start + n) for n in range(count)]
                sent[topic] += bodies
                one = count == 1
                future = producer.pub(topic, bodies[0]) if one else producer.mpub(topic, bodies)
                futures.append(future)
            await asyncio.gather(*futures)

    async def story(daemon: Daemon) -> None:
        quit = asyncio.Event()
        async with (
            asyncio.timeout(PATIENCE_S),
            Cutter(daemon, rng, 0.3) as proxy,
            IdempotentProducer(
                proxy.address,
                publish_timeout_s=PATIENCE_S,
                retry_delay_s=0.01,
                retry_delay_max_s=0.1,
                connect_required=False,
            ) as producer,
        ):
            tasks = [asyncio.create_task(publish(producer, topic, quit)) for topic in TOPICS]
            for _ in range(KILLS):
                await asyncio.sleep(rng.uniform(0.1, 0.4))
                await elsewhere(daemon.kill)
                await elsewhere(daemon.start)
            while not (
                proxy.lost and producer.counts.repeated and min(map(len, sent.values())) > 10
            ):
                await asyncio.sleep(0.05)
            quit.set()
            await asyncio.gather(*tasks)
            assert proxy.lost > 0
            assert producer.counts.repeated > 0
            assert producer.counts.stored == sum(map(len, sent.values()))
            assert producer.pending_count == producer.pending_bytes == 0

    with Daemon(tmp_path / "data", f"--durability={durability}") as daemon:
        asyncio.run(story(daemon))
        assert daemon.stop() == 0
    for topic in TOPICS:
        assert in_the_log(tmp_path / "data", topic) == sent[topic]
        assert len(sent[topic]) > 10
