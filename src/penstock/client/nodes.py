"""The HTTP sides of nsqds, for publishing to them.

Before an nsqd is published to, and again after it could not be reached, it is asked something that
only Penstock answers. Another nsqd would take the numbers for unknown parameters, store a retry
twice, and say nothing.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Sequence
from urllib.parse import urlsplit

from penstock import limits
from penstock.client.discovery import Discovery
from penstock.client.options import IdempotentOptions, split_address
from penstock.errors import ConfigError, ConnectFailed, FetchFailed
from penstock.net.fetch import Fetched, Fetcher, public
from penstock.net.secretfile import authorization
from penstock.nsqdapi import calls
from penstock.nsqdapi.asking import exchange
from penstock.nsqdapi.calls import Call

_QUESTION = calls.positions(["_"])  # cheap, and changes nothing


class Nodes:
    """`given`: `host:port` of HTTP sides, or URLs."""

    def __init__(
        self, given: str | Sequence[str], lookupds: str | Sequence[str], options: IdempotentOptions
    ) -> None:
        asked = [lookupds] if isinstance(lookupds, str) else list(lookupds)
        self._secure = bool(options.tls)
        listed = [given] if isinstance(given, str) else list(given)
        self._given = list(dict.fromkeys(self._url(address) for address in listed))
        if not self._given and not asked:
            raise ConfigError("addresses", given, "name an nsqd or a nsqlookupd")
        self._lookupds = ", ".join(asked)
        self._discovery = Discovery(asked, options, "http_port") if asked else None
        self._fetcher = Fetcher(
            connect_timeout_ns=round(options.connect_timeout_s * limits.SECOND),
            request_timeout_ns=round(options.request_timeout_s * limits.SECOND),
            tls=options.tls if isinstance(options.tls, ssl.SSLContext) else None,
        )
        self._headers = {"User-Agent": options.user_agent}
        self._publish_headers = self._headers | authorization(options.http_secret)
        self._found: list[str] = []
        self._found_s = 0.0
        self._age_s_max = options.retry_delay_max_s
        self._looking = asyncio.Lock()
        self._known_good: set[str] = set()
        self.room = asyncio.Semaphore(options.requests_max)
        self.last_failure: ConnectFailed | None = None

    def _url(self, address: str) -> str:
        if "://" not in address:
            if "/" in address:
                raise ConfigError("address", address, "must be host:port or a URL")
            split_address(address)
            address = f"http{'s' if self._secure else ''}://{address}"
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
            raise ConfigError("address", public(address), "must be host:port or a URL")
        return address.rstrip("/")

    async def candidates(self, anew: bool) -> list[str]:
        """The nsqds there are; `anew`: those that were found before were of no use."""
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

    def _failed(self, address: str, reason: str) -> ConnectFailed:
        self.last_failure = ConnectFailed(public(address), reason)
        return self.last_failure

    async def publish(self, address: str, call: Call[None]) -> Fetched:
        """Raises FetchFailed."""
        try:
            return await exchange(self._fetcher, address, call, self._publish_headers)
        except FetchFailed as failure:
            self._known_good.discard(address)
            self.last_failure = ConnectFailed(public(address), failure.reason)
            raise

    async def close(self) -> None:
        await self._fetcher.close()
        if self._discovery is not None:
            await self._discovery.close()


def shown(address: str) -> str:
    """As errors and logs name it."""
    return public(address)
