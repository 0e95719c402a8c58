"""The addresses to connect to, according to nsqlookupds.

Several nsqlookupds know nothing of each other: their answers are united. A node that is inactive or
tombstoned is simply not in the answers. An answer has one of two forms: the plain document, or
(before NSQ 1.0) the same inside `{"status_code": ..., "data": ...}`. A topic that an nsqlookupd
does not know is an empty answer. When one could not be asked, the round is not `complete`, and what
was known before may still be there.

The HTTP sides of nsqds, for publishing to them.

Before an nsqd is published to, and again after it could not be reached, it is asked something that
only Penstock answers. Another nsqd would take the numbers for unknown parameters, store a retry
twice, and say nothing.
"""

import asyncio
import random
import ssl
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from penstock import limits
from penstock.client.options import ClientOptions, IdempotentOptions, split_address
from penstock.errors import ConfigError, ConnectFailed, FetchFailed
from penstock.net.fetch import Fetcher, public
from penstock.net.http_client import Fetched
from penstock.net.outgoing import document_of
from penstock.net.query import whole_number
from penstock.net.secret_file import bearer
from penstock.nsqdapi import calls
from penstock.nsqdapi.aio import exchange
from penstock.nsqdapi.calls import Call, bracketed
from penstock.wire.names import is_valid_name


@dataclass(frozen=True, slots=True)
class LookupResult:
    addresses: frozenset[str]
    failures: tuple[FetchFailed, ...] = ()
    partitions: Mapping[int, str] = field(default_factory=dict)  # where each is, as far as known

    @property
    def complete(self) -> bool:
        return not self.failures


def addresses_in(document: Any, port_key: str = "tcp_port") -> frozenset[str]:
    """The TCP addresses of the producers in an answer to /lookup or /nodes, or with "http_port" the
    HTTP ones; invalid ones are left out."""
    producers = _inner(document).get("producers")
    if not isinstance(producers, list):
        return frozenset()
    found = (_address(entry, port_key) for entry in producers)
    return frozenset(address for address in found if address is not None)


def partitions_in(document: Any, port_key: str = "tcp_port") -> dict[int, str]:
    """The addresses by partition in an answer to /lookup. Empty for an official nsqlookupd, and
    where several nsqds have partitions of the same number."""
    listed = _inner(document).get("partitions")
    found: dict[int, str] = {}
    for name, entry in listed.items() if isinstance(listed, Mapping) else ():
        partition = whole_number(str(name), limits.PARTITIONS_MAX - 1)
        address = _address(entry, port_key)
        if partition is not None and address is not None:
            found[partition] = address
    return found


def topics_in(document: Any) -> list[str]:
    """The topics in an answer to /topics, without what can be none."""
    listed = _inner(document).get("topics")
    names = listed if isinstance(listed, list) else ()
    return sorted(one for one in names if isinstance(one, str) and is_valid_name(one))


def _inner(document: Any) -> Mapping[str, Any]:
    if isinstance(document, Mapping) and isinstance(document.get("data"), Mapping):
        document = document["data"]
    return document if isinstance(document, Mapping) else {}


def _address(entry: Any, port_key: str) -> str | None:
    if not isinstance(entry, Mapping):
        return None
    host = entry.get("broadcast_address") or entry.get("address")
    port = entry.get(port_key)
    if not isinstance(host, str) or not host or "/" in host or not host.isprintable():
        return None
    if type(port) is not int or not 0 < port < 65536:
        return None
    return f"{bracketed(host)}:{port}"


def base_url(lookupd: str) -> str:
    return (lookupd if "://" in lookupd else f"http://{lookupd}").rstrip("/")


class Discovery:
    """Asks the lookupds, each `host:port` of its HTTP side or a URL."""

    def __init__(
        self, lookupds: list[str], options: ClientOptions, port_key: str = "tcp_port"
    ) -> None:
        self._bases = [base_url(lookupd) for lookupd in dict.fromkeys(lookupds)]
        self._options = options
        self._port_key = port_key
        self._fetcher = Fetcher(
            connect_timeout_ns=round(options.lookup_timeout_s * limits.SECOND),
            request_timeout_ns=round(options.lookup_timeout_s * limits.SECOND),
            tls=options.lookup_tls,
        )

    async def topic(self, name: str) -> LookupResult:
        return await self._ask(f"/lookup?topic={quote(name, safe='')}")

    async def nodes(self) -> LookupResult:
        return await self._ask("/nodes")

    async def close(self) -> None:
        await self._fetcher.close()

    async def rounds(
        self, topics: Sequence[str], again: asyncio.Event
    ) -> AsyncIterator[tuple[dict[str, LookupResult], bool]]:
        """The answers by topic, round after round for ever, the pauses between them spread by
        jitter. `again` brings one more before the next is due; then it is True that it is early."""
        options, loop = self._options, asyncio.get_running_loop()
        due_s = loop.time()
        pause_s = random.uniform(0, options.lookup_jitter) * options.lookup_interval_s
        while True:
            is_early = loop.time() < due_s
            if not is_early:
                due_s, pause_s = loop.time() + options.lookup_interval_s + pause_s, 0.0
            again.clear()
            answers = await asyncio.gather(*map(self.topic, topics))
            yield dict(zip(topics, answers, strict=True)), is_early
            with suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await again.wait()

    async def _ask(self, path: str) -> LookupResult:
        asked = [self._one(base + path) for base in self._bases]
        answers = await asyncio.gather(*asked)
        known = [answer for answer in answers if not isinstance(answer, FetchFailed)]
        failures = tuple(answer for answer in answers if isinstance(answer, FetchFailed))
        partitions: dict[int, str] = {}
        for document in known:
            partitions |= partitions_in(document, self._port_key)
        addresses = (addresses_in(document, self._port_key) for document in known)
        return LookupResult(frozenset().union(*addresses), failures, partitions)

    async def _one(self, url: str) -> Any:
        """The document, or a FetchFailed."""
        try:
            return await self._fetcher.get_json(url, self._options.lookup_headers)
        except FetchFailed as failure:
            unknown = failure.status == 404 or "TOPIC_NOT_FOUND" in failure.reason
            return {} if unknown else failure


