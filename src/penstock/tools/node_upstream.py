"""nsqadmin's way of asking nsqds, over the connections of the command line: with its files for TLS,
and over unix sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher
from penstock.nsqadmin.upstream import DaemonRefused, Upstream
from penstock.tools.nodes import Node, NodeFailed


class NodeUpstream(Upstream):
    """Addresses are given with each question; it knows none itself."""

    def __init__(self, tls: ssl.SSLContext | None, secret: str = "") -> None:
        super().__init__(Fetcher(), (), ())  # which opens nothing until it is used
        self._tls = tls
        self._secret = secret

    async def get(self, address: str, path: str, query: Mapping[str, str] | None = None) -> Any:
        node = Node(address, tls=self._tls)
        return await self._answer(address, lambda: node.get(path, dict(query or {})))

    async def post(
        self, address: str, path: str, query: Mapping[str, str] | None = None, body: bytes = b""
    ) -> Any:
        node = Node(address, tls=self._tls, secret=self._secret)
        return await self._answer(address, lambda: node.post(path, dict(query or {}), body))

    async def _answer(self, address: str, ask: Callable[[], Any]) -> Any:
        try:
            return await asyncio.to_thread(ask)
        except NodeFailed as error:
            if error.status:
                raise DaemonRefused(address, error.reason, error.status, error.code) from error
            raise FetchFailed(address, error.reason) from error
        except ValueError as error:
            raise FetchFailed(address, f"no JSON: {error}") from error
