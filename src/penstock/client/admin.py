"""Making, changing and removing topics and channels, over the HTTP API of one nsqd.

    async with Admin("127.0.0.1:4151") as admin:
        await admin.create_topic("orders", partitions=4)
        await admin.seek("orders", "billing", "earliest")

Nothing is tried twice. BrokerRefused has nsqd's own `status` and `code` ("TOPIC_NOT_FOUND");
ConnectFailed: it was not sent; ConnectionLost: it may be done or not.
"""

import ssl
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Self, TypeVar

from penstock import __version__, limits
from penstock.client.discovery import http_url
from penstock.errors import BrokerRefused, ConnectFailed, ConnectionLost, FetchFailed
from penstock.net.fetch import Fetcher, public
from penstock.net.secret_file import bearer
from penstock.nsqdapi import calls
from penstock.nsqdapi.aio import exchange
from penstock.nsqdapi.calls import AnswerInvalid, Call, LogSpan, Move, Shape
from penstock.times import format_seconds

T = TypeVar("T")


class Admin:
    """`address`: `host:port` of its HTTP side, or a URL. `http_secret`: the content of its
    --http-secret-file."""

    def __init__(
        self,
        address: str,
        *,
        tls: ssl.SSLContext | None = None,
        http_secret: str = "",
        timeout_s: float = 10.0,
    ) -> None:
        self._url = http_url(address, tls is not None)
        self._fetcher = Fetcher(
            request_timeout_ns=round(timeout_s * limits.SECOND), tls=tls, keeps_connections=False
        )
        self._headers = {"User-Agent": f"penstock/{__version__}"}
        self._credentials = bearer(http_secret)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._fetcher.close()

    async def create_topic(
        self,
        topic: str,
        *,
        partitions: int | None = None,
        replicas: int | None = None,
        extended: bool = False,
    ) -> None:
        """An existing topic stays unchanged; a different shape is refused with 409."""
        await self._ask(calls.create(topic, partitions, replicas, extended))

    async def expand_topic(self, topic: str, partitions: int, *, rehash: bool = False) -> None:
        """Grow to this number of partitions. Keys stay in their partitions, unless `rehash` spreads
        them over all, which is refused while a channel has unfinished messages."""
        await self._ask(calls.expand(topic, partitions, rehash))

    async def delete_topic(self, topic: str) -> None:
        """With its channels and messages."""
        await self._change("topic/delete", topic)

    async def empty_topic(self, topic: str) -> None:
        """Drops messages that no channel has got yet."""
        await self._change("topic/empty", topic)

    async def pause_topic(self, topic: str) -> None:
        """Channels get nothing more of it until `unpause_topic`."""
        await self._change("topic/pause", topic)

    async def unpause_topic(self, topic: str) -> None:
        await self._change("topic/unpause", topic)

    async def shape(self, topic: str) -> Shape:
        """The number of partitions, and whether messages may have headers."""
        return await self._ask(calls.shape(topic))

    async def partitions(self, topic: str) -> Mapping[int, LogSpan]:
        """The log of each partition that this node leads."""
        call = calls.positions([topic])
        found = await self._ask(call)
        if topic not in found.topics:
            raise BrokerRefused(public(self._url) + call.path, 404, "TOPIC_NOT_FOUND", {})
        return found.topics[topic].partitions

    async def create_channel(self, topic: str, channel: str) -> None:
        """It receives all later messages; the first channel of a topic also the earlier ones."""
        await self._change("channel/create", topic, channel=channel)

    async def delete_channel(self, topic: str, channel: str) -> None:
        await self._change("channel/delete", topic, channel=channel)

    async def empty_channel(self, topic: str, channel: str) -> None:
        """Its undelivered messages are dropped."""
        await self._change("channel/empty", topic, channel=channel)

    async def pause_channel(self, topic: str, channel: str) -> None:
        """Consumers get nothing until `unpause_channel`."""
        await self._change("channel/pause", topic, channel=channel)

    async def unpause_channel(self, topic: str, channel: str) -> None:
        await self._change("channel/unpause", topic, channel=channel)

    async def seek(
        self,
        topic: str,
        channel: str,
        position: str | datetime,
        *,
        partition: int | None = None,
        dry_run: bool = False,
    ) -> Move:
        """Deliver from there on: "earliest", "latest", "back:N", "offset:N", "id:HEX", or a time.
        Returns the numbers of messages that come again, are skipped or given up; `dry_run` changes
        nothing."""
        if isinstance(position, datetime):
            micros = round(position.timestamp() * 1_000_000)
            position = f"timestamp:{format_seconds(micros * 1000)}"
        return await self._ask(calls.move(topic, channel, position, partition, dry_run))

    async def stats(self, topic: str = "", channel: str = "") -> dict[str, Any]:
        """The rows of `/stats`, without clients and memory."""
        return await self._ask(calls.stats(topic, channel))

    async def _change(self, path: str, topic: str, **more: Any) -> None:
        await self._ask(calls.change(f"/{path}", topic=topic, **more))

    async def _ask(self, call: Call[T]) -> T:
        credentials = self._credentials if call.body is not None else ""
        try:
            answer = await exchange(self._fetcher, self._url, call, self._headers, credentials)
        except FetchFailed as failure:
            kind = ConnectionLost if failure.sent else ConnectFailed
            raise kind(public(self._url), failure.reason) from failure
        if answer.status != 200:
            raise calls.refusal(public(self._url) + call.path, answer.status, answer.body)
        try:
            return call.decode(answer.body, answer.headers)
        except AnswerInvalid as error:
            raise ConnectFailed(public(self._url), error.reason) from error
