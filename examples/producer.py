"""Publish: one at a time, together, later, and many with a bounded window.

python examples/producer.py 127.0.0.1:4150 orders
"""

from __future__ import annotations

import asyncio
import sys

from penstock.client import Producer


async def main(address: str = "127.0.0.1:4150", topic: str = "orders") -> None:
    async with Producer(address, retry=True) as producer:
        await producer.pub(topic, b"one")
        await producer.mpub(topic, [b"two", b"three"])  # all of them or none
        await producer.dpub(topic, b"a little later", delay_s=0.5)
        await asyncio.gather(*(producer.pub(topic, b"together %d" % n) for n in range(100)))
        count = await producer.pub_many(topic, (b"many %d" % n for n in range(1000)))
        print("published", 104 + count)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
