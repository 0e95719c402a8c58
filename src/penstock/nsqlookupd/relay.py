"""What changes topics and channels of a cluster, passed on to one of its nsqds.

A node with a replica of the topic is asked, its leaders before others; any node may make a topic. A
node that can't be reached has not heard of the request, so the next one is asked; where it may have
been heard, the answer is that the outcome is not known. Status and body are the node's. An answer
waits until this nsqlookupd has seen the change, for LOOKUP_HOLD_NS at most: whoever looks next
finds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from penstock import limits
from penstock.cluster.documents import NodeDocument
from penstock.cluster.view import View
from penstock.errors import FetchFailed
from penstock.net.api import EMPTY, NSQ_HEADER, Answer, HttpError, Parameters, error_response
from penstock.net.exchange import Request, Response
from penstock.net.fetch import Fetcher
from penstock.net.listener import ListenAddress
from penstock.net.query import whole_number
from penstock.nsqlookupd.registry import Registry

if TYPE_CHECKING:
    from penstock.nsqlookupd.cluster import Holds

CREATE, EXPAND, DELETE = "/topic/create", "/topic/partition/expand", "/topic/delete"
CHANNEL_CREATE, CHANNEL_DELETE = "/channel/create", "/channel/delete"
_OF_NOBODY = 3  # a rank: it has no replica


class Relay:
    def __init__(
        self,
        view: View,
        holds: Holds,
        registry: Registry,
        fetcher: Fetcher,
        on_fault: Callable[[Exception], None],
    ) -> None:
        self._view = view
        self._holds = holds
        self._registry = registry
        self._on_fault = on_fault
        self._fetcher = fetcher
        self._tasks: set[asyncio.Task[None]] = set()

    def send(self, request: Request, parameters: Parameters, answer: Answer) -> None:
        """`parameters`: of the request, checked."""
        work = self._send(request, parameters, answer)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, Exception):
            self._on_fault(error)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._fetcher.close()

    async def _send(self, request: Request, parameters: Parameters, answer: Answer) -> None:
        try:
            response = await self._ask(request, parameters)
        except HttpError as error:
            response = error_response(error)
        if response.status != 200:
            answer(response)
            return
        self._holds.wait(
            lambda: is_seen(self._registry, request.path, parameters), lambda: answer(response)
        )

    async def _ask(self, request: Request, parameters: Parameters) -> Response:
        """Raises HttpError."""
        query = urlencode(parameters, errors="surrogateescape")
        authorization = request.header(b"authorization")
        headers = {"Authorization": authorization.decode("latin-1")} if authorization else {}
        reasons = []
        for node in nodes_for(self._view, parameters["topic"], request.path == CREATE):
            url = f"http://{ListenAddress(node.host, node.http_port, '')}{request.path}?{query}"
            try:
                found = await self._fetcher.request("POST", url, headers=headers)
            except FetchFailed as failed:
                if failed.sent:
                    unknown = {"changed": "unknown"}
                    raise HttpError(503, f"FAILED {failed}", details=unknown) from failed
                reasons.append(failed.reason)
                continue
            if found.status == 404 and request.path == DELETE:
                return EMPTY  # by another nsqlookupd, and as of a topic that none knows
            kind = found.headers.get("content-type", "") if found.body else ""
            return Response(found.status, found.body, kind, NSQ_HEADER)
        why = "; ".join(reasons) or "none lives"
        raise HttpError(503, f"FAILED no nsqd of the cluster can be asked: {why}")


def nodes_for(view: View, topic: str, any_node: bool) -> list[NodeDocument]:
    """Nodes that live and speak HTTP, in the order in which they are asked."""
    ranks: dict[int, int] = {}
    for name, held in view.partitions.items():
        if name.topic != topic:
            continue
        leader = held.document.leader
        for member in held.document.members:
            rank = 1 if leader is not None and leader.node == member.node else 2
            ranks[member.node] = min(rank, ranks.get(member.node, rank))
    live = [
        (ranks.get(number, _OF_NOBODY), number)
        for number, held in view.nodes.items()
        if held.document.http_port and (any_node or number in ranks)
    ]
    return [view.nodes[number].document for _, number in sorted(live)]


def is_seen(registry: Registry, path: str, parameters: Parameters) -> bool:
    """The registry has what this request was about."""
    topic, channel = parameters["topic"], parameters.get("channel", "")
    if path == CREATE:
        return topic in registry.placed and registry.unled_ns(topic) is None
    if path == DELETE:
        return topic not in registry.placed
    if path == EXPAND:
        wanted = whole_number(parameters.get("partition_num", ""), limits.PARTITIONS_MAX)
        meta = registry.placed.get(topic)
        return meta is None or meta.partition_num >= (wanted or 0)
    return (channel in registry.channels.get(topic, ())) == (path == CHANNEL_CREATE)
