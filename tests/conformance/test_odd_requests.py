"""Every route of nsqd and nsqlookupd with odd values: it is the client's fault, and the answer says
so. No 500, and no traceback in the log."""

from __future__ import annotations

import http.client
import itertools
import socket
from collections.abc import Iterator
from unittest.mock import MagicMock

import pytest

from cases import each, seeds
from e2e.daemon import Daemon, shared_daemon
from e2e.lookupd import Lookupd
from penstock.net.api import Route
from penstock.nsqd.drain import drain_routes
from penstock.nsqd.http import routes as nsqd_routes
from penstock.nsqd.options import read_options
from penstock.nsqlookupd import routes as lookupd_routes
from sim.clock import FakeClock

STRIDE = len(seeds(3, 1))  # a parameter of a route takes every third value in `make test`
DIGITS = b"9" * 5000
VALUES = [
    b"", b"%af", b"%ed%a0%80", b"%00", b"\xff\xfe", b"a" * 300, b"-1", b"1e400", b"nan", b"%D9%A1",
    DIGITS, b"0" * 5000 + b"1", b"0" * 30 + b"9" * 25, DIGITS + b"h", b"timestamp:" + DIGITS,
]  # fmt: skip
PARAMETERS = [
    b"topic", b"channel", b"partition", b"from", b"to", b"bytes_max", b"identity", b"timestamp_ms",
    b"committed", b"id", b"offset", b"trace_id", b"pattern", b"defer", b"binary", b"producer_id",
    b"producer_epoch", b"sequence", b"stage", b"app", b"version", b"position", b"dry_run", b"count",
    b"limit", b"state", b"delay_ms", b"rate", b"durability", b"max_depth", b"max_age",
    b"retain_age", b"retain_bytes", b"trace_rate", b"max_attempts", b"dead_letter_topic", b"format",
    b"include_clients", b"include_mem", b"seconds", b"node",
]  # fmt: skip
DEEP = b"[" * 100_000
BODIES = [
    DEEP, b'{"a":' * 100_000, b'{"stages":' + DEEP, b'{"a":' + DEEP, DIGITS, b"[" + DIGITS + b"]",
    b'"\\ud800"', b'["\\ud800:1"]', b'["a:' + DIGITS + b'"]', b"\xff\xfe", b"\x00",
    b'{"stages":[{"topic":"\\ud800","stage":"s","partition":' + DIGITS + b"}]}",
    b'{"stages":[{"topic":"t\\udc80","stage":"s"}]}', b"timestamp:" + DIGITS, b"null", b"{}",
]  # fmt: skip
USUAL = {b"topic": b"t", b"channel": b"c"}
SLOW = ("/debug/pprof/profile", "/debug/pprof/heap")  # one at a time, and in a thread
TAKES_NONE = ("/debug/pprof", "/ping", "/info", "/metrics", "/connections", "/config", "/nodes")


def paths_of(table: dict[str, Route]) -> list[tuple[str, str]]:
    return [
        (method, path.replace("/:", "/log_level"))
        for path, route in table.items()
        for method in route.methods
        if method != "OPTIONS" and path not in SLOW
    ]


ANY_GROUND = MagicMock(options=read_options(["--data-path=."], {}))
ROUTES = nsqd_routes.Routes(ANY_GROUND)
NSQD = paths_of(ROUTES.table | ROUTES.routes_of(drain_routes(MagicMock())))
LOOKUPD = paths_of(lookupd_routes.Routes(MagicMock(), FakeClock(), lambda: 0, {}).table)
DRASTIC = ("/topic/delete", "/drain")  # the test goes on with what it has


daemon = shared_daemon("--durability=os", "--log-level=debug")


@pytest.fixture(scope="module")
def lookupd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lookupd]:
    with Lookupd(tmp_path_factory.mktemp("odd") / "lookupd") as running:
        yield running


class Odd:
    """A connection that is kept as long as the server keeps it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._socket: socket.socket | None = None
        self.statuses: set[int] = set()
        self.faults: list[tuple[bytes, bytes]] = []

    def __enter__(self) -> Odd:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        assert self.faults == []

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def ask(self, head: bytes, body: bytes = b"") -> int:
        """The status. `head` ends with its last header."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self._port), 40)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.sendall(head + b"\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        response = http.client.HTTPResponse(self._socket, method=head.split(b" ")[0].decode())
        response.begin()
        response.read()
        if response.will_close:
            self.close()
        status = response.status
        self.statuses.add(status)
        if status == 500:
            self.faults.append((head[:200], body[:50]))
        return status


def with_values(path: str, name: bytes, value: bytes) -> bytes:
    usual = {**USUAL, name: value}
    return path.encode() + b"?" + b"&".join(b"%b=%b" % one for one in usual.items())


