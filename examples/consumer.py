"""Consume by iterating, and end when nothing came for a second.

python examples/consumer.py 127.0.0.1:4150 orders billing
"""

from __future__ import annotations

import asyncio
import sys

from penstock.client import Consumer


async def main(
    address: str = "127.0.0.1:4150", topic: str = "demo", channel: str = "example"
) -> None:
    count = 0
    async with Consumer(topic, channel, address, max_in_flight=100) as consumer:
        while True:
            try:
                message = await asyncio.wait_for(anext(consumer), timeout=1)
            except TimeoutError:
                break
            count += 1
            if count <= 3:
                print(message.published.isoformat(), message.attempts, message.body.decode())
            await message.fin()
    print("consumed", count)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
