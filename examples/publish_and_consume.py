"""Publish ten messages over HTTP and read them back, against the demo.

make run                                             # in one terminal
.venv/bin/python examples/publish_and_consume.py     # in another
"""

from __future__ import annotations

import argparse
import asyncio
from urllib.request import Request, urlopen

from penstock.client import Consumer

COUNT = 10


def publish(http: str, topic: str) -> None:
    """One POST for all: each line of the body is a message."""
    lines = "\n".join(f"message {number}" for number in range(COUNT)).encode()
    with urlopen(Request(f"http://{http}/mpub?topic={topic}", data=lines)) as answer:
        print("published:", answer.read().decode())


async def consume(tcp: str, topic: str) -> None:
    """Read until all have come, and finish each."""
    left = COUNT
    async with Consumer(topic, "example", tcp, max_in_flight=COUNT) as consumer:
        async for message in consumer:
            print("received:", message.body.decode(), "id", message.id)
            await message.fin()
            left -= 1
            if left == 0:
                break


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tcp", default="127.0.0.1:4150")
    options.add_argument("--http", default="127.0.0.1:4151")
    options.add_argument("--topic", default="examples")
    given = options.parse_args()
    publish(given.http, given.topic)
    asyncio.run(consume(given.tcp, given.topic))
