"""Messages of one key come one after the other, those of other keys beside them.

python examples/ordered.py 127.0.0.1:4151 127.0.0.1:4150 payments

Three accounts have four messages each, and the first attempt at one of them fails. Up to three are
handled at a time; within each account the order is kept all the same.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from urllib.parse import urlencode

from penstock.client import Consumer

ACCOUNTS, MESSAGES = ("anna", "ben", "carl"), 4
CHANNEL = "ledger"


def post(http: str, path: str, body: bytes = b"", **query: str) -> None:
    request = urllib.request.Request(f"http://{http}{path}?{urlencode(query)}", body, method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


def publish(http: str, topic: str) -> None:
    post(http, "/topic/create", topic=topic)
    post(http, "/channel/create", topic=topic, channel=CHANNEL)
    post(http, "/channel/config", topic=topic, channel=CHANNEL, order="key")
    for number in range(1, MESSAGES + 1):
        for account in ACCOUNTS:
            post(http, "/pub", f"{account} {number}".encode(), topic=topic, key=account)


async def main(
    http: str = "127.0.0.1:4151", tcp: str = "127.0.0.1:4150", topic: str = "payments"
) -> None:
    publish(http, topic)
    done: dict[str, list[int]] = {account: [] for account in ACCOUNTS}
    left = len(ACCOUNTS) * MESSAGES
    async with Consumer(topic, CHANNEL, tcp, max_in_flight=3) as consumer:
        async for message in consumer:
            account, number = message.body.decode().split()
            if account == "ben" and number == "2" and message.attempts == 1:
                await message.req(0)  # it comes again before ben 3
                continue
            done[account].append(int(number))
            await message.fin()
            left -= 1
            if not left:
                break
    for account, numbers in done.items():
        print(account, *numbers)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
