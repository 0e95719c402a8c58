"""What goes over the wire, with and without an event loop."""

import json
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from e2e.answering import Answer, Answering, served
from e2e.certificates import Certificates
from nsqd.world import Running
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher
from penstock.net.outgoing import Headers, HttpAnswer
from penstock.nsqdapi import calls
from penstock.nsqdapi.aio import exchange
from penstock.nsqdapi.blocking import FAILURES, Address, Link

SECRET = "sixteen characters"


class Asked(NamedTuple):
    line: str
    body: bytes
    headers: dict[str, str]
    from_port: int


class Daemon(Answering):
    def __init__(self, tls: ssl.SSLContext | None = None, https_port: int = 0) -> None:
        """With `https_port` it only says where to ask."""
        super().__init__(tls)
        self._https_port = https_port
        self.asked: list[Asked] = []
        self.at = Address("127.0.0.1", self.port)

    def reply_to(self, port: int, *asked: Any) -> Answer:
        method, path, body, headers = asked
        named = {name.lower(): value for name, value in headers.items()}
        self.asked.append(Asked(f"{method} {path}", body, named, port))
        if self._https_port:
            return 403, b'{"https_port": %d}' % self._https_port, {}
        return 200, b'{"offset": 7}', {"X-Penstock-Identity": "x"}


daemon = served(Daemon)


def test_a_connection_is_kept_until_it_is_closed(daemon: Daemon) -> None:
    link = Link(daemon.at, 10)
    call = calls.offset_at("t", 5)
    for _ in range(2):
        answer = link.exchange(call.method, call.target)
        assert (answer.status, call.decode(answer.body, answer.headers)) == (200, 7)
        assert answer.headers["x-penstock-identity"] == "x"
    link.close()
    link.exchange(call.method, call.target)
    link.close()
    first, second, third = (one.from_port for one in daemon.asked)
    assert first == second != third
    assert daemon.asked[0].line == "GET /log/offset?topic=t&partition=0&timestamp_ms=5"


def test_the_secret_goes_with_what_changes_something(daemon: Daemon) -> None:
    link = Link(daemon.at._replace(prefix="/nsqd"), 10, secret=SECRET)
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
    link = Link(daemon.at, 10)
    link.send("GET", "/first")
    assert link.receive().status == 200
    with pytest.raises(FAILURES):
        link.receive()  # nothing was sent
    link.close()
    with pytest.raises(FAILURES):
        link.receive()  # there is no connection


@pytest.fixture
def moved(tmp_path: Path) -> Iterator[tuple[Daemon, Daemon, ssl.SSLContext]]:
    """A daemon over TLS, plain HTTP that leads there, and what a client trusts."""
    certificates = Certificates(tmp_path)
    with Daemon(certificates.server()) as secure, Daemon(None, secure.port) as plain:
        yield secure, plain, certificates.client()


async def test_a_daemon_that_requires_tls_gets_no_secret_before(moved: Any) -> None:
    secure, plain, tls = moved
    link, fetcher = Link(plain.at, 10, tls, secret=SECRET), Fetcher(tls=tls)
    for _ in range(2):
        assert link.exchange("POST", "/pub?topic=t", b"a").status == 200
        url = f"{plain.url}/pub?topic=t"
        assert (await fetcher.request("POST", url, b"a", None, f"Bearer {SECRET}")).status == 200
    link.close()
    await fetcher.close()
    assert [one.line for one in plain.asked] == ["GET /ping"] * 2
    assert all("authorization" not in one.headers for one in plain.asked)
    posted = [one.headers for one in secure.asked if one.line == "POST /pub?topic=t"]
    assert [one["authorization"] for one in posted] == [f"Bearer {SECRET}"] * 4


async def test_the_port_of_plain_http_named_by_https(moved: Any) -> None:
    """It is asked where HTTPS is, and for nothing else."""
    secure, plain, tls = moved
    link, fetcher = Link(plain.at._replace(secure=True), 10, tls), Fetcher(tls=tls)
    for _ in range(2):
        assert link.exchange("GET", "/info").status == 200
        assert (await fetcher.request("GET", f"https://{plain.address}/info")).status == 200
    link.close()
    await fetcher.close()
    assert [one.line for one in plain.asked] == ["GET /ping"] * 2
    assert [one.line for one in secure.asked] == ["GET /ping", *["GET /info"] * 4]


async def test_https_where_there_is_none(daemon: Daemon) -> None:
    link, fetcher = Link(daemon.at._replace(secure=True), 10), Fetcher()
    for _ in range(2):
        with pytest.raises(FAILURES, match="serves plain HTTP"):
            link.exchange("GET", "/info")
        with pytest.raises(FetchFailed, match="serves plain HTTP"):
            await fetcher.request("GET", f"https://{daemon.address}/info")
    await fetcher.close()
    assert {one.line for one in daemon.asked} == {"GET /ping"}


def test_over_a_unix_socket(tmp_path: Path) -> None:
    tcp, path = tmp_path / "tcp.sock", str(tmp_path / "http.sock")
    with Running(tmp_path / "data", f"--tcp-address={tcp}", f"--http-address={path}"):
        link = Link(Address("", None, socket_path=path), 10)
        info = json.loads(link.exchange("GET", "/info").body)
        link.close()
    assert (info["tcp_port"], info["http_port"]) == (-1, -1)


class _Fetcher(Fetcher):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str, bytes, dict[str, str]]] = []

    async def request(
        self, method: str, url: str, body: bytes = b"", headers: Headers | None = None,
        credentials: str = "",
    ) -> HttpAnswer:  # fmt: skip
        self.asked.append((method, url, body, dict(headers or {})))
        return HttpAnswer(503, b"", {})


async def test_from_an_event_loop() -> None:
    fetcher = _Fetcher()
    answer = await exchange(fetcher, "a:1", calls.nodes(), {"User-Agent": "me"})
    assert answer.status == 503
    await exchange(fetcher, "https://a:1", calls.publish("t", b"x"), {"User-Agent": "me"})
    bytes_too = {"User-Agent": "me", "Content-Type": "application/octet-stream"}
    assert fetcher.asked == [
        ("GET", "http://a:1/nodes", b"", {"User-Agent": "me"}),
        ("POST", "https://a:1/pub?topic=t", b"x", bytes_too),
    ]
