"""Changes of a cluster's topics and channels, forwarded to one of its nsqds.

A node with a replica of the topic is asked, its leaders before others; any node may make a topic,
and refuse a channel of a topic that is not there. An answer waits until this nsqlookupd has seen
the change, for LOOKUP_HOLD_NS at most: whoever looks next finds it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock import limits
from penstock.cluster.view import View
from penstock.net.api import EMPTY, Answer, Parameters
from penstock.net.exchange import Request, Response
from penstock.net.fetch import Fetcher
from penstock.net.query import whole_number
from penstock.net.relay import pass_on
from penstock.net.tasks import Tasks
from penstock.nsqlookupd.registry import Registry

if TYPE_CHECKING:
    from penstock.nsqlookupd.cluster import Holds

CREATE, EXPAND, DELETE = "/topic/create", "/topic/partition/expand", "/topic/delete"
CHANNEL_CREATE, CHANNEL_DELETE = "/channel/create", "/channel/delete"


@dataclass(eq=False)
class Relay:
    _view: View
    _holds: Holds
    _registry: Registry
    _fetcher: Fetcher
    _tasks: Tasks

    def send(self, request: Request, parameters: Parameters, answer: Answer) -> None:
        """`parameters`: of the request, checked."""
        self._tasks.begin(self._send(request, parameters, answer))

    async def _send(self, request: Request, parameters: Parameters, answer: Answer) -> None:
        response = await self._ask(request, parameters)
        if response.status != 200:
            answer(response)
            return
        self._holds.wait(
            lambda: is_seen(self._registry, request.path, parameters), lambda: answer(response)
        )

    async def _ask(self, request: Request, parameters: Parameters) -> Response:
        query = urlencode(parameters, errors="surrogateescape")
        authorization = request.header(b"authorization")
        headers = {"Authorization": authorization.decode("latin-1")} if authorization else {}
        is_new = request.path in (CREATE, CHANNEL_CREATE)
        nodes = self._view.nodes_for(parameters["topic"], any_node=is_new)
        addresses = [node.http_address for node in nodes]
        target = f"{request.path}?{query}"
        found = await pass_on(self._fetcher, request, target, addresses, headers)
        if found.status == 404 and request.path == DELETE:
            return EMPTY  # by another nsqlookupd, and as of a topic that none knows
        return found


def is_seen(registry: Registry, path: str, parameters: Parameters) -> bool:
    """The registry shows the result of this request."""
    topic, channel = parameters["topic"], parameters.get("channel", "")
    if path == CREATE:
        return topic in registry.cluster_topics and registry.unled_ns(topic) is None
    if path == DELETE:
        return topic not in registry.cluster_topics
    if path == EXPAND:
        wanted = whole_number(parameters.get("partition_num", ""), limits.PARTITIONS_MAX)
        meta = registry.cluster_topics.get(topic)
        return meta is None or meta.partition_num >= (wanted or 0)
    return (channel in registry.channels.get(topic, ())) == (path == CHANNEL_CREATE)
