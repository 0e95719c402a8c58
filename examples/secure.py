"""TLS with an authority of our own, snappy inside of it, and a secret for nsqd's auth server.

python examples/secure.py
python examples/secure.py 127.0.0.1:4150 orders billing authority.pem SECRET

Without arguments it makes a certificate with `openssl`, and starts an auth server and a broker that
asks it, on free ports; all three end with it.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, urlsplit

from penstock.client import Consumer, Producer, ServerRefused
from penstock.testing import TestBroker

SECRET = "swordfish"


class AuthServer(BaseHTTPRequestHandler):
    """GET /auth?secret=…: what its owner may do, as NSQ's auth servers answer."""

    def do_GET(self) -> None:
        known = parse_qs(urlsplit(self.path).query).get("secret") == [SECRET]
        may = {"permissions": ["subscribe", "publish"], "topic": "orders", "channels": [".*"]}
        self.send_response(200 if known else 403)
        self.end_headers()
        self.wfile.write(json.dumps({"ttl": 60, "authorizations": [may]}).encode())

    def log_message(self, *_: object) -> None:
        """Not a line for each request."""


@contextmanager
def secured_broker() -> Iterator[tuple[str, ...]]:
    """The arguments of `main` for a broker of our own."""
    with TemporaryDirectory() as directory, HTTPServer(("127.0.0.1", 0), AuthServer) as auth:
        certificate, key = Path(directory, "cert.pem"), Path(directory, "key.pem")
        command = "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost"
        files = "-addext", "subjectAltName=IP:127.0.0.1", "-out", certificate, "-keyout", key
        subprocess.run([*command.split(), *files], check=True, capture_output=True)
        threading.Thread(target=auth.serve_forever, daemon=True).start()
        flags = (f"--tls-cert={certificate}", f"--tls-key={key}", "--tls-required")
        with TestBroker(*flags, f"--auth-http-address=127.0.0.1:{auth.server_port}") as broker:
            yield broker.address, "orders", "billing", str(certificate), SECRET
        auth.shutdown()


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
    if len(sys.argv) == 6:
        asyncio.run(main(*sys.argv[1:]))
    elif len(sys.argv) == 1:
        with secured_broker() as arguments:
            asyncio.run(main(*arguments))
    else:
        sys.exit(__doc__)
