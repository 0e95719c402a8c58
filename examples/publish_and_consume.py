"""Publish ten messages with pynsq and read them back: an unchanged NSQ client against Penstock.

make run                                             # in one terminal
.venv/bin/python examples/publish_and_consume.py     # in another
"""

from __future__ import annotations

import argparse
from urllib.request import Request, urlopen

import nsq
from tornado.ioloop import IOLoop

COUNT = 10


def publish(http: str, topic: str) -> None:
    """One POST for all: each line of the body is a message."""
    lines = "\n".join(f"message {number}" for number in range(COUNT)).encode()
    with urlopen(Request(f"http://{http}/mpub?topic={topic}", data=lines)) as answer:
        print("published:", answer.read().decode())


def consume(tcp: str, topic: str) -> None:
    """Read until all have come. Returning True finishes a message; False would requeue it."""
    left = COUNT

    def handler(message: nsq.Message) -> bool:
        nonlocal left
        print("received:", message.body.decode(), "id", message.id.decode())
        left -= 1
        if left == 0:
            # The answer to this message is sent before the loop stops.
            IOLoop.current().call_later(0.1, IOLoop.current().stop)
        return True

    nsq.Reader(
        topic=topic,
        channel="example",
        message_handler=handler,
        nsqd_tcp_addresses=[tcp],
        max_in_flight=COUNT,
    )
    IOLoop.current().start()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tcp", default="127.0.0.1:4150")
    options.add_argument("--http", default="127.0.0.1:4151")
    options.add_argument("--topic", default="examples")
    given = options.parse_args()
    publish(given.http, given.topic)
    consume(given.tcp, given.topic)


if __name__ == "__main__":
    main()
