"""One consumer of two topics, with a handler for each, and middleware around both.

python examples/topics.py 127.0.0.1:4150 shop
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from penstock.client import Consumer, Message, Next, Producer


async def on_order(message: Message) -> None:
    print("order", message.json()["number"])


async def on_refund(message: Message) -> None:
    print("refund of", message.json()["sum"])


async def main(address: str = "127.0.0.1:4150", prefix: str = "shop") -> None:
    orders, refunds = f"{prefix}.orders", f"{prefix}.refunds"
    took_s: list[float] = []

    async def timed(message: Message, call_next: Next[Message]) -> Any:
        began_s = time.monotonic()
        await call_next(message)
        took_s.append(time.monotonic() - began_s)
        if len(took_s) == 2:
            consumer.stop()

    async with Producer(address) as producer:
        await producer.pub(orders, {"number": 17})
        await producer.pub(refunds, {"sum": 9.5})
    async with Consumer([orders, refunds], "books", address, middleware=[timed]) as consumer:
        await consumer.run({orders: on_order, refunds: on_refund}, concurrency=4)
    print(f"{len(took_s)} messages, none slower than a second: {max(took_s) < 1}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
