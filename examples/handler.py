"""Consume with a handler: its exceptions give messages back, to come again later. SIGTERM or
Ctrl-C ends it in order: what is in hand is finished, the rest goes to other consumers.

python examples/handler.py 127.0.0.1:4150 orders billing
"""

from __future__ import annotations

import asyncio
import signal
import sys

from penstock.client import Consumer, Message, Requeue


async def handle(message: Message) -> None:
    if message.body == b"not now" and message.attempts == 1:
        raise Requeue(0.1, backoff=False)  # nobody's fault: no back-off
    if message.body == b"poison":
        raise ValueError("nobody can read this")  # given back, and given up at the second attempt
    if message.body == b"gone":
        raise KeyError("what it is about")  # see on_error
    print("done:", message.body.decode(), "attempt", message.attempts)


async def bury(message: Message) -> None:
    print("given up:", message.body.decode(), "attempt", message.attempts)


async def main(
    address: str = "127.0.0.1:4150", topic: str = "demo", channel: str = "handled"
) -> None:
    options = {"max_attempts": 2, "requeue_delay_s": 0.1, "auto_touch": True}
    async with Consumer(topic, channel, address, **options) as consumer:
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, consumer.stop)
        await consumer.run(
            handle,
            concurrency=4,
            handler_timeout_s=20,
            on_error={KeyError: "give_up"},
            on_giving_up=bury,
        )
    print("finished", consumer.counts.finished)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
