"""Messages that bring their headers, from a real nsqd."""

import asyncio
from typing import Any

import pytest

from cases import each
from penstock.client import Admin, Consumer, Message, Producer
from penstock.client.framing import FrameBroken
from penstock.client.subscription import EnvelopedMessage, HeadedMessage
from penstock.testing import TestBroker


async def make_topics(broker: TestBroker, *channels: str) -> None:
    async with Admin(broker.http_address) as admin:
        await admin.create_topic("with", partitions=2, extended=True)
        await admin.create_topic("without")
        for topic in ("with", "without"):
            for channel in channels:
                await admin.create_channel(topic, channel)


async def read(
    broker: TestBroker, topic: str, channel: str, count: int, **options: Any
) -> list[Message]:
    async with asyncio.timeout(30), Consumer(topic, channel, broker.address, **options) as consumer:
        found = [await anext(consumer) for _ in range(count)]
        for message in found:
            await message.fin()
    return found


async def test_headers_and_keys_arrive(penstock_broker: TestBroker) -> None:
    await make_topics(penstock_broker, "c")
    async with Producer(penstock_broker.address) as producer:
        await producer.pub("with", b"one", key="k1", headers={"color": "red"})
        await producer.pub("with", b"two", key="k2", headers={"color": "blue"})
        await producer.pub("with", b"three", headers={"color": "red"})
    red = {"type": 1, "filter_ext_key": "color", "filter_data": "red"}
    found = await read(penstock_broker, "with", "c", 2, headers=True, ext_filter=red)
    reply = sorted((one.body, one.key, one.headers) for one in found)
    assert reply == [
        (b"one", "k1", {"key": "k1", "color": "red"}),
        (b"three", None, {"color": "red"}),
    ]


async def test_a_message_says_where_it_comes_from(penstock_broker: TestBroker) -> None:
    async def seen(topic: str, channel: str, count: int, **options: Any) -> set[Any]:
        return {
            (one.body, one.topic, one.partition, one.key, one.headers.get("color", ""))
            for one in await read(penstock_broker, topic, channel, count, **options)
        }

    await make_topics(penstock_broker, "plain", "placed", "enveloped")
    async with Producer(penstock_broker.address) as producer:
        await producer.pub("with", b"one", partition=1)
        await producer.pub("with", b"two", partition=0, headers={"color": "red"})
        await producer.pub("without", b"three", key="k")
    assert await seen("with", "enveloped", 2, envelope=True) == {
        (b"one", "with", 1, None, ""),
        (b"two", "with", 0, None, "red"),
    }
    assert await seen("with", "placed", 1, partition=1) == {(b"one", "with", 1, None, "")}
    assert await seen("without", "enveloped", 1, envelope=True) == {
        (b"three", "without", 0, "k", "")
    }
    assert await seen("without", "plain", 1) == {(b"three", "without", None, None, "")}


@each(
    ("kind", "rest"),
    [
        *[(EnvelopedMessage, one) for one in (b"", b"\0", b"\0\1", b"\0\1\2", b"\0\0\1\0\2k")],
        *[(HeadedMessage, one) for one in (b"", b"\x01x", b"\4", b"\4\0", b"\4\0\5{}")],
    ],
)
def test_what_stands_in_front_of_a_body_is_checked(kind: Any, rest: bytes) -> None:
    with pytest.raises(FrameBroken):
        kind(None, 0, 1, b"", rest)