def is_clean(text: str) -> bool:
    return not any(sign in text for sign in ("Traceback", "a fault", "Logging error"))


def set_up(daemon: Daemon) -> None:
    daemon.make("t", "c")


def test_parameters_of_nsqd(daemon: Daemon) -> None:
    set_up(daemon)
    turn = itertools.count()
    with Odd(daemon.http_port) as odd:
        for method, path in NSQD:
            if (method, path) in [("POST", drastic) for drastic in DRASTIC]:
                continue
            for name in PARAMETERS[:1] if path.startswith(TAKES_NONE) else PARAMETERS:
                for value in VALUES[next(turn) % STRIDE :: STRIDE]:
                    target = with_values(path, name, value)
                    odd.ask(b"%b %b HTTP/1.1\r\nHost: localhost" % (method.encode(), target), b"x")
            set_up(daemon)  # some of them delete
        assert {200, 400, 404} <= odd.statuses
    assert is_clean(daemon.stderr())


def test_parameters_of_nsqlookupd(lookupd: Lookupd) -> None:
    with Odd(lookupd.http_port) as odd:
        for method, path in LOOKUPD:
            for name in (b"topic", b"channel", b"node"):
                for value in VALUES:
                    target = with_values(path, name, value)
                    odd.ask(b"%b %b HTTP/1.1\r\nHost: localhost" % (method.encode(), target), b"x")
        assert {200, 400, 404} <= odd.statuses
    assert is_clean(lookupd.stderr())


def test_bodies(daemon: Daemon, lookupd: Lookupd) -> None:
    set_up(daemon)
    for port, paths in ((daemon.http_port, NSQD), (lookupd.http_port, LOOKUPD)):
        with Odd(port) as odd:
            for method, path in paths:
                if path == "/drain":
                    continue
                for body in BODIES:
                    target = path.encode() + b"?topic=u&channel=c&app=a&version=1&stage=s"
                    odd.ask(b"%b %b HTTP/1.1\r\nHost: localhost" % (method.encode(), target), body)
            odd.ask(b"PUT /config/nsqlookupd_tcp_addresses HTTP/1.1\r\nHost: localhost", b"[]")
    assert is_clean(daemon.stderr() + lookupd.stderr())


def test_parameters_of_what_is_drastic(daemon: Daemon) -> None:
    with Odd(daemon.http_port) as odd:
        for value in VALUES[1:]:  # an empty one is what the default is
            for target in (b"/drain?delayed=%b", b"/drain?topics=%b", b"/topic/delete?topic=%b"):
                head = b"POST %b HTTP/1.1\r\nHost: localhost" % (target % value)
                assert odd.ask(head) in ((400,) if b"drain" in target else (200, 400, 404))
    assert is_clean(daemon.stderr())


def test_names_of_options(daemon: Daemon) -> None:
    with Odd(daemon.http_port) as odd:
        for name in (b"nsqlookupd_tcp_addresses", b"log_level", b"%af", b"\xff", b"a" * 3000):
            for body in BODIES:
                odd.ask(b"PUT /config/%b HTTP/1.1\r\nHost: localhost" % name, body)
            odd.ask(b"GET /config/%b HTTP/1.1\r\nHost: localhost" % name)
        odd.ask(b"PUT /config/nsqlookupd_tcp_addresses HTTP/1.1\r\nHost: localhost", b"[]")
    assert is_clean(daemon.stderr())


@each(
    "head",
    [
        b"POST /pub?topic=t HTTP/1.1\r\nHost: a\r\nHost: b",
        b"GET /ping HTTP/1.1\r\nHost: a\r\nhost: a",
        b"GET /ping HTTP/1.1\r\nHost: \xff\xfe",
        b"GET /ping HTTP/1.1\r\nHost: a b",
        b"GET /ping HTTP/1.1\r\nHost: a/b",
        b"GET http://a/b/ping HTTP/1.1\r\nHost: a\r\nHost: b",
    ],
)
def test_hosts_that_are_none(daemon: Daemon, lookupd: Lookupd, head: bytes) -> None:
    """As Go's server has it: 400 for two of them, and for what no host looks like."""
    for port in (daemon.http_port, lookupd.http_port):
        with Odd(port) as odd:
            assert odd.ask(head, b"x" if head.startswith(b"POST") else b"") == 400
    assert is_clean(daemon.stderr() + lookupd.stderr())


def test_requests_without_a_host(daemon: Daemon) -> None:
    """HTTP/1.0 has none, and Go's server asks HTTP/1.1 for one."""
    with Odd(daemon.http_port) as odd:
        assert odd.ask(b"GET /ping HTTP/1.0\r\nAccept: a") == 200
