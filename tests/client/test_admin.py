"""Admin calls against a real nsqd."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from e2e.answering import served
from net.scripted import HANG_UP, Server, answer
from penstock.client import (
    Admin,
    BrokerRefused,
    ClientError,
    ConnectFailed,
    ConnectionLost,
    Producer,
)
from penstock.errors import ConfigError
from penstock.nsqdapi.calls import Move
from penstock.testing import TestBroker

broker = served(TestBroker, scope="module")


@contextmanager
def refused(status: int, code: str) -> Iterator[None]:
    with pytest.raises(BrokerRefused) as raised:
        yield
    assert (raised.value.status, raised.value.code) == (status, code)


async def test_the_life_of_a_topic(broker: TestBroker) -> None:
    async with Admin(broker.http_address) as admin:
        await admin.create_topic("life", partitions=2, extended=True)
        await admin.create_topic("life", partitions=2, extended=True)
        shape = await admin.shape("life")
        assert (shape.partitions, shape.extended) == (2, True)
        await admin.expand_topic("life", 3)
        assert (await admin.shape("life")).partitions == 3
        await admin.pause_topic("life")
        (topic,) = (await admin.stats("life"))["topics"]
        assert topic["paused"] is True
        await admin.unpause_topic("life")
        (topic,) = (await admin.stats("life"))["topics"]
        assert topic["paused"] is False
        await admin.delete_topic("life")
        with refused(404, "TOPIC_NOT_FOUND"):
            await admin.shape("life")


async def test_the_backlog_of_a_topic(broker: TestBroker) -> None:
    async with Admin(f"http://{broker.http_address}/") as admin:
        async with Producer(broker.address) as producer:
            await producer.mpub("waits", [b"one", b"two"])
        span = (await admin.partitions("waits"))[0]
        assert (span.earliest, span.committed) == (0, 2)
        (topic,) = (await admin.stats("waits"))["topics"]
        assert topic["depth"] == 2
        await admin.empty_topic("waits")
        (topic,) = (await admin.stats("waits"))["topics"]
        assert topic["depth"] == 0
        with refused(404, "TOPIC_NOT_FOUND"):
            await admin.partitions("nowhere")


async def test_the_life_of_a_channel(broker: TestBroker) -> None:
    async with Admin(broker.http_address) as admin:

        async def depth() -> int:
            (topic,) = (await admin.stats("orders", "billing"))["topics"]
            (channel,) = topic["channels"]
            assert channel["paused"] is paused
            return int(channel["depth"])

        paused = False
        await admin.create_topic("orders")
        await admin.create_channel("orders", "billing")
        async with Producer(broker.address) as producer:
            await producer.mpub("orders", [b"one", b"two", b"three"])
        assert await depth() == 3
        paused = True
        await admin.pause_channel("orders", "billing")
        assert await depth() == 3
        paused = False
        await admin.unpause_channel("orders", "billing")
        await admin.empty_channel("orders", "billing")
        assert await depth() == 0
        again = Move(again=2, skipped=0, given_up=0)
        assert await admin.seek("orders", "billing", "back:2", dry_run=True) == again
        assert await depth() == 0
        assert await admin.seek("orders", "billing", "offset:1", partition=0) == again
        assert await depth() == 2
        hour_ago = datetime.now(UTC) - timedelta(hours=1)
        await admin.seek("orders", "billing", hour_ago)
        assert await depth() == 3
        await admin.delete_channel("orders", "billing")
        with refused(404, "CHANNEL_NOT_FOUND"):
            await admin.pause_channel("orders", "billing")


async def test_changes_need_the_secret(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("hush-hush-hush-hush")
    path.chmod(0o600)
    with TestBroker(f"--http-secret-file={path}") as broker:
        async with Admin(broker.http_address, http_secret="hush-hush-hush-hush") as admin:
            await admin.create_topic("orders")
        async with Admin(broker.http_address) as stranger:
            await stranger.shape("orders")
            with pytest.raises(ClientError) as raised:
                await stranger.delete_topic("orders")
    assert isinstance(raised.value, BrokerRefused)
    assert raised.value.status == 401


async def test_no_answer() -> None:
    async with Admin("127.0.0.1:1") as admin:
        with pytest.raises(ConnectFailed):
            await admin.create_topic("orders")
    for address in ("127.0.0.1", "/run/nsqd.sock", "ftp://127.0.0.1"):
        with pytest.raises(ConfigError):
            Admin(address)


async def test_servers_other_than_nsqd() -> None:
    async with Server(HANG_UP, answer("200 OK", b"<ok>")) as server, Admin(server.url) as admin:
        with pytest.raises(ConnectionLost):
            await admin.delete_topic("orders")
        with pytest.raises(ConnectFailed, match="no JSON object"):
            await admin.stats()
