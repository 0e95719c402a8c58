"""A real daemon and clients that go over to TLS, snappy, deflate, or both; and that fail to."""

from __future__ import annotations

import socket
import ssl
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from e2e.certificates import Certificates
from e2e.v2client import Closed, V2Client, pub_bytes
from e2e.v2upgraded import Upgraded
from penstock.nsqd.tls import Upgrades

from .world import Running

FORMS: dict[str, dict[str, Any]] = {
    "tls": {"tls": True},
    "snappy": {"snappy": True},
    "deflate": {"deflate": True},
    "tls+snappy": {"tls": True, "snappy": True},
    "tls+deflate": {"tls": True, "deflate": True},
}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Running]:
    flags = [*certificates.flags, "--durability=os", "--min-disk-free=0"]
    with Running(tmp_path_factory.mktemp("data") / "data", *flags) as running:
        yield running
        assert not running.daemon.broken
        assert running.call(lambda: len(running.daemon.protocol.sessions)) == 0


@pytest.fixture
def port(nsqd: Running) -> Iterator[int]:
    yield nsqd.daemon.tcp_address.port
    deadline_s = time.monotonic() + 60
    while nsqd.call(lambda: len(nsqd.daemon.node.links.by_serial)):  # every socket is given back
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def connect(port: int, certificates: Certificates, form: dict[str, Any], **more: Any) -> Upgraded:
    rest = {name: value for name, value in form.items() if name != "tls"}
    return Upgraded(port, certificates.client() if "tls" in form else None, **rest, **more)


def row(nsqd: Running, topic: str) -> dict[str, Any]:
    found: dict[str, Any] = nsqd.channel(topic, "c")["clients"][0]
    return found


# --- what works ---


@every_form
def test_publish_and_consume(
    nsqd: Running, port: int, certificates: Certificates, form: dict[str, Any]
) -> None:
    topic = "life-" + "-".join(form)
    with connect(port, certificates, form) as client:
        for name in ("snappy", "deflate"):
            assert client.answer[name] == form.get(name, False)
        assert client.answer["tls_v1"] == form.get("tls", False)
        client.pub(topic, b"one")
        client.mpub(topic, [b"two", b"three"])
        client.dpub(topic, 1, b"four")
        client.sub(topic, "c")
        client.rdy(10)
        messages = client.messages(4)
        assert sorted(message.body for message in messages) == [b"four", b"one", b"three", b"two"]
        client.fin(*[message.id for message in messages])
        client.settle()
        seen = row(nsqd, topic)
        assert (seen["snappy"], seen["deflate"]) == (client.answer["snappy"], "deflate" in form)
        assert (seen["finish_count"], seen["pub_counts"][0]["count"]) == (4, 4)
        if "tls" in form:
            assert seen["tls"]
            assert (seen["tls_version"], seen["tls_cipher_suite"][:8]) == ("TLS1.3", "TLS_AES_")
        else:
            assert (seen["tls"], seen["tls_version"], seen["tls_cipher_suite"]) == (False, "", "")


def test_what_a_client_says_too_early_is_read_after_the_switch(port: int) -> None:
    """It need not wait for the OK: the stream changes right behind IDENTIFY."""
    with V2Client(port) as client:
        early = Upgraded.encoded.__get__(_Snappy())(pub_bytes("early", b"x"))
        body = b'{"feature_negotiation":true,"snappy":true}'
        client.send(b"IDENTIFY\n" + len(body).to_bytes(4, "big") + body + early)
        assert b'"snappy":true' in client.response()
        encoded = bytes(client._buffer)
        while encoded.count(b"OK") < 2:  # of the switch, and of the message
            data = client.socket.recv(4096)
            assert data
            encoded += data


class _Snappy:
    _snappy = True


