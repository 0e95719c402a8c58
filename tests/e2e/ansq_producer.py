"""Publishes with ansq, each way it has: `ansq_producer.py PORT TOPIC`.

The same messages and the same output as `pynsq_producer.py`.
"""

import asyncio
import json
import sys

import ansq

DELAY_MS = 400
WINDOW = 100


async def publish(port: str, topic: str) -> None:
    writer = await ansq.create_writer(nsqd_tcp_addresses=[f"127.0.0.1:{port}"])
    answers = [
        await writer.pub(topic, b"one"),
        await writer.mpub(topic, b"two", b"three", b"four"),
        await writer.dpub(topic, b"later", DELAY_MS),
    ]
    window = (writer.pub(topic, b"window %d" % number) for number in range(WINDOW))
    answers += await asyncio.gather(*window)
    print(json.dumps([answer.body.decode() for answer in answers]))
    await writer.close()


if __name__ == "__main__":
    asyncio.run(publish(sys.argv[1], sys.argv[2]))
