"""nsqadmin's way of asking nsqds, over the connections of the command line: with its files for TLS,
and over unix sockets."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from penstock.errors import FetchFailed
from penstock.net.fetch import Fetcher
from penstock.nsqadmin.upstream import Answered, DaemonRefused, Upstream
from penstock.nsqdapi.calls import Call
from penstock.tools.nodes import Node, NodeFailed


class NodeUpstream(Upstream):
    """Addresses are given with each question; it knows none itself."""

    def __init__(self, tls: ssl.SSLContext | None, secret: str = "") -> None:
        super().__init__(Fetcher(), (), (), secret)  # which opens nothing until it is used
        self._tls = tls

    async def send(self, address: str, call: Call[Any]) -> Answered:
        node = Node(address, tls=self._tls, secret=self.secret)
        try:
            return await asyncio.to_thread(
                node.exchange, call.method, call.target, call.body or b"", call.content_type
            )
        except NodeFailed as error:
            if error.status:
                raise DaemonRefused(address, error.reason, error.status, error.code) from error
            raise FetchFailed(address, error.reason) from error
