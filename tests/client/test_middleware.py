"""Middleware around handlers and publishes, against a scripted nsqd and a real one."""

import asyncio
from typing import Any

import pytest

from cases import each
from penstock.client import (
    AlreadyStarted,
    Consumer,
    HandlerTimeout,
    IdempotentProducer,
    Message,
    Next,
    NotStarted,
    Outgoing,
    Producer,
    Requeue,
)
from penstock.errors import ClientClosed, ConfigError, NameInvalid, ProducerFull
from penstock.testing import TestBroker

from .fake_nsqd import FakeNsqd, message
from .test_handlers import run


async def test_around_handlers() -> None:
    seen: list[Any] = []

    async def outer(found: Message, call_next: Next[Message]) -> Any:
        try:
            seen.append(("outer", await call_next(found)))
        except Exception as failure:
            seen.append(type(failure))
            raise

    async def inner(found: Message, call_next: Next[Message]) -> Any:
        if found.body == b"filtered":
            return None
        seen.append("inner")
        return await call_next(found)

    async def handle(found: Message) -> str:
        if found.body == b"hangs":
            await asyncio.Event().wait()
        if found.body == b"asks":
            raise Requeue(2)
        return "done"

    frames = [message(n + 1, body) for n, body in enumerate([b"", b"filtered", b"asks", b"hangs"])]
    options = {"middleware": [outer, inner]}
    lines, _ = await run(frames, handle, options, handler_timeout_s=0.05)
    assert lines == [b"FIN 1", b"FIN 2", b"REQ 3 2000", b"REQ 4 90000", b"FIN f"]
    assert seen == [
        "inner", ("outer", None),
        ("outer", None),
        "inner", Requeue,
        "inner", HandlerTimeout,
        "inner", ("outer", None),
    ]  # fmt: skip


async def upper(outgoing: Outgoing, call_next: Next[Outgoing]) -> Any:
    outgoing.bodies = [body.upper() for body in outgoing.bodies]
    return await call_next(outgoing)


async def tagged(outgoing: Outgoing, call_next: Next[Outgoing]) -> Any:
    outgoing.headers = {**(outgoing.headers or {}), "by": "us"}
    return await call_next(outgoing)


@each("kind", [Producer, IdempotentProducer])
async def test_around_every_publish(kind: Any) -> None:
    with TestBroker() as broker:
        address = broker.address if kind is Producer else broker.http_address
        async with kind(address, middleware=[upper]) as producer:
            published = await producer.pub("t", b"one", trace_id=7)
            assert published.trace_id == 7
            await producer.mpub("t", [b"two", b"three"])
            await producer.dpub("t", b"later", 0.001)
            await producer.pub_many("t", [b"%dth" % n for n in range(1000)])
            assert (producer.pending_count, producer.pending_bytes) == (0, 0)
            for wrong in (producer.pub("no name", b"x"), producer.dpub("t", b"x", -1)):
                with pytest.raises((NameInvalid, ConfigError)):
                    await wrong
        # In the order of the calls, for a chain that waits for nothing.
        assert broker.messages("t") == [
            b"ONE", b"TWO", b"THREE", b"LATER", *(b"%dTH" % n for n in range(1000)),
        ]  # fmt: skip


async def test_changes_by_middleware_are_sent_or_refused() -> None:
    async with FakeNsqd() as nsqd, Producer(nsqd.address, middleware=[tagged]) as producer:
        await producer.pub("t", b"one", key="k")
        with pytest.raises(ConfigError, match="a publish with a delay, or"):
            await producer.dpub("t", b"later", 1)
    assert nsqd.peers[0].lines() == [b"PUB_EXT t"]
    with TestBroker() as broker:
        async with IdempotentProducer(broker.http_address, middleware=[tagged]) as once:
            with pytest.raises(ConfigError, match="of an IdempotentProducer, takes none"):
                await once.pub("t", b"one")


async def test_bounds_and_ends_know_what_is_in_the_chain() -> None:
    gate = asyncio.Event()

    async def hold(outgoing: Outgoing, call_next: Next[Outgoing]) -> Any:
        await gate.wait()
        return await call_next(outgoing)

    async with FakeNsqd() as nsqd:
        producer = Producer(nsqd.address, middleware=[hold], pending_count_max=2)
        with pytest.raises(NotStarted):
            producer.pub("t", b"early")
        async with producer:
            held = [producer.publish_nowait("t", b"held") for _ in range(2)]
            with pytest.raises(ProducerFull, match="2"):
                producer.publish_nowait("t", b"more")
            asyncio.get_running_loop().call_later(0.01, gate.set)
        await asyncio.gather(*held)
        assert nsqd.peers[0].lines() == [b"PUB t", b"PUB t"]
        gate.clear()
        producer = Producer(nsqd.address, middleware=[hold], stop_timeout_s=0.01)
        async with producer:
            late = producer.pub("t", b"late")
        gate.set()
        with pytest.raises(ClientClosed):
            await late


async def test_a_second_start_of_an_open_client_is_named() -> None:
    async with FakeNsqd() as nsqd:
        once = IdempotentProducer(nsqd.address, connect_required=False)
        for client in (Producer(nsqd.address), once, Consumer("t", "c", nsqd.address)):
            async with client:
                with pytest.raises(AlreadyStarted, match="is started already"):
                    await client.start()


def test_before_the_start() -> None:
    for client in (Producer("a:1"), IdempotentProducer("a:1")):
        with pytest.raises(NotStarted, match="the producer is not started"):
            client.pub("t", b"one")
    with pytest.raises(NotStarted, match="the consumer is not started"):
        asyncio.run(Consumer("t", "c", "a:1").run(upper))  # type: ignore[arg-type]
