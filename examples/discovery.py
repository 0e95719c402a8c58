"""Let nsqlookupd say where the messages are: publish to one nsqd, consume from all that have the
topic. Nodes that come later are found within `lookup_interval_s`. `make run` starts no nsqlookupd.

python examples/discovery.py 127.0.0.1:4161 orders billing
"""

from __future__ import annotations

import asyncio
import sys

from penstock.client import Consumer, Producer


async def main(
    lookupd: str = "127.0.0.1:4161", topic: str = "demo", channel: str = "example"
) -> None:
    async with Producer(lookupds=lookupd) as producer:
        await producer.pub(topic, b"one")
        print("published to", producer.address)
    async with Consumer(topic, channel, lookupds=lookupd, lookup_interval_s=1) as consumer:
        async for message in consumer:
            print("from", message.address, message.body.decode())
            await message.fin()
            break


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