def test_a_slow_reader_stalls_its_own_deliveries_only(
    nsqd: Running, port: int, certificates: Certificates
) -> None:
    count, body = 400, bytes(range(256)) * 400
    with (
        connect(port, certificates, FORMS["tls"]) as slow,
        connect(port, certificates, FORMS["tls"]) as quick,
    ):
        slow.sub("slow", "c")
        slow.rdy(count)
        for _ in range(count // 20):
            quick.mpub("slow", [body] * 20)
        deadline_s = time.monotonic() + 60
        last = (-1, -1)
        while (now := (row(nsqd, "slow")["message_count"], _unsent(nsqd))) != last or 0 in now:
            last = now
            assert time.monotonic() < deadline_s
            quick.pub("other", b"meanwhile")
            time.sleep(0.05)
        sent, unsent = now
        assert sent < count
        assert unsent < 2 << 20
        assert {message.body for message in slow.messages(count)} == {body}


def _unsent(nsqd: Running) -> int:
    sessions = nsqd.daemon.protocol.sessions
    most: int = nsqd.call(lambda: max(session.conn.unsent for session in sessions.values()))
    return most


def test_a_bomb_is_read_in_pieces(nsqd: Running, port: int) -> None:
    """200 MB of NOPs in 200 KB of deflate: the kernel is never given much at a time."""
    commands = (b"NOP " + bytes(16_000) + b"\n") * 1_300
    with Upgraded(port, None, deflate=True) as client:
        size_max = 0
        for _ in range(10):
            client.send(commands)
            size_max = max(size_max, nsqd.call(lambda: _held_bytes(nsqd)))
        client.pub("bomb", b"after it")
        assert size_max < 1 << 20


def _held_bytes(nsqd: Running) -> int:
    links: list[Any] = list(nsqd.daemon.node.links.by_serial.values())
    return max(len(link._decoder._input) for link in links)


# --- what fails ---


def test_a_fatal_error_reaches_the_client(port: int, certificates: Certificates) -> None:
    for form in FORMS.values():
        with connect(port, certificates, form) as client:
            client.command("NONSENSE")
            client.send(b"x" * 100_000)
            assert client.error() == b"E_INVALID invalid command NONSENSE"
            assert client.is_closed()


def test_garbage_instead_of_a_handshake(port: int) -> None:
    with V2Client(port) as client:
        client.identify(tls_v1=True)
        client.send(b"PUB test\n\0\0\0\1x")
        data = b""
        while chunk := client.socket.recv(4096):
            data += chunk
        assert b"E_IDENTIFY_FAILED IDENTIFY failed " in data


def test_a_handshake_that_goes_to_sleep(
    port: int, nsqd: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.limits.TLS_HANDSHAKE_NS", 50_000_000)
    with V2Client(port) as client:
        client.identify(tls_v1=True)
        assert client.error() == b"E_IDENTIFY_FAILED IDENTIFY failed TLS handshake timeout"
        with pytest.raises(Closed):
            client.frame()


@every_form
def test_garbage_after_the_upgrade_ends_the_connection(
    port: int, certificates: Certificates, form: dict[str, Any]
) -> None:
    with connect(port, certificates, form) as client:
        topic = "garbage-" + "-".join(form)
        client.pub(topic, b"before it")
        if "snappy" in form or "deflate" in form:
            client.send_raw(b"\xff" * 100)
        else:
            plain = socket.socket(fileno=client.socket.detach())
            plain.sendall(b"no record" * 10)
            client.socket = plain
        assert client.is_closed()


class _Cut(Exception):
    pass


class _Flaky(Upgraded):
    """Hangs up after so many bytes, wherever that is."""

    left = 0
    abrupt = False

    def close(self) -> None:
        if self.abrupt and self.socket.fileno() >= 0:  # a reset
            linger = struct.pack("ii", 1, 0)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        super().close()

    def send(self, data: bytes) -> None:
        encoded = self.encoded(data) if hasattr(self, "_deflate") else data
        super().send_raw(encoded[: self.left])
        self.left -= len(encoded)
        if self.left <= 0:
            raise _Cut


@every_form
@pytest.mark.parametrize("abrupt", [False, True])
def test_a_connection_may_break_anywhere(
    nsqd: Running, port: int, certificates: Certificates, form: dict[str, Any], abrupt: bool
) -> None:
    rest = {name: value for name, value in form.items() if name != "tls"}
    context = certificates.client() if "tls" in form else None
    for left in (2, 10, 60, 150, 170, 200):
        client = _Flaky.__new__(_Flaky)
        client.left, client.abrupt = left, abrupt
        with suppress(_Cut), closing(client):
            client.__init__(port, context, **rest)  # type: ignore[misc]
            client.pub("breaks", b"x" * 100)
    with V2Client(port) as plain:
        plain.pub("breaks", b"still here")


def test_a_handshake_cut_at_every_byte(port: int, certificates: Certificates) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = certificates.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    hello = outgoing.read()
    for size in range(0, len(hello), 23):
        with V2Client(port) as client:
            client.identify(tls_v1=True)
            client.send(hello[:size])
    with connect(port, certificates, FORMS["tls"]) as client:
        client.pub("hello", b"x")


def test_a_client_that_closes_tls_properly_gets_its_answers(
    port: int, certificates: Certificates
) -> None:
    with connect(port, certificates, FORMS["tls"]) as client:
        client.send(b"".join(pub_bytes("goodbye", b"%d" % number) for number in range(50)))
        with pytest.raises(ssl.SSLError, match=r"APPLICATION_DATA_AFTER_CLOSE_NOTIFY"):
            client.socket.unwrap()  # it hears answers where it wanted only a goodbye


def test_the_daemon_says_goodbye(tmp_path: Path, certificates: Certificates) -> None:
    with Running(tmp_path / "data", *certificates.flags, "--min-disk-free=0") as nsqd:
        clients = [
            connect(nsqd.daemon.tcp_address.port, certificates, form) for form in FORMS.values()
        ]
        nsqd.stop()
        for client in clients:
            client.socket.settimeout(40)
            assert client.socket.recv(100) == b""  # a close_notify, or SSLEOFError would be raised
            client.close()


def test_a_fault_while_upgrading_costs_one_connection(
    nsqd: Running, port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("on purpose")

    with monkeypatch.context() as patch, V2Client(port) as client:
        patch.setattr(Upgrades, "_compress", fail)
        client.command("IDENTIFY", b'{"feature_negotiation":true,"snappy":true}')
        client.response()
        with pytest.raises(Closed):
            client.frame()
    with V2Client(port) as client:
        client.pub("fine", b"x")
