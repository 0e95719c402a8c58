"""A topic with four partitions: a key has one of them, and a consumer may read one or all.

python examples/partitions.py 127.0.0.1:4151 127.0.0.1:4150 devices
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from urllib.parse import urlencode

from penstock.client import Consumer, Producer

DEVICES, VALUES = ("door", "lamp", "meter"), 3
LAST = 3  # the number of the last partition


def post(http: str, path: str, **query: str) -> None:
    request = urllib.request.Request(f"http://{http}{path}?{urlencode(query)}", method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


async def consume(consumer: Consumer, count: int) -> list[str]:
    found: list[str] = []
    async with consumer:
        async for message in consumer:
            found.append(message.body.decode())
            await message.fin()
            if len(found) == count:
                break
    return found


async def main(
    http: str = "127.0.0.1:4151", tcp: str = "127.0.0.1:4150", topic: str = "devices"
) -> None:
    post(http, "/topic/create", topic=topic, partition_num="4")
    for channel in ("store", "alarms"):
        post(http, "/channel/create", topic=topic, channel=channel)
    async with Producer(tcp) as producer:
        for value in range(1, VALUES + 1):
            for device in DEVICES:
                await producer.pub(topic, f"{device} {value}".encode(), key=device)
        await producer.pub(topic, b"smoke", partition=LAST)
    bodies = await consume(Consumer(topic, "store", tcp), len(DEVICES) * VALUES + 1)
    for device in DEVICES:
        print(device, *(body.split()[1] for body in bodies if body.startswith(device)))
    alarms = Consumer(topic, "alarms", tcp, partition=LAST)
    async with alarms:
        async for message in alarms:
            await message.fin()
            if message.body == b"smoke":
                print(f"smoke, from partition {LAST}")
                break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
