"""What goes over the wire, with and without an event loop."""

import asyncio
import http.server
import json
import socketserver
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.net.fetch import Fetcher
from penstock.net.http_client import Fetched
from penstock.net.outgoing import Headers
from penstock.nsqdapi import calls
from penstock.nsqdapi.asking import exchange
from penstock.nsqdapi.blocking import FAILURES, Address, Link

SECRET = "sixteen characters"


class Asked(NamedTuple):
    line: str
    body: bytes
    headers: dict[str, str]
    connection: int


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    connections = 0
    asked: list[Asked]

    def setup(self) -> None:
        type(self).connections += 1
        super().setup()

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        named = {name.lower(): value for name, value in self.headers.items()}
        line = f"{self.command} {self.path}"
        self.asked.append(Asked(line, body, named, type(self).connections))
        answer = json.dumps({"offset": 7}).encode()
        self.send_response(200)
        self.send_header("X-Penstock-Identity", "x")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_: object) -> None:
        """Tests are silent."""

    def address_string(self) -> str:
        return "a unix socket has none"


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True


class Daemon:
    def __init__(self, path: str = "") -> None:
        self.asked = listed = list[Asked]()

        class Handler(_Handler):
            asked = listed

        self._server: socketserver.BaseServer
        if path:
            self._server = UnixServer(path, Handler)
            self.address = Address("", None, socket_path=path)
        else:
            server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
            server.daemon_threads = True
            self._server = server
            self.address = Address("127.0.0.1", server.server_port)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def end(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    daemon = Daemon()
    yield daemon
    daemon.end()


def test_a_connection_is_kept_until_it_is_closed(daemon: Daemon) -> None:
    link = Link(daemon.address, 10)
    call = calls.offset_at("t", 5)
    for _ in range(2):
        answer = link.exchange(call.method, call.target)
        assert (answer.status, call.decode(answer.body, answer.headers)) == (200, 7)
        assert answer.headers["x-penstock-identity"] == "x"
    link.close()
    link.exchange(call.method, call.target)
    link.close()
    assert [one.connection for one in daemon.asked] == [1, 1, 2]
    assert daemon.asked[0].line == "GET /log/offset?topic=t&partition=0&timestamp_ms=5"


def test_the_secret_goes_with_what_changes_something(daemon: Daemon) -> None:
    link = Link(daemon.address._replace(prefix="/nsqd"), 10, secret=SECRET)
    link.exchange("GET", "/info")
    call = calls.publish("t", b"x")
    link.exchange(call.method, call.target, call.body, call.content_type)
    link.exchange("POST", "/drain/cancel", b"", "application/json")
    link.close()
    assert [one.line for one in daemon.asked] == [
        "GET /nsqd/info",
        "POST /nsqd/pub?topic=t",
        "POST /nsqd/drain/cancel",
    ]
    sent = [one.headers for one in daemon.asked]
    assert [one.get("authorization") for one in sent] == [None, *[f"Bearer {SECRET}"] * 2]
    assert sent[1]["content-type"] == "application/octet-stream"
    assert all(one["accept"] == "application/vnd.nsq; version=1.0" for one in sent)
    assert [one.body for one in daemon.asked] == [b"", b"x", b""]


def test_an_answer_is_of_what_was_sent(daemon: Daemon) -> None:
    link = Link(daemon.address, 10)
    link.send("GET", "/first")
    assert link.receive().status == 200
    with pytest.raises(FAILURES):
        link.receive()  # nothing was sent
    link.close()
    with pytest.raises(FAILURES):
        link.receive()  # there is no connection


def test_over_a_unix_socket(tmp_path: Path) -> None:
    daemon = Daemon(str(tmp_path / "http"))
    try:
        link = Link(daemon.address, 10)
        assert link.exchange("GET", "/ping").status == 200
        link.close()
    finally:
        daemon.end()


class _Fetcher(Fetcher):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, bytes, dict[str, str]]] = []

    async def request(
        self, method: str, url: str, body: bytes = b"", headers: Headers | None = None
    ) -> Fetched:
        self.asked.append((method, url, body, dict(headers or {})))
        return Fetched(503, b"", {})


def test_from_an_event_loop() -> None:
    async def story() -> None:
        fetcher = _Fetcher()
        answer = await exchange(fetcher, "a:1", calls.nodes(), {"User-Agent": "me"})
        assert answer.status == 503
        await exchange(fetcher, "https://a:1", calls.publish("t", b"x"), {"User-Agent": "me"})
        bytes_too = {"User-Agent": "me", "Content-Type": "application/octet-stream"}
        assert fetcher.asked == [
            ("GET", "http://a:1/nodes", b"", {"User-Agent": "me"}),
            ("POST", "https://a:1/pub?topic=t", b"x", bytes_too),
        ]

    asyncio.run(story())
