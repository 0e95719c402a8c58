"""Messages with headers: one consumer gets them all, one only those from Germany.

python examples/headers.py 127.0.0.1:4151 127.0.0.1:4150 orders
"""

from __future__ import annotations

import asyncio
import sys
import urllib.request
from urllib.parse import urlencode

from penstock.client import Consumer, Producer

GERMAN = {"type": 1, "filter_ext_key": "country", "filter_data": "de"}
COUNTRIES = ("de", "fr", "de", "it")


def post(http: str, path: str, **query: str) -> None:
    request = urllib.request.Request(f"http://{http}{path}?{urlencode(query)}", method="POST")
    with urllib.request.urlopen(request, timeout=10) as answer:
        answer.read()


async def consume(consumer: Consumer, count: int) -> list[str]:
    found = []
    async with consumer:
        async for message in consumer:
            found.append(f"{message.key} {message.headers['country']}")
            await message.fin()
            if len(found) == count:
                break
    return sorted(found)


async def main(
    http: str = "127.0.0.1:4151", tcp: str = "127.0.0.1:4150", topic: str = "labelled"
) -> None:
    post(http, "/topic/create", topic=topic, extend="true")
    for channel in ("all", "german"):
        post(http, "/channel/create", topic=topic, channel=channel)
    async with Producer(tcp) as producer:
        for number, country in enumerate(COUNTRIES, 1):
            headers = {"country": country}
            await producer.pub(topic, b"paid", key=f"order-{number}", headers=headers)
    everything = Consumer(topic, "all", tcp, headers=True)
    print("all:", ", ".join(await consume(everything, len(COUNTRIES))))
    german = Consumer(topic, "german", tcp, headers=True, ext_filter=GERMAN)
    print("german:", ", ".join(await consume(german, COUNTRIES.count("de"))))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
