"""The greeting and the connection, against a scripted nsqd: TLS, compression, AUTH, refusals."""

from __future__ import annotations

import asyncio
import socket
import ssl
from typing import Any

import pytest

from cases import each
from penstock import __version__
from penstock.client import Consumer, Producer
from penstock.errors import ConnectFailed, ServerRefused
from penstock.wire.frames import HEARTBEAT, FrameType, encode_frame

from .conftest import Certificate
from .fake_nsqd import FakeNsqd, Peer, error, message, ok, say_ok

BIG = b"abc" * 50_000


def deliver_at_rdy(peer: Peer, line: bytes, body: bytes) -> None:
    say_ok(peer, line, body)
    if line.startswith(b"RDY"):
        peer.send(message(1, BIG) + message(2, b"two"))


@each("secure", [False, True])
@each("form", ["", "snappy", "deflate"])
def test_every_form_of_connection(secure: bool, form: str, certificate: Certificate) -> None:
    options: dict[str, Any] = {form: True} if form else {}
    if secure:
        options["tls"] = certificate.client()

    async def story() -> None:
        nsqd = FakeNsqd(
            deliver_at_rdy, certificate.server(), tls_v1=True, snappy=True, deflate=True,
            auth_required=True,
        )  # fmt: skip
        async with nsqd, asyncio.timeout(40):
            async with Consumer("t", "c", nsqd.address, auth_secret="s", **options) as consumer:
                bodies = []
                async for found in consumer:
                    bodies.append(found.body)
                    found.fin()
                    if len(bodies) == 2:
                        break
            assert bodies == [BIG, b"two"]
            async with Producer(nsqd.address, auth_secret="s", **options) as producer:
                await producer.pub("t", BIG)
                await asyncio.gather(*(producer.pub("t", b"%d" % n) for n in range(100)))
            consuming, publishing = nsqd.peers
            await consuming.closed
            await publishing.closed
            fins = [b"FIN %016x" % number for number in (1, 2)]
            assert consuming.lines() == [b"AUTH", b"SUB t c", b"RDY 200", *fins, b"CLS"]
            assert publishing.said[1] == (b"AUTH", b"s")
            assert publishing.said[2] == (b"PUB t", BIG)
            assert publishing.said[3:] == [(b"PUB t", b"%d" % n) for n in range(100)]

    asyncio.run(story())


def test_what_is_said_in_identify() -> None:
    async def story() -> None:
        async with FakeNsqd() as nsqd:
            options: dict[str, Any] = {
                "heartbeat_s": 5,
                "sample_rate": 7,
                "message_timeout_s": 1.5,
                "output_buffer_bytes": -1,
                "output_buffer_timeout_s": 0.1,
                "topology_region": "r",
                "topology_zone": "z",
                "client_id": "me",
            }
            async with Consumer("t", "c", nsqd.address, **options):
                pass
            assert nsqd.peers[0].asked == {
                "client_id": "me",
                "hostname": socket.gethostname(),
                "user_agent": f"penstock/{__version__}",
                "feature_negotiation": True,
                "heartbeat_interval": 5000,
                "tls_v1": False,
                "snappy": False,
                "deflate": False,
                "deflate_level": 6,
                "topology_region": "r",
                "topology_zone": "z",
                "sample_rate": 7,
                "msg_timeout": 1500,
                "output_buffer_size": -1,
                "output_buffer_timeout": 100,
            }

    asyncio.run(story())


def test_heartbeats_are_answered() -> None:
    def beat(peer: Peer, line: bytes, body: bytes) -> None:
        if line == b"NOP":
            peer.hang_up()
        say_ok(peer, line, body)
        if line.startswith((b"RDY", b"PUB")):
            peer.send(encode_frame(FrameType.RESPONSE, HEARTBEAT))

    async def story() -> None:
        async with FakeNsqd(beat) as nsqd, asyncio.timeout(40):
            async with Consumer("t", "c", nsqd.address):
                await nsqd.peers[0].closed
            async with Producer(nsqd.address) as producer:
                await producer.pub("t", b"body")
                await nsqd.peers[1].closed

    asyncio.run(story())


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"tls": True}, "does not offer it"), ({}, "requires AUTH")],
)
def test_what_we_cannot_live_with(options: dict[str, Any], reason: str) -> None:
    async def story() -> None:
        async with FakeNsqd(auth_required=True) as nsqd:
            with pytest.raises(ConnectFailed, match=reason):
                await Producer(nsqd.address, **options).start()

    asyncio.run(story())


def test_an_unknown_authority_is_refused(certificate: Certificate) -> None:
    async def story() -> None:
        async with FakeNsqd(tls=certificate.server(), tls_v1=True) as nsqd:
            with pytest.raises(ConnectFailed) as raised:
                await Producer(nsqd.address, tls=ssl.create_default_context()).start()
            assert "certificate verify failed" in raised.value.reason

    asyncio.run(story())


def test_a_refusal_has_its_code() -> None:
    def refuse(peer: Peer, line: bytes, body: bytes) -> None:
        peer.send(error(b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"'))
        peer.hang_up()

    async def story() -> None:
        async with FakeNsqd(refuse) as nsqd:
            with pytest.raises(ServerRefused) as raised:
                await Consumer("t", "c", nsqd.address).start()
            assert raised.value.code == "E_UNAUTHORIZED"
            assert raised.value.address == nsqd.address

    asyncio.run(story())


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", ok()[:5]])
def test_no_nsqd_at_all(answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async def story() -> None:
        server = await asyncio.start_server(speak, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(ConnectFailed):
                await Producer(f"127.0.0.1:{port}", connect_timeout_s=40).start()

    asyncio.run(story())


def test_a_mute_server_is_given_up() -> None:
    async def story() -> None:
        async with FakeNsqd(lambda *_: None) as nsqd:
            with pytest.raises(ConnectFailed, match="SUB was not answered"):
                await Consumer("t", "c", nsqd.address, connect_timeout_s=1).start()

    asyncio.run(story())
