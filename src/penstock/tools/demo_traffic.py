"""The demo's clients: a producer and consumers, and what they measure."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field

from penstock.client import Consumer, Producer

BATCHES_PER_SECOND = 50
RDY = 500
LATENCIES_MAX = 100_000  # per second of display; more say nothing new


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


async def produce(address: str, topic: str, rate: int, body_bytes: int, meter: Meter) -> None:
    """Publish `rate` messages a second in small batches; each batch waits for its OK."""
    batch_count = max(1, rate // BATCHES_PER_SECOND)
    loop = asyncio.get_running_loop()
    next_s, number = loop.time(), 0
    async with Producer(address, client_id="producer") as producer:
        while True:
            bodies = []
            for _ in range(batch_count):
                number += 1
                head = json.dumps({"number": number, "made_at": time.time()})[:-1]
                bodies.append(f'{head}, "pad": "'.encode().ljust(body_bytes - 2, b".") + b'"}')
            sent_s = loop.time()
            await producer.mpub(topic, bodies)
            meter.add(batch_count, (loop.time() - sent_s) * 1000)
            next_s = max(next_s + batch_count / rate, loop.time() - 1.0)
            await asyncio.sleep(next_s - loop.time())


async def consume(address: str, topic: str, channel: str, meter: Meter) -> None:
    async with Consumer(
        topic, channel, address, client_id=f"{channel}-consumer", max_in_flight=RDY
    ) as consumer:
        async for message in consumer:
            message.fin()
            meter.add(1, (time.time_ns() - message.timestamp_ns) / 1e6)
