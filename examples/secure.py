"""TLS with an authority of our own, snappy inside of it, and a secret for nsqd's auth server.

python examples/secure.py 127.0.0.1:4150 orders billing authority.pem SECRET
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import Any

from penstock.client import Consumer, Producer, ServerRefused


async def main(address: str, topic: str, channel: str, authority: str, secret: str) -> None:
    tls = ssl.create_default_context(cafile=authority)
    options: dict[str, Any] = {"tls": tls, "snappy": True, "auth_secret": secret}
    async with Producer(address, **options) as producer:
        await producer.pub(topic, b"nobody else can read this")
    async with Consumer(topic, channel, address, **options) as consumer:
        message = await anext(consumer)
        print(message.body.decode())
        await message.fin()
    try:
        await Producer(address, tls=tls, auth_secret="wrong").start()
    except ServerRefused as refusal:
        print("refused:", refusal.code)


if __name__ == "__main__":
    if len(sys.argv) != 6:
        sys.exit(__doc__)
    asyncio.run(main(*sys.argv[1:]))
