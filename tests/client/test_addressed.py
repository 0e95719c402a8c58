"""Publishes into a partition, with a key and with headers, and consumers of one partition: the
bytes of the commands, and against a real nsqd."""

import asyncio
import json
from typing import Any

import pytest

from cases import each
from e2e.daemon import Daemon, shared_daemon
from penstock.client import Consumer, Producer
from penstock.client.publishing import Outgoing, command
from penstock.errors import ConfigError, NameInvalid, ServerRefused

COUNT = 4


daemon = shared_daemon("--durability=os")


@pytest.fixture
def topic(request: pytest.FixtureRequest, daemon: Daemon) -> str:
    name = str(request.function.__name__).removeprefix("test_")[:64]
    make(daemon, name)
    return name


def make(daemon: Daemon, name: str, query: str = "") -> None:
    daemon.post(f"/topic/create?topic={name}&partition_num={COUNT}{query}")


def ends(daemon: Daemon, topic: str) -> list[int]:
    _, answer = daemon.http("GET", f"/log/positions?topic={topic}")
    spans = json.loads(answer)["topics"][topic]["partitions"]
    return [spans[str(number)]["committed"] for number in range(COUNT)]


def tcp(daemon: Daemon) -> str:
    return f"127.0.0.1:{daemon.tcp_port}"


# --- bytes ---


def one(**text: Any) -> Outgoing:
    return Outgoing("t", [b"b"], **text)


@each(
    ("outgoing", "sent"),
    [
        (one(), b"PUB t\n\0\0\0\x01b"),
        (one(partition=3), b"PUB t 3\n\0\0\0\x01b"),
        (one(partition=3, trace_id=7), b"PUB_TRACE t 3\n\0\0\0\x09\0\0\0\0\0\0\0\x07b"),
        (one(key="k"), b'PUB_EXT t\n\0\0\0\x0e\0\x0b{"key":"k"}b'),
        (one(partition=3, headers={"a": "\u00e9"}),
         'PUB_EXT t 3\n\0\0\0\x0d\0\x0a{"a":"\u00e9"}b'.encode()),
        (one(headers={}), b"PUB_EXT t\n\0\0\0\x05\0\x02{}b"),
        (one(key="k", headers={"key": "k"}), b'PUB_EXT t\n\0\0\0\x0e\0\x0b{"key":"k"}b'),
        (one(trace_id=9, headers={}), b'PUB_EXT t\n\0\0\0\x15\0\x12{"##trace_id":"9"}b'),
        (one(delay_s=1.5), b"DPUB t 1500\n\0\0\0\x01b"),
        (one(several=True, partition=3), b"MPUB t 3\n\0\0\0\x09\0\0\0\x01\0\0\0\x01b"),
    ],
)  # fmt: skip
def test_the_bytes_of_a_publish(outgoing: Outgoing, sent: bytes) -> None:
    assert command(outgoing) == sent


def test_the_bytes_of_a_multi_publish() -> None:
    front = b'\0\x0b{"key":"k"}'
    assert command(Outgoing("t", [b"b", b"c"], several=True, key="k")) == (
        b"MPUB_EXT t\n\0\0\0\x28\0\0\0\x02\0\0\0\x0e%bb\0\0\0\x0e%bc" % (front, front)
    )


@each(
    ("to", "text"),
    [
        ({"partition": -1}, "partition: -1 is not valid: 0 to 254"),
        ({"partition": 255}, "partition: 255 is not valid: 0 to 254"),
        ({"partition": "3"}, "partition: '3' is not valid: 0 to 254"),
        ({"trace_id": "7"}, "trace_id: '7' is not valid: 0 to 18446744073709551615"),
        ({"partition": 1, "key": "k"},
         "partition: 1 is not valid: a publish names a key or a partition"),
        ({"key": "k", "headers": {"key": "l"}}, "key: 'k' is not valid: headers name another one"),
        ({"headers": {"a": 1}}, "names and values are strings"),
        ({"key": "\udc80"}, "half of a surrogate pair"),
        ({"key": "k" * 65_526}, "headers: 65536 is not valid: 65535 bytes of JSON at most"),
    ],
)  # fmt: skip
def test_invalid_publishes_are_not_sent(to: dict[str, Any], text: str) -> None:
    for several in (False, True):
        with pytest.raises(ConfigError) as raised:
            command(one(several=several, **to))
        assert text in str(raised.value)


def test_a_delay_and_a_name_have_to_be_ones() -> None:
    with pytest.raises(ConfigError, match="delay_s: '1m' is not valid: must be from 0 to"):
        command(one(delay_s="1m"))
    with pytest.raises(NameInvalid, match="topic name 5 is not valid"):
        command(Outgoing(5, [b"b"]))  # type: ignore[arg-type]


def test_several_with_headers_have_no_trace_id() -> None:
    with pytest.raises(ConfigError, match="a trace id, or a key and headers"):
        command(one(several=True, trace_id=7, key="k"))


# --- a real nsqd ---


async def test_headers_want_an_extended_topic(daemon: Daemon, topic: str) -> None:
    """The connection goes on behind the refusal, and so does what was sent behind it."""
    extended = f"{topic}.extended"
    make(daemon, extended, "&extend=true")
    async with Producer(tcp(daemon)) as producer, asyncio.timeout(40):
        headers = {"a": "b"}
        outcomes: list[Any] = await asyncio.gather(
            producer.pub(topic, b"x", headers=headers),
            producer.pub(topic, b"x", partition=0),
            producer.pub(extended, b"x", headers=headers, partition=1),
            producer.pub(extended, b"x", headers=headers, partition=1, trace_id=9),
            return_exceptions=True,
        )
        refused, plain, headed, traced = outcomes
        assert isinstance(refused, ServerRefused)
        assert refused.code == "E_EXT_NOT_SUPPORT"
        assert (plain, headed, traced.offset, traced.trace_id) == (None, None, 1, 9)
    assert ends(daemon, topic) == [1, 0, 0, 0]
    assert ends(daemon, extended) == [0, 2, 0, 0]


async def test_a_consumer_of_one_partition(daemon: Daemon, topic: str) -> None:
    async with (
        Producer(tcp(daemon)) as producer,
        Consumer(topic, "c", tcp(daemon), partition=1) as consumer,
        asyncio.timeout(40),
    ):
        for number in range(COUNT):
            await producer.pub(topic, b"%d" % number, partition=number)
        await producer.pub(topic, b"last", partition=1)
        bodies = []
        async for message in consumer:
            bodies.append(message.body)
            await message.fin()
            if message.body == b"last":
                break
        assert bodies == [b"1", b"last"]
    with pytest.raises(ConfigError, match="0 to 254"):
        Consumer(topic, "c", tcp(daemon), partition=-1)


async def test_a_producer_gives_each_message_an_id_of_its_own(daemon: Daemon) -> None:
    make(daemon, "unique", "&extend=true")
    async with Producer(tcp(daemon), unique_ids=True) as producer:
        await producer.pub("unique", b"one")
        await producer.mpub("unique", [b"two", b"three"])
        await producer.pub("unique", b"own", headers={"UNIQ_KEY": "mine"})
    async with Consumer("unique", "ch", tcp(daemon), headers=True, stop_timeout_s=0) as consumer:
        keys = [(await anext(consumer)).headers["UNIQ_KEY"] for _ in range(4)]
    assert "mine" in keys
    assert len(set(keys)) == 4
    assert all(len(key) == 32 for key in keys if key != "mine")
