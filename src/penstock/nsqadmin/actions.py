"""What an operator changes, on every daemon that it concerns.

An action goes to all nsqlookupds and to all nsqds that have the topic. It has failed when nobody of
a kind did it; when some did not, the rest is done and a warning names them. Deleting asks for the
nsqds before the lookupds forget them, and tombstones come first so that consumers do not make a
topic again that is being deleted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from penstock.errors import NotFound
from penstock.nsqadmin.upstream import LOOKUPD, NSQD, Producer, Upstream, warnings

VERBS = ("pause", "unpause", "empty")


class Actions:
    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream

    async def create(self, topic: str, channel: str = "") -> str:
        """On all lookupds, so that nsqds make them when somebody publishes; a channel also on the
        nsqds that have the topic. Without lookupds on the given nsqds. Returns a warning."""
        names = _names(topic, channel)
        if not self._upstream.lookupds:
            said = [await self._on_nsqds(self._upstream.nsqds, "/topic/create", _names(topic))]
            if channel:
                path = "/channel/create"
                said.append(await self._on_nsqds(self._upstream.nsqds, path, names))
            return warnings(*said)
        said = [await self._on_lookupds("/topic/create", _names(topic))]
        if channel:
            said.append(await self._on_lookupds("/channel/create", names))
            producers, missed = await self._upstream.producers_of(topic)
            said.append(missed)
            if producers:
                said.append(await self._on(producers, "/channel/create", names))
        return warnings(*said)

    async def act(self, verb: str, topic: str, channel: str = "") -> str:
        """`verb` is one of VERBS."""
        producers, missed = await self._upstream.producers_of(topic)
        kind = "channel" if channel else "topic"
        done = await self._on(producers, f"/{kind}/{verb}", _names(topic, channel))
        return warnings(missed, done)

    async def delete(self, topic: str, channel: str = "") -> str:
        """Also of a topic that only lookupds know; not of one that nobody knows."""
        kind = "channel" if channel else "topic"
        producers, missed = await self._upstream.producers_of(topic)
        said, names = [missed], _names(topic, channel)
        if self._upstream.lookupds:
            said.append(await self._on_lookupds(f"/{kind}/delete", names))
        if producers:
            said.append(await self._on(producers, f"/{kind}/delete", names))
        return warnings(*said)

    async def tombstone(self, node: str, topic: str) -> str:
        """Take a topic off one nsqd."""
        producer, missed = await self.find(node)
        said = [missed]
        if self._upstream.lookupds:
            names = {"topic": topic, "node": node}
            said.append(await self._on_lookupds("/topic/tombstone", names))
        said.append(await self._on([producer], "/topic/delete", {"topic": topic}))
        return warnings(*said)

    async def find(self, node: str) -> tuple[Producer, str]:
        """The nsqd "host:port" that pages link to, and a warning. NotFound."""
        producers, warning = await self._upstream.producers()
        for producer in producers:
            if producer.address == node:
                return producer, warning
        raise NotFound("node", node)

    async def _on_lookupds(self, path: str, query: dict[str, str]) -> str:
        asked = await self._upstream.ask(
            LOOKUPD, self._upstream.lookupds, lambda at: self._upstream.post(at, path, query)
        )
        return asked.warning

    async def _on(self, producers: Iterable[Producer], path: str, query: dict[str, str]) -> str:
        return await self._on_nsqds([one.address for one in producers], path, query)

    async def _on_nsqds(self, addresses: Iterable[str], path: str, query: dict[str, str]) -> str:
        async def post(address: str) -> Any:
            return await self._upstream.post(address, path, query)

        return (await self._upstream.ask(NSQD, addresses, post)).warning


def _names(topic: str, channel: str = "") -> dict[str, str]:
    return {"topic": topic, "channel": channel} if channel else {"topic": topic}
