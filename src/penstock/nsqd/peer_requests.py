"""Requests of the HTTP API that another node answers, over the link between the two.

| the node that asks | the node that is asked |
|---|---|
| SendRequest, over the bulk lane | its routes serve the request, as from a client |
| RequestAnswered, over the same lane: the answer | |
| the link ends, or a time passes: the outcome is not known | |

No address, secret or certificate for HTTP is needed: the link has proved who is at its other end,
and is encrypted if `--cluster-tls-cert` says so. The session is the incarnation of the node that
asks, and `number` counts its requests since then. As MessagePack arrays, a request is method, path,
query, body and headers (those that a publish takes along), and an answer status, type, body and the
names and values of headers.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec

from penstock.broker.ports import PeerLane
from penstock.net.api import Answer, HttpError, error_response
from penstock.net.exchange import Request, Response
from penstock.net.peers.links import PeerLinks
from penstock.replication.frames import NO_TARGET, FrameBroken, encode
from penstock.replication.side_frames import RequestAnswered, SendRequest

_TAKEN_ALONG = (b"x-nsqext-", b"traceparent:", b"tracestate:")  # other headers are the client's own
_Sent = tuple[str, str, bytes, bytes, bytes]
_Answered = tuple[int, str, bytes, tuple[tuple[str, str], ...]]
_pack = msgspec.msgpack.Encoder().encode


class _Waiting(NamedTuple):
    node: int
    answered: asyncio.Future[Response]


class PeerRequests:
    """`serve`: the routes of this node."""

    def __init__(
        self,
        incarnation: int,
        links: PeerLinks,
        serve: Callable[[Request, Answer], None],
        seconds_max: float,
    ) -> None:
        self._incarnation = incarnation
        self._links = links
        self._serve = serve
        self._seconds_max = seconds_max
        self._number = 0
        self._waiting: dict[int, _Waiting] = {}

    # --- the node that asks ---

    async def ask(
        self, nodes: Iterable[int], request: Request, outcome: str = "changed"
    ) -> Response:
        """The answer of the first that is linked, or is this node itself. `outcome`: the member of
        an error that tells whether it was done, `stored` for a publish."""
        reasons = []
        for node in nodes:
            if node == self._links.own.node:
                answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
                self._serve(request, answered.set_result)
                return await answered
            if self._links.is_linked(node):
                return await self._ask(node, request, outcome)
            reasons.append(f"node {node} is not linked: {self._links.reasons.get(node, 'so far')}")
        why = "; ".join(reasons) or "none is alive"
        return error_response(
            HttpError(503, f"FAILED no nsqd with a replica can be reached: {why}")
        )

    async def _ask(self, node: int, request: Request, outcome: str) -> Response:
        lines = request.fields.split(b"\r\n")
        fields = b"".join(b"\r\n" + one for one in lines if one.startswith(_TAKEN_ALONG))
        packed = _pack((request.method, request.path, request.query, request.body, fields))
        self._number += 1
        number = self._number
        answered: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self._waiting[number] = _Waiting(node, answered)
        try:
            self._send(node, SendRequest(self._incarnation, number, packed))
            async with asyncio.timeout(self._seconds_max or None):
                return await answered
        except (TimeoutError, ConnectionError) as error:
            reason = f"FAILED node {node}: {str(error) or 'timed out'}"
            return error_response(HttpError(503, reason, details={outcome: "unknown"}))
        finally:
            del self._waiting[number]

    def _send(self, node: int, frame: SendRequest | RequestAnswered) -> None:
        self._links.send(node, PeerLane.BULK, encode(NO_TARGET, frame))

    def unlinked(self, node: int) -> None:
        for one in self._waiting.values():
            if one.node == node and not one.answered.done():
                one.answered.set_exception(ConnectionError("the link has ended"))

    # --- from other nodes ---

    def receive(self, node: int, frame: SendRequest | RequestAnswered) -> None:
        """Raises FrameBroken."""
        try:
            if isinstance(frame, SendRequest):
                self._answer(node, frame)
            else:
                self._answered(node, frame)
        except msgspec.DecodeError as error:
            raise FrameBroken(f"a request of {len(frame.packed)} bytes: {error}") from error

    def _answer(self, node: int, frame: SendRequest) -> None:
        method, path, query, body, fields = msgspec.msgpack.decode(frame.packed, type=_Sent)
        request = Request(method, path, query, body, f"node {node}", "1.1", True, False, fields)

        def answer(response: Response) -> None:
            status, body, kind, headers, *_ = response
            packed = _pack((status, kind, body, headers))
            self._send(node, RequestAnswered(frame.session, frame.number, packed))

        self._serve(request, answer)

    def _answered(self, node: int, frame: RequestAnswered) -> None:
        waiting = self._waiting.get(frame.number)
        if frame.session != self._incarnation or waiting is None or waiting.node != node:
            return  # to an earlier incarnation, or too late
        status, kind, body, headers = msgspec.msgpack.decode(frame.packed, type=_Answered)
        if not waiting.answered.done():
            waiting.answered.set_result(Response(status, body, kind, headers))
