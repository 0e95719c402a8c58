"""Publish with a trace id. `penstock trace --trace-id 42` then tells what happened to the message.

python examples/traced.py 127.0.0.1:4150 orders 42
"""

from __future__ import annotations

import asyncio
import sys

from penstock.client import Producer


async def main(address: str = "127.0.0.1:4150", topic: str = "orders", trace_id: int = 42) -> None:
    async with Producer(address) as producer:
        one = await producer.pub(topic, b"one", trace_id=trace_id)
        print(f"message {one.message_id} at offset {one.offset}")
        many = await producer.mpub(topic, [b"two", b"three"], trace_id=trace_id)
        print(f"2 more from offset {many.offset} on")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:3], *map(int, sys.argv[3:])))
