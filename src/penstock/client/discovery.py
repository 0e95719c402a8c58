"""The addresses to connect to, according to nsqlookupds.

Several nsqlookupds know nothing of each other: their answers are united. A node that is inactive or
tombstoned is simply not in the answers. An answer has one of two forms: the plain document, or
(before NSQ 1.0) the same inside `{"status_code": ..., "data": ...}`. A topic that an nsqlookupd
does not know is an empty answer. When one could not be asked, the round is not `complete`, and what
was known before may still be there.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

from penstock import limits
from penstock.client.options import ClientOptions, IdempotentOptions, split_address
from penstock.errors import ConfigError, ConnectFailed, FetchFailed
from penstock.net.fetch import Fetcher, public
from penstock.net.outgoing import HttpAnswer, document_of
from penstock.net.secret_file import bearer
from penstock.nsqdapi import calls
from penstock.nsqdapi.aio import exchange
from penstock.nsqdapi.calls import Call, bracketed
from penstock.wire.names import is_valid_name

log = logging.getLogger("penstock.client")


@dataclass(frozen=True, slots=True)
class LookupResult:
    addresses: frozenset[str]
    failures: tuple[FetchFailed, ...] = ()

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
        self, lookupds: str | Sequence[str], options: ClientOptions, port_key: str = "tcp_port"
    ) -> None:
        self._lookupds = [lookupds] if isinstance(lookupds, str) else list(lookupds)
        self._bases = [base_url(lookupd) for lookupd in dict.fromkeys(self._lookupds)]
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

    async def candidates(
        self, given: list[str], before: Collection[str] = (), scheme: str = ""
    ) -> list[str]:
        """`given`, then the other nodes, in any order; those of `before`, too, unless all lookupds
        have answered. Raises ConnectFailed when there is none."""
        found = await self.nodes()
        for failure in found.failures:
            log.warning("lookupd: %s", failure)
        known = {scheme + address for address in found.addresses}
        if not found.complete:
            known.update(before)
        others = sorted(known.difference(given))
        random.shuffle(others)
        if not given and not others:
            reason = str(found.failures[0]) if found.failures else "no nsqd is known"
            raise ConnectFailed(", ".join(self._lookupds), reason)
        return [*given, *others]

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
        addresses = (addresses_in(document, self._port_key) for document in known)
        return LookupResult(frozenset().union(*addresses), failures)

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
    """The HTTP sides of nsqds, for publishing to them.

    Before an nsqd is published to, and again after it could not be reached, it is asked something
    that only Penstock answers. Another nsqd would take the numbers for unknown parameters, store a
    retry twice, and say nothing.

    `given`: `host:port` of HTTP sides, or URLs.
    """

    def __init__(
        self, given: str | Sequence[str], lookupds: str | Sequence[str], options: IdempotentOptions
    ) -> None:
        self._scheme = "https://" if options.tls else "http://"
        listed = [given] if isinstance(given, str) else list(given)
        self._given = list(dict.fromkeys(http_url(one, bool(options.tls)) for one in listed))
        if not self._given and not lookupds:
            raise ConfigError("addresses", given, "name an nsqd or an nsqlookupd")
        self._discovery = Discovery(lookupds, options, "http_port") if lookupds else None
        self._fetcher = Fetcher(
            connect_timeout_ns=round(options.connect_timeout_s * limits.SECOND),
            request_timeout_ns=round(options.request_timeout_s * limits.SECOND),
            tls=options.tls if isinstance(options.tls, ssl.SSLContext) else None,
        )
        self._headers = {"User-Agent": options.user_agent}
        self._credentials = bearer(options.http_secret)
        self._present = self._given
        self._looked_s = 0.0
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
        return self._present

    async def _look(self, discovery: Discovery, anew: bool) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._looked_s and not (anew and now_s - self._looked_s > self._age_s_max):
            return
        self._looked_s = now_s
        try:
            self._present = await discovery.candidates(self._given, self._present, self._scheme)
        except ConnectFailed as failure:
            self._present, self.last_failure = [], failure

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

    async def publish(self, address: str, call: Call[None]) -> HttpAnswer:
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
