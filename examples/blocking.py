"""Publish and consume without an event loop.

python examples/blocking.py 127.0.0.1:4150 orders billing
"""

from __future__ import annotations

import sys

from penstock.client import BlockingConsumer, BlockingProducer


def main(address: str = "127.0.0.1:4150", topic: str = "orders", channel: str = "billing") -> None:
    with BlockingProducer(address) as producer:
        producer.pub(topic, b"one")
        producer.mpub(topic, [b"two", b"three"])
    with BlockingConsumer(topic, channel, address) as consumer:
        while (message := consumer.get(timeout_s=1)) is not None:
            print(message.body.decode())
            message.fin()


if __name__ == "__main__":
    main(*sys.argv[1:])
