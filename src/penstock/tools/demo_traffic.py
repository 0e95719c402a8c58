"""The demo's clients: a producer and consumers that speak V2 over TCP, and what they measure."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from penstock.wire import frames
from penstock.wire.frames import FrameType

READ_BYTES = 256 * 1024
BATCHES_PER_SECOND = 50
RDY = 500
LATENCIES_MAX = 100_000  # per second of display; more say nothing new


class DemoFailed(Exception):
    """The daemon answered something that a demo cannot go on with."""


@dataclass
class Meter:
    """Counts and delays since the last look, and in total."""

    name: str
    total: int = 0
    recent: int = 0
    delays_ms: list[float] = field(default_factory=list)

    def add(self, count: int, delay_ms: float) -> None:
        self.total += count
        self.recent += count
        if len(self.delays_ms) < LATENCIES_MAX:
            self.delays_ms.append(delay_ms)

    def take(self) -> tuple[int, float, float]:
        """(count, median delay, 99th percentile) since the last call."""
        count, delays = self.recent, sorted(self.delays_ms)
        self.recent, self.delays_ms = 0, []
        if not delays:
            return count, 0.0, 0.0
        high = delays[len(delays) * 99 // 100]
        return count, delays[len(delays) // 2], high


class Client:
    """One connection: magic, IDENTIFY, and whole frames out of the stream."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._buffer = bytearray()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def connect(self, host: str, port: int) -> None:
        self._reader, self._writer = await asyncio.open_connection(host, port)
        body = json.dumps({"client_id": self._name, "hostname": self._name, "user_agent": "demo"})
        self.write(frames.MAGIC_V2 + b"IDENTIFY\n" + frames.with_size(body.encode()))
        await self.expect_ok()

    def write(self, data: bytes) -> None:
        if self._writer is None:
            raise DemoFailed(f"{self._name} is not connected")
        self._writer.write(data)

    async def drain(self) -> None:
        if self._writer is not None:
            await self._writer.drain()

    async def read(self) -> list[frames.Frame]:
        """At least one frame; heartbeats are answered and left out, errors raised."""
        if self._reader is None:
            raise DemoFailed(f"{self._name} is not connected")
        while True:
            data = await self._reader.read(READ_BYTES)
            if not data:
                raise ConnectionResetError(f"{self._name}: nsqd closed the connection")
            self._buffer += data
            found = []
            for frame in frames.take_frames(self._buffer):
                if frame.type == FrameType.ERROR:
                    raise DemoFailed(f"{self._name}: nsqd says {frame.data.decode()}")
                if frame.data == frames.HEARTBEAT:
                    self.write(b"NOP\n")
                else:
                    found.append(frame)
            if found:
                return found

    async def expect_ok(self) -> None:
        for frame in await self.read():
            if frame.data != frames.OK:
                raise DemoFailed(f"{self._name}: OK was expected, not {frame.data!r}")

    async def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            try:
                await self._writer.wait_closed()
            except ConnectionError:
                return  # it was closed from the other side first


async def produce(
    host: str, port: int, topic: str, rate: int, body_bytes: int, meter: Meter
) -> None:
    """Publish `rate` messages a second in small batches; each batch waits for its OK."""
    client = Client("producer")
    await client.connect(host, port)
    try:
        batch_count = max(1, rate // BATCHES_PER_SECOND)
        loop = asyncio.get_running_loop()
        next_s = loop.time()
        number = 0
        while True:
            bodies = []
            for _ in range(batch_count):
                number += 1
                head = json.dumps({"number": number, "made_at": time.time()})[:-1]
                bodies.append(f'{head}, "pad": "'.encode().ljust(body_bytes - 2, b".") + b'"}')
            sent_s = loop.time()
            client.write(
                f"MPUB {topic}\n".encode() + frames.with_size(frames.encode_bodies(bodies))
            )
            await client.expect_ok()
            meter.add(batch_count, (loop.time() - sent_s) * 1000)
            next_s = max(next_s + batch_count / rate, loop.time() - 1.0)
            await asyncio.sleep(next_s - loop.time())
    finally:
        await client.close()


async def consume(host: str, port: int, topic: str, channel: str, meter: Meter) -> None:
    client = Client(f"{channel}-consumer")
    await client.connect(host, port)
    try:
        client.write(f"SUB {topic} {channel}\n".encode())
        await client.expect_ok()
        client.write(b"RDY %d\n" % RDY)
        while True:
            received = await client.read()
            now_ns = time.time_ns()
            finished = []
            for frame in received:
                message = frames.decode_message(frame.data)
                finished.append(b"FIN %b\n" % message.id)
                meter.add(1, (now_ns - message.timestamp_ns) / 1e6)
            client.write(b"".join(finished))
            await client.drain()
    finally:
        await client.close()
