"""Clients that have to authenticate, and a real HTTP auth server."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cases import each
from penstock.wire import frames

from .authserver import AuthServer
from .world import V2, Running, dpub, error, eventually, mpub, ok, pub, u32

FAILED = error(b"E_AUTH_FAILED AUTH failed")


@pytest.fixture(scope="module")
def server() -> Iterator[AuthServer]:
    with AuthServer() as server:
        yield server


@pytest.fixture(scope="module")
def guarded(server: AuthServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    path = tmp_path_factory.mktemp("guarded")
    with Running(path, f"--auth-http-address={server.address}") as running:
        yield running


def auth(secret: str) -> bytes:
    return b"AUTH\n" + frames.with_size(secret.encode())


def authed(nsqd: Running, secret: str = "all") -> V2:
    client = nsqd.client()
    frame = client.ask(auth(secret))
    assert frame.data.startswith(b'{"identity":'), frame
    return client


def test_identify_says_that_auth_is_wanted(guarded: Running) -> None:
    with guarded.client() as client:
        assert json.loads(client.identify(feature_negotiation=True).data)["auth_required"] is True


REFUSALS = [
    # without AUTH: after the checks of the command itself
    (None, pub(b"t", b"x"), b"E_AUTH_FIRST AUTH required before PUB"),
    (None, mpub(b"t", [b"x"]), b"E_AUTH_FIRST AUTH required before MPUB"),
    (None, dpub(b"t", 5, b"x"), b"E_AUTH_FIRST AUTH required before DPUB"),
    (None, b"SUB t c\n", b"E_AUTH_FIRST AUTH required before SUB"),
    (None, b"PUB t$\n" + u32(1) + b"x", b'E_BAD_TOPIC PUB topic name "t$" is not valid'),
    (None, b"PUB t\n" + u32(0), b"E_BAD_MESSAGE PUB invalid message body size 0"),
    (None, b"MPUB t\n" + u32(0), b"E_AUTH_FIRST AUTH required before MPUB"),
    (None, b"DPUB t 5\n" + u32(0), b"E_BAD_MESSAGE DPUB invalid message body size 0"),
    (None, b"SUB t c$\n", b'E_BAD_CHANNEL SUB channel name "c$" is not valid'),
    # AUTH itself
    (None, b"AUTH x\n", b"E_INVALID AUTH invalid number of parameters"),
    (None, b"AUTH\n" + u32(0), b"E_BAD_BODY AUTH invalid body size 0"),
    (None, auth("x" * 65_537), b"E_BAD_BODY AUTH body too big 65537 > 65536"),
    (None, auth("stranger"), b"E_AUTH_FAILED AUTH failed"),
    (None, auth("ttl"), b"E_AUTH_FAILED AUTH failed"),
    (None, auth("admin"), b"E_AUTH_FAILED AUTH failed"),
    (None, auth("regexp"), b"E_AUTH_FAILED AUTH failed"),
    (None, auth("none"), b"E_UNAUTHORIZED AUTH no authorizations found"),
    ("all", auth("all"), b"E_INVALID AUTH already set"),
    # not permitted
    ("mine", pub(b"t", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
    ("mine", mpub(b"t", [b"x"]), b'E_UNAUTHORIZED AUTH failed for MPUB on "t" ""'),
    ("mine", dpub(b"t", 5, b"x"), b'E_UNAUTHORIZED AUTH failed for DPUB on "t" ""'),
    ("mine", b"SUB t c\n", b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"'),
    ("reads", pub(b"t", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
    ("channel", pub(b"t", b"x"), b'E_UNAUTHORIZED AUTH failed for PUB on "t" ""'),
    ("channel", b"SUB t d\n", b'E_UNAUTHORIZED AUTH failed for SUB on "t" "d"'),
]


@each(("secret", "sent", "expected"), REFUSALS)
def test_refusals(guarded: Running, secret: str | None, sent: bytes, expected: bytes) -> None:
    with guarded.client() if secret is None else authed(guarded, secret) as client:
        assert client.ask(sent) == error(expected)
        assert client.is_closed()
    assert "t" not in guarded.daemon.broker.topics


def test_what_is_permitted(guarded: Running) -> None:
    with authed(guarded, "mine") as client:
        for sent in (pub(b"mine1", b"x"), mpub(b"mine2", [b"x", b"y"]), dpub(b"mine3", 0, b"x")):
            assert client.ask(sent) == ok()
        assert client.ask(pub(b"mine1", b"y") + b"SUB mine1 c\n") == ok()
        assert client.read() == ok()
        client.send(b"RDY 5\n")
        assert {client.message().body, client.message().body} == {b"x", b"y"}
    with authed(guarded, "reads") as client:
        assert client.ask(b"SUB mine1 other\n") == ok()


def test_stats_name_the_client(guarded: Running) -> None:
    with authed(guarded) as client, authed(guarded, "mine") as nobody:
        assert client.ask(b"SUB seen c\n") == ok()
        assert nobody.ask(b"SUB mine9 c\n") == ok()
        (row,) = guarded.channel("seen", "c")["clients"]
        found = {key: row[key] for key in row if key.startswith("auth")}
        assert found == {"authed": True, "auth_identity": "u", "auth_identity_url": "http://id"}
        (row,) = guarded.channel("mine9", "c")["clients"]
        assert {key: row[key] for key in row if key.startswith("auth")} == {"authed": True}


def end_ttl(nsqd: Running) -> None:
    """As the timer does it, without the wait."""

    def end() -> None:
        for session in nsqd.daemon.protocol.sessions.values():
            session.drop_grant_timer()
            session._end_grant()

    nsqd.call(end)


def test_when_the_server_fails_then_the_client_has_to_go(
    server: AuthServer, guarded: Running
) -> None:
    with authed(guarded) as client, authed(guarded) as consumer:
        assert consumer.ask(b"SUB cut c\n") == ok()
        end_ttl(guarded)
        server.fails = True
        try:
            assert client.ask(pub(b"cut", b"x")) == FAILED
            assert client.is_closed()
        finally:
            server.fails = False
        consumer.send(b"RDY 1\n")  # what has been granted is not cut off
        assert guarded.request("POST", "/pub?topic=cut", b"x").status == 200
        consumer.send(b"FIN %b\n" % consumer.message().id)


def session_of(nsqd: Running, client: V2) -> Any:
    """Not the only one: what other tests have left goes when the daemon has heard of it."""
    host, port = client.socket.getsockname()
    sessions = nsqd.daemon.protocol.sessions
    found = nsqd.call(lambda: [s for s in sessions.values() if s.remote == f"{host}:{port}"])
    assert len(found) == 1
    return found[0]


def test_a_real_ttl(server: AuthServer, guarded: Running) -> None:
    with authed(guarded, "short") as client:
        assert client.ask(pub(b"ttl", b"x")) == ok()
        count = len(server.asked)
        session = session_of(guarded, client)
        assert eventually(lambda: guarded.call(lambda: session.grant_has_ended))
        assert guarded.call(lambda: session.conn.allowed) == set()
        assert client.ask(pub(b"ttl", b"x")) == ok()
        assert len(server.asked) == count + 1


def test_a_client_that_leaves_while_the_server_thinks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        flags = (f"--auth-http-address={address}", "--http-client-request-timeout=300ms")
        with Running(tmp_path, *flags) as nsqd:
            with nsqd.client() as client:
                client.send(auth("s3cret") + b"NOP\n")
                asked, _ = silent.accept()
                asked.recv(1000)
                with nsqd.client() as other:  # the loop is alive
                    assert other.ask(b"FOO\n") == error(b"E_INVALID invalid command FOO")
            with nsqd.client() as client:
                assert client.ask(auth("s3cret")) == FAILED
            asked.close()
    assert "AUTH failed failed to auth against http://" in caplog.text
    assert "timed out" in caplog.text
    assert "s3cret" not in caplog.text
