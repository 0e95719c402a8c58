"""Publish each message once, whatever breaks on the way.

python examples/idempotent.py 127.0.0.1:4151 orders /var/lib/app/epoch
"""

from __future__ import annotations

import asyncio
import sys

from penstock.client import EpochFile, IdempotentProducer, PublishRefused, PublishUncertain

PRODUCER_ID = 17  # of this application; without one, each run is a producer of its own


async def main(
    address: str = "127.0.0.1:4151", topic: str = "once", epoch_path: str = "epoch"
) -> None:
    async with IdempotentProducer(
        address, producer_id=PRODUCER_ID, producer_epoch=EpochFile(epoch_path)
    ) as producer:
        await producer.pub(topic, b"one")
        await producer.mpub(topic, [b"two", b"three"])  # all of them or none
        count = await producer.pub_many(topic, (b"many %d" % n for n in range(1000)))
        try:
            await producer.pub(topic, bytes(2 << 20))
        except PublishRefused as error:
            print("refused:", error.code)  # it is not stored
        except PublishUncertain as error:
            print("not known:", error)  # publishing it again may store it twice
        print("epoch", producer.producer_epoch, "published", 3 + count)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