def http_url(address: str, secure: bool) -> str:
    """Of an HTTP side given as `host:port` or a URL. Raises ConfigError."""
    if "://" not in address:
        if "/" in address:
            raise ConfigError("address", address, "must be host:port or a URL")
        split_address(address)
        address = f"http{'s' if secure else ''}://{address}"
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ConfigError("address", public(address), "must be host:port or a URL")
    return address.rstrip("/")


_QUESTION = calls.positions(["_"])  # cheap, and changes nothing


class Nodes:
    """`given`: `host:port` of HTTP sides, or URLs."""

    def __init__(
        self, given: str | Sequence[str], lookupds: str | Sequence[str], options: IdempotentOptions
    ) -> None:
        asked = [lookupds] if isinstance(lookupds, str) else list(lookupds)
        self._secure = bool(options.tls)
        listed = [given] if isinstance(given, str) else list(given)
        self._given = list(dict.fromkeys(http_url(one, self._secure) for one in listed))
        if not self._given and not asked:
            raise ConfigError("addresses", given, "name an nsqd or an nsqlookupd")
        self._lookupds = ", ".join(asked)
        self._discovery = Discovery(asked, options, "http_port") if asked else None
        self._fetcher = Fetcher(
            connect_timeout_ns=round(options.connect_timeout_s * limits.SECOND),
            request_timeout_ns=round(options.request_timeout_s * limits.SECOND),
            tls=options.tls if isinstance(options.tls, ssl.SSLContext) else None,
        )
        self._headers = {"User-Agent": options.user_agent}
        self._credentials = bearer(options.http_secret)
        self._found: list[str] = []
        self._found_s = 0.0
        self._age_s_max = options.retry_delay_max_s
        self._looking = asyncio.Lock()
        self._known_good: set[str] = set()
        self._clusters: dict[str, str] = {}  # by address
        self.room = asyncio.Semaphore(options.requests_max)
        self.last_failure: ConnectFailed | None = None

    async def candidates(self, anew: bool) -> list[str]:
        """The present nsqds; `anew`: the earlier ones were of no use."""
        if self._discovery is not None:
            async with self._looking:
                await self._look(self._discovery, anew)
        return [*self._given, *self._found]

    async def _look(self, discovery: Discovery, anew: bool) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._found_s and not (anew and now_s - self._found_s > self._age_s_max):
            return
        self._found_s = now_s
        found = await discovery.nodes()
        known = {f"http{'s' if self._secure else ''}://{address}" for address in found.addresses}
        if not found.complete:
            known.update(self._found)
        others = sorted(known.difference(self._given))
        random.shuffle(others)
        self._found = others
        if not others and not self._given:
            reason = str(found.failures[0]) if found.failures else "no nsqd is known"
            self.last_failure = ConnectFailed(self._lookupds, reason)

    async def check(self, address: str) -> None:
        """Raises ConnectFailed unless idempotent publishing is known there."""
        if address in self._known_good:
            return
        try:
            answer = await exchange(self._fetcher, address, _QUESTION, self._headers)
        except FetchFailed as failure:
            raise self._failed(address, failure.reason) from failure
        if answer.status == 404:
            raise self._failed(address, "it has no idempotent publishing: it is not Penstock")
        if answer.status != 200 or not _QUESTION.is_answered(answer.body, answer.headers):
            raise self._failed(address, f"got response {answer.status} to a question")
        self._known_good.add(address)
        cluster = (document_of(answer.body) or {}).get("cluster")
        if isinstance(cluster, dict):
            self._clusters[address] = f"cluster {cluster.get('uuid')}"

    def cluster(self, address: str) -> str:
        """Whose nodes know one another's numbers; empty: it is a node by itself."""
        return self._clusters.get(address, "")

    def _failed(self, address: str, reason: str) -> ConnectFailed:
        self.last_failure = ConnectFailed(public(address), reason)
        return self.last_failure

    async def publish(self, address: str, call: Call[None]) -> Fetched:
        """Raises FetchFailed."""
        try:
            return await exchange(self._fetcher, address, call, self._headers, self._credentials)
        except FetchFailed as failure:
            self._known_good.discard(address)
            self.last_failure = ConnectFailed(public(address), failure.reason)
            raise

    async def close(self) -> None:
        await self._fetcher.close()
        if self._discovery is not None:
            await self._discovery.close()
