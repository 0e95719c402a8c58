"""Thousands of clients and topics, and clients that misbehave: the daemon serves, and stays small.

Memory is what the daemon itself holds (anonymous pages), not the libraries that it maps.
"""

import asyncio
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .daemon import Daemon
from .lookupd import eventually
from .v2client import (
    HEARTBEAT,
    MESSAGE,
    Frame,
    V2Client,
    parse_message,
    pub_bytes,
    take_frame,
)  # fmt: skip

KIB = 1024
MIB = 1024 * KIB
PAIRS = 1_000  # a topic with a publisher and a consumer each: 2,000 connections
EACH = 20
BODY_BYTES = 100
CONNECTION_BYTES_MAX = 40 * KIB
TOPIC_BYTES_MAX = 20 * KIB
TOPIC_DISK_BYTES_MAX = 64 * KIB
DESCRIPTORS_MIN = 3 * PAIRS
SETTLE_S = 0.3
END_S_MAX = 200


@pytest.fixture(scope="module", autouse=True)
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(DESCRIPTORS_MIN, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(tmp_path / "data") as daemon:
        with daemon.client() as warm:  # the first of everything costs once
            warm.pub("warm", b"x")
            warm.sub("warm", "c")
            warm.rdy(1)
            warm.fin(warm.messages(1)[0].id)
        yield daemon


def memory_bytes(daemon: Daemon) -> int:
    """When it has come to rest."""
    time.sleep(SETTLE_S)
    text = Path(f"/proc/{daemon.pid}/status").read_text("ascii")
    line = next(line for line in text.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * KIB


def disk_bytes(path: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in path.rglob("*"))


def connect(daemon: Daemon, count: int, on_exit: ExitStack) -> list[V2Client]:
    return [on_exit.enter_context(daemon.client()) for _ in range(count)]


# --- many ---


def test_an_idle_connection_costs_little(daemon: Daemon) -> None:
    with ExitStack() as on_exit:
        before = memory_bytes(daemon)
        clients = connect(daemon, 2 * PAIRS, on_exit)
        for client in clients:
            client.command("NOP")
        eventually(lambda: is_accepted(daemon), END_S_MAX)
        each = (memory_bytes(daemon) - before) / len(clients)
        assert each <= CONNECTION_BYTES_MAX, f"{each / KIB:.1f} KiB per idle connection"


def is_accepted(daemon: Daemon) -> bool:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir())) > 2 * PAIRS


async def frames(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, buffer: bytearray
) -> list[Frame]:
    """What has come, but for heartbeats, which are answered: on a loaded machine it takes long."""
    data = await reader.read(1 << 16)
    assert data, "the daemon hung up"
    buffer += data
    found = []
    while (frame := take_frame(buffer)) is not None:
        if frame.data == HEARTBEAT:
            writer.write(b"NOP\n")
        else:
            found.append(frame)
    return found


async def publish(port: int, topic: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"  V2")
    body = bytes(BODY_BYTES)
    writer.write(b"".join(pub_bytes(topic, b"%d" % n + body) for n in range(EACH)))
    buffer = bytearray()
    answered = 0
    while answered < EACH:
        for frame in await frames(reader, writer, buffer):
            assert frame.data == b"OK"
            answered += 1
    writer.close()
    await writer.wait_closed()


async def consume(port: int, topic: str, subscribed: asyncio.Semaphore) -> list[bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"  V2SUB %s c\nRDY 5\n" % topic.encode())
    buffer = bytearray()
    bodies: list[bytes] = []
    while len(bodies) < EACH:
        for frame in await frames(reader, writer, buffer):
            if frame.kind == MESSAGE:
                message = parse_message(frame.data)
                writer.write(b"FIN %s\n" % message.id)
                bodies.append(message.body)
            else:
                assert frame.data == b"OK"
                subscribed.release()
    writer.close()
    await writer.wait_closed()
    return bodies


async def converse(port: int) -> list[list[bytes]]:
    topics = [f"pair{number}" for number in range(PAIRS)]
    subscribed = asyncio.Semaphore(0)
    consumers = [asyncio.create_task(consume(port, topic, subscribed)) for topic in topics]
    for _ in topics:  # all 2,000 are there at once
        await subscribed.acquire()
    await asyncio.gather(*(publish(port, topic) for topic in topics))
    return await asyncio.gather(*consumers)


def test_two_thousand_clients_on_a_thousand_topics(daemon: Daemon) -> None:
    topics_path = daemon.data_path / "topics"
    before, before_disk = memory_bytes(daemon), disk_bytes(topics_path)
    found = asyncio.run(asyncio.wait_for(converse(daemon.tcp_port), END_S_MAX))
    body = bytes(BODY_BYTES)
    expected = sorted(b"%d" % number + body for number in range(EACH))
    assert all(sorted(bodies) == expected for bodies in found)
    eventually(lambda: nothing_left(daemon), END_S_MAX)
    grown = memory_bytes(daemon) - before
    budget = PAIRS * (2 * CONNECTION_BYTES_MAX + TOPIC_BYTES_MAX)
    assert grown <= budget, f"{grown / MIB:.1f} MiB for all of it, {budget / MIB:.1f} allowed"
    each_disk = (disk_bytes(topics_path) - before_disk) / PAIRS
    assert each_disk <= TOPIC_DISK_BYTES_MAX, f"{each_disk / KIB:.1f} KiB of disk per topic"


def nothing_left(daemon: Daemon) -> bool:
    return all(
        channel["depth"] == channel["in_flight_count"] == 0
        for topic in daemon.stats()["topics"]
        for channel in topic["channels"]
    )
