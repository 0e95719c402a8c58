"""Who to connect to, as nsqlookupds tell it.

Several nsqlookupds know nothing of each other: their answers are united. A node that is inactive or
tombstoned is simply not in the answers. An answer has one of two forms: the plain document, or
(before NSQ 1.0) the same inside `{"status_code": ..., "data": ...}`. A topic that a nsqlookupd does
not know is an empty answer. When one could not be asked, the round is not `complete`, and what was
known before may still be there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

from penstock import limits
from penstock.client.options import LookupOptions
from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher
from penstock.net.query import whole_number
from penstock.nsqdapi.calls import bracketed


@dataclass(frozen=True, slots=True)
class Found:
    addresses: frozenset[str]
    failures: tuple[FetchFailed, ...] = ()
    partitions: Mapping[int, str] = field(default_factory=dict)  # where each is, as far as known

    @property
    def complete(self) -> bool:
        return not self.failures


def addresses_in(document: Any, port_key: str = "tcp_port") -> frozenset[str]:
    """The TCP addresses of the producers in an answer to /lookup or /nodes, or with "http_port"
    the HTTP ones; what makes no sense in it is left out."""
    producers = _inner(document).get("producers")
    if not isinstance(producers, list):
        return frozenset()
    found = (_address(entry, port_key) for entry in producers)
    return frozenset(address for address in found if address is not None)


def partitions_in(document: Any, port_key: str = "tcp_port") -> dict[int, str]:
    """The addresses by partition in an answer to /lookup. An official nsqlookupd tells none, nor
    does one where several nsqds have partitions of the same number."""
    listed = _inner(document).get("partitions")
    found: dict[int, str] = {}
    for name, entry in listed.items() if isinstance(listed, Mapping) else ():
        partition = whole_number(str(name), limits.PARTITIONS_MAX - 1)
        address = _address(entry, port_key)
        if partition is not None and address is not None:
            found[partition] = address
    return found


def _inner(document: Any) -> Mapping[str, Any]:
    if isinstance(document, Mapping) and isinstance(document.get("data"), Mapping):
        document = document["data"]
    return document if isinstance(document, Mapping) else {}


def _address(entry: Any, port_key: str) -> str | None:
    if not isinstance(entry, Mapping):
        return None
    host = entry.get("broadcast_address") or entry.get("address")
    port = entry.get(port_key)
    if not isinstance(host, str) or not host or "/" in host:
        return None
    if type(port) is not int or not 0 < port < 65536:
        return None
    return f"{bracketed(host)}:{port}"


def base_url(lookupd: str) -> str:
    return (lookupd if "://" in lookupd else f"http://{lookupd}").rstrip("/")


class Discovery:
    """Asks the lookupds, each `host:port` of its HTTP side or a URL."""

    def __init__(
        self, lookupds: list[str], options: LookupOptions, port_key: str = "tcp_port"
    ) -> None:
        self._bases = [base_url(lookupd) for lookupd in dict.fromkeys(lookupds)]
        self._options = options
        self._port_key = port_key
        self._fetcher = Fetcher(
            connect_timeout_ns=round(options.lookup_timeout_s * limits.SECOND),
            request_timeout_ns=round(options.lookup_timeout_s * limits.SECOND),
            tls=options.lookup_tls,
        )

    async def topic(self, name: str) -> Found:
        return await self._ask(f"/lookup?topic={quote(name, safe='')}")

    async def nodes(self) -> Found:
        return await self._ask("/nodes")

    async def close(self) -> None:
        await self._fetcher.close()

    async def rounds(self, topic: str) -> AsyncIterator[Found]:
        """One answer after the other for ever, the pauses between them spread by jitter."""
        options = self._options
        pause_s = random.uniform(0, options.lookup_jitter) * options.lookup_interval_s
        while True:
            yield await self.topic(topic)
            await asyncio.sleep(options.lookup_interval_s + pause_s)
            pause_s = 0.0

    async def _ask(self, path: str) -> Found:
        asked = [self._one(base + path) for base in self._bases]
        answers = await asyncio.gather(*asked)
        known = [answer for answer in answers if not isinstance(answer, FetchFailed)]
        failures = tuple(answer for answer in answers if isinstance(answer, FetchFailed))
        partitions: dict[int, str] = {}
        for document in known:
            partitions |= partitions_in(document, self._port_key)
        addresses = (addresses_in(document, self._port_key) for document in known)
        return Found(frozenset().union(*addresses), failures, partitions)

    async def _one(self, url: str) -> Any:
        """The document, or a FetchFailed."""
        try:
            return await self._fetcher.get_json(url, self._options.lookup_headers)
        except FetchFailed as failure:
            unknown = failure.status == 404 or "TOPIC_NOT_FOUND" in failure.reason
            return {} if unknown else failure
