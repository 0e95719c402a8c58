"""A producer whose nsqds refuse, fall silent and go away."""

import asyncio
import gc

import pytest

from penstock.client import OutcomeUnknown, Producer, Published
from penstock.errors import ConfigError, ConnectFailed, ConnectionLost, ProducerFull, PublishTimeout
from penstock.wire.frames import FrameType, encode_frame
from penstock.wire.trace_ids import encode_reply, split_many, split_one

from .fake_nsqd import FakeNsqd, OnCommand, Peer, error, ok, say_ok
from .server import until


def hang_up_at(marked: bytes) -> OnCommand:
    """Answer every publish but the one with this body, at which the connection ends."""

    def act(peer: Peer, line: bytes, body: bytes) -> None:
        if body == marked:
            peer.transport.abort()
        else:
            say_ok(peer, line, body)

    return act


def published(nsqd: FakeNsqd) -> list[bytes]:
    return [body for peer in nsqd.peers for line, body in peer.received if line.startswith(b"PUB")]


async def test_retries_go_to_the_next_address_in_order() -> None:
    first = FakeNsqd(hang_up_at(b"2"))
    async with first, FakeNsqd() as second, asyncio.timeout(40):
        async with Producer([first.address, second.address], retry=True) as producer:
            assert producer.address == first.address
            await asyncio.gather(*(producer.pub("t", b"%d" % n) for n in range(4)))
            assert producer.address == second.address
        assert published(second)[-2:] == [b"2", b"3"]


def refuse(text: bytes, times: int) -> OnCommand:
    """So many publishes, each by an error at which the connection ends; later ones are taken."""
    left = [text] * times

    def act(peer: Peer, line: bytes, body: bytes) -> None:
        if not left:
            say_ok(peer, line, body)
            return
        peer.send(error(left.pop()))
        peer.hang_up()

    return act


async def test_a_refusal_that_passes_is_tried_again() -> None:
    """Closing waits for its answer, as for that of every other publish."""
    text = b"E_PUB_FAILED PUB failed the disk is full"
    async with FakeNsqd(refuse(text, 2)) as nsqd, asyncio.timeout(40):
        options = {"retry": True, "reconnect_delay_s": 0.01}
        async with Producer(nsqd.address, **options) as producer:
            future = producer.pub("t", b"body")
        assert future.done()
        await future
    assert published(nsqd) == [b"body"] * 3


async def test_publishes_refused_by_a_stopping_nsqd_go_to_the_next() -> None:
    """It stores nothing of what was behind, either."""
    first = FakeNsqd(refuse(b"E_PUB_FAILED PUB failed exiting", 1))
    async with (
        first,
        FakeNsqd() as second,
        asyncio.timeout(40),
        Producer([first.address, second.address]) as producer,
    ):
        await asyncio.gather(*(producer.pub("t", b"%d" % n) for n in range(3)))
    assert published(second) == [b"0", b"1", b"2"]


async def test_an_outcome_that_is_not_known_is_an_error_of_its_own() -> None:
    text = b"E_PUB_FAILED PUB failed the link to node 1 has ended: "
    nsqd = FakeNsqd(refuse(text + b"it is not known whether it was stored", 1))
    async with nsqd, asyncio.timeout(40), Producer(nsqd.address) as producer:
        with pytest.raises(OutcomeUnknown):
            await producer.pub("t", b"body")


async def test_a_traced_publish_returns_its_position() -> None:
    """Between others, which are answered by a plain OK."""

    def answer(peer: Peer, line: bytes, body: bytes) -> None:
        if line.endswith(b"_TRACE t"):
            reply = encode_reply(0xABC, 7, 5 + len(peer.received), 99)
            peer.send(encode_frame(FrameType.RESPONSE, reply))
        else:
            say_ok(peer, line, body)

    async with FakeNsqd(answer) as nsqd, asyncio.timeout(40):
        async with Producer(nsqd.address) as producer:
            positions = await asyncio.gather(
                producer.pub("t", b"a"),
                producer.pub("t", b"b", trace_id=7),
                producer.mpub("t", [b"c", b"d"], trace_id=[7, 0]),
                producer.mpub("t", [b"e"], trace_id=(1 << 64) - 1),
                producer.pub("t", b"f"),
            )
            assert producer.pending_count == producer.pending_bytes == 0
        offset = positions[1].offset
        places = [Published("0000000000000abc", offset + n, 7) for n in range(3)]
        assert positions == [None, *places, None]
        message = nsqd.peers[0].received[-5:]
        assert [line for line, _ in message] == [
            *(b"PUB t", b"PUB_TRACE t", b"MPUB_TRACE t", b"MPUB_TRACE t", b"PUB t")
        ]
        assert split_one(message[1][1]) == (7, b"b")
        assert split_many(message[2][1], 100) == [(7, b"c"), (0, b"d")]
        assert split_many(message[3][1], 100) == [((1 << 64) - 1, b"e")]


