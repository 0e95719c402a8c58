"""A refused publish ends the connection, and concerns no other publish: what was behind it, what
comes next, and what was never sent."""

import asyncio
import socket
import ssl
from typing import Any

import pytest

from cases import each
from e2e.certificates import Certificates
from penstock import __version__
from penstock.client import Consumer, Producer
from penstock.errors import ConnectFailed, ConnectionLost, PublishTimeout, ServerRefused
from penstock.wire.frames import HEARTBEAT, FrameType, encode_frame

from .fake_nsqd import FakeNsqd, Peer, error, message, ok, say_ok
from .server import until


class Strict:
    """Refuses bodies that begin with "bad" as nsqd does: with an error, and reads no further."""

    def __init__(self, refusal: bytes) -> None:
        self.refusal = refusal
        self.stored: list[bytes] = []

    def __call__(self, peer: Peer, line: bytes, body: bytes) -> None:
        if peer.transport.is_closing():
            return
        if body.startswith(b"bad"):
            peer.send(error(self.refusal))
            peer.hang_up()
        else:
            self.stored.append(body)
            peer.send(ok())


@each("code", [b"E_BAD_MESSAGE", b"E_BAD_TOPIC", b"E_BAD_BODY", b"E_INVALID", b"E_UNAUTHORIZED"])
async def test_publishes_behind_a_refused_one_are_sent_again(code: bytes) -> None:
    """nsqd has not read it, so it cannot be stored twice."""
    strict = Strict(code + b" PUB something")
    nsqd = FakeNsqd(strict)
    options: dict[str, Any] = {"reconnect_delay_s": 5.0}  # a refusal must not cost such a pause
    async with (
        nsqd,
        asyncio.timeout(4),
        Producer([nsqd.address, "127.0.0.1:1"], **options) as producer,
    ):
        bodies = [b"1", b"bad", b"2", b"3", b"bad too", b"bad three", b"4"]
        futures = [producer.pub("t", body) for body in bodies]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        refused = [isinstance(outcome, ServerRefused) for outcome in outcomes]
        assert refused == [body.startswith(b"bad") for body in bodies]
        assert outcomes.count(None) == 4
        assert producer.pending_count == producer.pending_bytes == 0
    assert strict.stored == [b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("code", [b"E_PUB_FAILED", b"E_SOMETHING_NEW"])
async def test_publishes_that_nsqd_may_have_read_have_an_unknown_outcome(code: bytes) -> None:
    """Our nsqd reads on while a batch is written, and other servers may have rules of their own."""
    strict = Strict(code + b" PUB failed: no space left")
    nsqd = FakeNsqd(strict)
    async with (
        nsqd,
        asyncio.timeout(40),
        Producer(nsqd.address, reconnect_delay_s=0.01) as producer,
    ):
        futures = [producer.pub("t", body) for body in (b"1", b"bad", b"2")]
        outcomes = await asyncio.gather(*futures, return_exceptions=True)
        assert [type(o) for o in outcomes] == [type(None), ServerRefused, ConnectionLost]
        await producer.pub("t", b"3")
    assert strict.stored == [b"1", b"3"]


async def test_unsent_publishes_wait_for_the_next_connection() -> None:
    def confused(peer: Peer, line: bytes, body: bytes) -> None:
        """Answers the first publish twice."""
        peer.send(ok() * (2 if body == b"first" else 1))

    async with FakeNsqd(confused) as nsqd, asyncio.timeout(40):
        async with Producer(nsqd.address, reconnect_delay_s=0.01) as producer:
            await producer.pub("t", b"first")
            await producer.pub("t", b"second")
        assert len(nsqd.peers) == 2


async def test_an_unknown_outcome_is_reported_at_the_timeout() -> None:
    """It was sent on the connection before, and waits for one on which to be sent again."""

    def end_at_once(peer: Peer, line: bytes, body: bytes) -> None:
        peer.server._server.close()
        peer.hang_up()

    async with FakeNsqd(end_at_once) as nsqd, asyncio.timeout(40):
        options = {"retry": True, "publish_timeout_s": 0.3, "stop_timeout_s": 0.01}
        async with Producer(nsqd.address, reconnect_delay_s=0.01, **options) as producer:
            sent = producer.pub("t", b"sent")
            await until(lambda: not producer.address)
            waits = producer.pub("t", b"waits")
            outcomes = await asyncio.gather(sent, waits, return_exceptions=True)
            sent_or_not = [o.sent for o in outcomes if isinstance(o, PublishTimeout)]
            assert sent_or_not == [True, False]


# --- the greeting and the connection ---


BIG = b"abc" * 50_000


def deliver_at_rdy(peer: Peer, line: bytes, body: bytes) -> None:
    say_ok(peer, line, body)
    if line.startswith(b"RDY"):
        peer.send(message(1, BIG) + message(2, b"two"))


@each("secure", [False, True])
@each("form", ["", "snappy", "deflate"])
async def test_every_form_of_connection(
    secure: bool, form: str, certificates: Certificates
) -> None:
    options: dict[str, Any] = {form: True} if form else {}
    if secure:
        options["tls"] = certificates.client()
    nsqd = FakeNsqd(
        deliver_at_rdy, certificates.server(), tls_v1=True, snappy=True, deflate=True,
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
        assert publishing.received[1] == (b"AUTH", b"s")
        assert publishing.received[2] == (b"PUB t", BIG)
        assert publishing.received[3:] == [(b"PUB t", b"%d" % n) for n in range(100)]


async def test_options_sent_with_identify() -> None:
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


async def test_heartbeats_are_answered() -> None:
    def beat(peer: Peer, line: bytes, body: bytes) -> None:
        if line == b"NOP":
            peer.hang_up()
        say_ok(peer, line, body)
        if line.startswith((b"RDY", b"PUB")):
            peer.send(encode_frame(FrameType.RESPONSE, HEARTBEAT))

    async with FakeNsqd(beat) as nsqd, asyncio.timeout(40):
        async with Consumer("t", "c", nsqd.address):
            await nsqd.peers[0].closed
        async with Producer(nsqd.address) as producer:
            await producer.pub("t", b"body")
            await nsqd.peers[1].closed


@pytest.mark.parametrize(
    ("options", "reason"), [({"tls": True}, "does not offer it"), ({}, "requires AUTH")]
)
async def test_options_that_nsqd_does_not_grant(options: dict[str, Any], reason: str) -> None:
    async with FakeNsqd(auth_required=True) as nsqd:
        with pytest.raises(ConnectFailed, match=reason):
            await Producer(nsqd.address, **options).start()


async def test_an_unknown_authority_is_refused(certificates: Certificates) -> None:
    async with FakeNsqd(tls=certificates.server(), tls_v1=True) as nsqd:
        with pytest.raises(ConnectFailed) as raised:
            await Producer(nsqd.address, tls=ssl.create_default_context()).start()
        assert "certificate verify failed" in raised.value.reason


async def test_a_refusal_has_its_code() -> None:
    def refuse(peer: Peer, line: bytes, body: bytes) -> None:
        peer.send(error(b'E_UNAUTHORIZED AUTH failed for SUB on "t" "c"'))
        peer.hang_up()

    async with FakeNsqd(refuse) as nsqd:
        with pytest.raises(ServerRefused) as raised:
            await Consumer("t", "c", nsqd.address).start()
        assert raised.value.code == "E_UNAUTHORIZED"
        assert raised.value.address == nsqd.address


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", ok()[:5]])
async def test_no_nsqd_at_all(answer: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(speak, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(ConnectFailed):
            await Producer(f"127.0.0.1:{port}", connect_timeout_s=40).start()


async def test_a_mute_server_is_given_up() -> None:
    async with FakeNsqd(lambda *_: None) as nsqd:
        with pytest.raises(ConnectFailed, match="SUB was not answered"):
            await Consumer("t", "c", nsqd.address, connect_timeout_s=1).start()
