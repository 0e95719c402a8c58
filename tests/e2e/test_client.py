"""The client library against a real nsqd: publishing, consuming, handlers, stops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import limits
from penstock.client import Consumer, Message, Producer, Requeue
from penstock.errors import (
    ClientClosed,
    ConfigError,
    ConnectFailed,
    MessageSettled,
    NameInvalid,
    ServerRefused,
)

from .daemon import Daemon

END_S_MAX = 60.0


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("client") / "data", "--durability=os") as daemon:
        yield daemon


@pytest.fixture
def address(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.tcp_port}"


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    return str(request.function.__name__).removeprefix("test_")[:64]


async def take(consumer: Consumer, count: int) -> list[bytes]:
    """Finish `count` messages."""
    bodies = []
    async with asyncio.timeout(END_S_MAX):
        async for message in consumer:
            bodies.append(message.body)
            await message.fin()
            if len(bodies) == count:
                break
    return bodies


def test_what_is_published_is_consumed(address: str, topic: str) -> None:
    async def story() -> None:
        async with Producer(address) as producer:
            await producer.pub(topic, b"one")
            await producer.mpub(topic, [b"two", b"three"])
            await producer.dpub(topic, b"later", 0.05)
            await asyncio.gather(*(producer.pub(topic, b"%d" % n) for n in range(1000)))
            count = await producer.pub_many(topic, (b"m%d" % n for n in range(1000)), window=64)
            assert count == 1000
            assert producer.pending_count == producer.pending_bytes == 0
        async with Consumer(topic, "c", address, max_in_flight=100) as consumer:
            bodies = await take(consumer, 2004)
        wanted = [b"one", b"two", b"three", b"later"]
        wanted += [b"%d" % n for n in range(1000)] + [b"m%d" % n for n in range(1000)]
        assert sorted(bodies) == sorted(wanted)

    asyncio.run(story())


def test_a_message_says_what_it_is(daemon: Daemon, address: str, topic: str) -> None:
    async def story() -> None:
        async with Producer(address) as producer, Consumer(topic, "c", address) as consumer:
            await producer.pub(topic, b"body")
            first = await anext(consumer)
            assert (first.attempts, first.body, first.address) == (1, b"body", address)
            assert len(first.id) == 16
            assert first.timestamp_ns > 1_600_000_000_000_000_000
            await first.touch()
            await first.req()
            with pytest.raises(MessageSettled):
                first.fin()
            second = await anext(consumer)
            assert (second.attempts, second.id) == (2, first.id)
            second.fin()  # awaiting it is a matter of taste
        assert daemon.channel_stats(topic, "c")["requeue_count"] == 1
        assert consumer.counts.finished == consumer.counts.requeued == 1

    asyncio.run(story())


def test_handlers_and_back_off(address: str, topic: str) -> None:
    async def story() -> None:
        seen: list[tuple[bytes, int]] = []
        given_up: list[bytes] = []

        async def handle(message: Message) -> None:
            seen.append((message.body, message.attempts))
            if message.body == b"asks" and message.attempts == 1:
                raise Requeue(0, backoff=False)
            if message.body == b"bad":
                raise RuntimeError("cannot be done")

        async def give_up(message: Message) -> None:
            given_up.append(message.body)
            consumer.stop()

        async with Producer(address) as producer:
            for body in (b"good", b"asks", b"bad"):
                await producer.pub(topic, body)
        consumer = Consumer(
            topic, "c", address, max_attempts=2, requeue_delay_s=0.01, backoff_s=0.02
        )
        async with consumer, asyncio.timeout(END_S_MAX):
            await consumer.run(handle, on_giving_up=give_up)
        assert given_up == [b"bad"]
        assert sorted(seen) == [(b"asks", 1), (b"asks", 2), (b"bad", 1), (b"bad", 2), (b"good", 1)]
        assert consumer.counts.given_up == 1

    asyncio.run(story())


def test_callers_mistakes_are_named(address: str) -> None:
    async def story() -> None:
        with pytest.raises(ConfigError, match="name an nsqd"):
            Producer()
        with pytest.raises(ConfigError, match="max_in_flihgt"):
            Consumer("t", "c", address, max_in_flihgt=1)
        with pytest.raises(ConfigError, match="sample_rate"):
            Consumer("t", "c", address, sample_rate=100)
        with pytest.raises(ConfigError, match="host:port"):
            Producer("localhost")
        with pytest.raises(NameInvalid):
            Consumer("a b", "c", address)
        producer = Producer(address)
        with pytest.raises(ClientClosed):
            producer.pub("t", b"body")
        async with producer:
            with pytest.raises(NameInvalid):
                producer.pub("a b", b"body")
            with pytest.raises(ConfigError):
                producer.pub("t", b"")
            await producer.pub("t", b"the connection still stands")
        with pytest.raises(ClientClosed):
            producer.pub("t", b"body")

    asyncio.run(story())


def test_nobody_there(topic: str, tmp_path: Path) -> None:
    async def story() -> None:
        nowhere = str(tmp_path / "no.socket")
        with pytest.raises(ConnectFailed) as raised:
            await Producer(nowhere).start()
        assert raised.value.address == nowhere
        with pytest.raises(ConnectFailed):
            await Consumer(topic, "c", nowhere).start()

    asyncio.run(story())


def test_a_refused_publish_takes_none_along_that_was_sent_behind_it(
    address: str, topic: str
) -> None:
    async def story() -> None:
        too_big = bytes(limits.MESSAGE_BYTES_MAX + 1)
        bodies = [b"%d" % n if n % 40 != 20 else too_big for n in range(200)]
        async with Producer(address) as producer:
            futures = [producer.pub(topic, body) for body in bodies]
            outcomes = await asyncio.gather(*futures, return_exceptions=True)
        refused = [n for n, outcome in enumerate(outcomes) if isinstance(outcome, ServerRefused)]
        assert refused == [20, 60, 100, 140, 180]
        assert [type(outcome) for outcome in outcomes].count(type(None)) == 195
        async with Consumer(topic, "c", address) as consumer:
            assert await take(consumer, 195) == [body for body in bodies if body is not too_big]

    asyncio.run(story())