async def test_invalid_trace_ids() -> None:
    async with FakeNsqd() as nsqd, asyncio.timeout(40), Producer(nsqd.address) as producer:
        for wrong in (0, -1, 1 << 64):
            with pytest.raises(ConfigError, match=r"trace_id.*1 to 18446744073709551615"):
                producer.pub("t", b"a", trace_id=wrong)
        with pytest.raises(ConfigError, match="one for 2 bodies"):
            producer.mpub("t", [b"a", b"b"], trace_id=[1])
        with pytest.raises(ConfigError, match="0 to 18446744073709551615"):
            producer.mpub("t", [b"a", b"b"], trace_id=[1, 1 << 64])
        assert producer.pending_count == 0


async def test_waiting_is_bounded() -> None:
    async with FakeNsqd(lambda *_: None) as nsqd, asyncio.timeout(40):
        options = {"publish_timeout_s": 0.5, "stop_timeout_s": 0.01, "retry": True}
        async with Producer(nsqd.address, **options) as producer:
            first = producer.pub("t", b"body")
            await asyncio.sleep(0.3)
            later = producer.pub("t", b"body")
            with pytest.raises(PublishTimeout) as raised:
                await first
            assert raised.value.sent
            assert not later.done()
            with pytest.raises(PublishTimeout):
                await later


async def test_a_cancelled_end_leaves_nothing_behind() -> None:
    async with FakeNsqd(lambda *_: None) as nsqd, asyncio.timeout(40):
        producer = Producer(nsqd.address)
        await producer.start()
        future = producer.pub("t", b"body")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await producer.close()
        with pytest.raises(ConnectionLost):
            await future
        await nsqd.peers[0].closed
        assert producer.address is None


async def test_what_was_sent_is_in_doubt_at_the_end_when_it_would_be_retried() -> None:
    async with FakeNsqd(lambda *_: None) as nsqd:
        async with Producer(nsqd.address, retry=True, stop_timeout_s=0.01) as producer:
            future = producer.pub("t", b"body")
            await until(lambda: published(nsqd))
        with pytest.raises(ConnectionLost):
            await future


async def test_a_full_producer_refuses_and_empties() -> None:
    held: list[Peer] = []
    async with FakeNsqd(lambda peer, *_: held.append(peer)) as nsqd:
        options = {"pending_count_max": 2, "pending_bytes_max": 1000}
        async with Producer(nsqd.address, **options) as producer:
            futures = [producer.publish_nowait("t", b"x") for _ in range(2)]
            with pytest.raises(ProducerFull) as raised:
                producer.publish_nowait("t", b"x")
            assert raised.value.pending_count == 2
            await until(lambda: len(held) >= 2)
            held[0].send(ok() + ok())
            await asyncio.gather(*futures)
            with pytest.raises(ProducerFull):
                producer.publish_nowait("t", b"x" * 1001)
            last = producer.publish_nowait("t", b"x")
            await asyncio.sleep(0)
            held[0].send(ok())
            await last


async def test_publishes_wait_for_a_connection() -> None:
    async with FakeNsqd() as nsqd, asyncio.timeout(40):
        address = nsqd.address
    producer = Producer(address, connect_required=False, reconnect_delay_s=0.01)
    async with producer, asyncio.timeout(40):
        assert producer.address is None
        future = producer.pub("t", b"early")
        loop = asyncio.get_running_loop()
        port = int(address.split(":")[1])
        again = FakeNsqd()
        server = await loop.create_server(lambda: Peer(again), "127.0.0.1", port)
        async with server:
            await future
            again.peers[0].hang_up()


async def test_a_cancelled_publish_keeps_its_place() -> None:
    held: list[Peer] = []
    nsqd = FakeNsqd(lambda peer, *_: held.append(peer))
    async with asyncio.timeout(40), nsqd, Producer(nsqd.address) as producer:
        first, second = producer.pub("t", b"1"), producer.pub("t", b"2")
        first.cancel()
        await until(lambda: len(held) >= 2)
        held[0].send(ok())
        await asyncio.sleep(0.01)
        assert not second.done()
        held[0].send(ok())
        await second


async def test_every_address_is_tried() -> None:
    async with FakeNsqd() as gone:
        pass
    async with FakeNsqd() as nsqd:
        async with Producer([gone.address, nsqd.address]) as producer:
            assert producer.address == nsqd.address
        with pytest.raises(ConnectFailed):
            await Producer([gone.address]).start()


async def test_pub_many_stops_at_the_first_error_and_awaits_all_answers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gc.collect()  # what other tests have left
    caplog.clear()
    async with FakeNsqd(hang_up_at(b"5")) as nsqd, Producer(nsqd.address) as producer:
        with pytest.raises(ConnectionLost):
            await producer.pub_many("t", (b"%d" % n for n in range(1000)), window=20)
        assert len(published(nsqd)) < 100
    gc.collect()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize("delay_s", [-0.1, float("nan"), float("inf")])
async def test_delays_are_checked(delay_s: float) -> None:
    async with FakeNsqd() as nsqd, Producer(nsqd.address) as producer:
        with pytest.raises(ConfigError, match="delay_s"):
            producer.dpub("t", b"body", delay_s)
