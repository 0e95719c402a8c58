"""Requests that another node answers, over frames of a link."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.broker.ports import PeerLane
from penstock.net.api import Answer
from penstock.net.exchange import Request, Response
from penstock.nsqd.peer_requests import PeerRequests
from penstock.replication.frames import FrameBroken, Frames
from penstock.replication.side_frames import RequestAnswered, SendRequest
from replication.received import received

FIELDS = b"\r\nhost: a\r\nauthorization: Bearer x\r\nx-nsqext-source: shop\r\ntraceparent: 00-1"
REQUEST = Request("POST", "/pub", b"topic=t", b"body" * 999, "r", "1.1", True, False, FIELDS)


class Node:
    """`others` are those that it is linked to."""

    def __init__(self, number: int) -> None:
        self.own = SimpleNamespace(node=number)
        self.others: dict[int, Node] = {}
        self.reasons = {7: "Connection refused"}
        self.served: list[Request] = []
        self.answers: list[Answer] = []
        links: Any = self
        self.requests = PeerRequests(100 + number, links, self._serve, seconds_max=5)

    def is_linked(self, node: int) -> bool:
        return node in self.others

    def send(self, node: int, lane: PeerLane, frames: Sequence[Sequence[Any]]) -> None:
        data = b"".join(bytes(part) for frame in frames for part in frame)
        for _, frame in received(Frames(self.own.node), data):
            assert isinstance(frame, SendRequest | RequestAnswered)
            self.others[node].requests.receive(self.own.node, frame)

    def _serve(self, request: Request, answer: Answer) -> None:
        self.served.append(request)
        self.answers.append(answer)


def linked() -> tuple[Node, Node]:
    one, two = Node(1), Node(2)
    one.others[2], two.others[1] = two, one
    return one, two


async def test_the_first_that_is_linked_answers_as_a_client_is_answered() -> None:
    one, two = linked()
    asked = asyncio.create_task(one.requests.ask([7, 2], REQUEST))
    await asyncio.sleep(0)
    taken = b"\r\nx-nsqext-source: shop\r\ntraceparent: 00-1"
    assert two.served == [REQUEST._replace(remote="node 1", fields=taken)]
    answer = Response(200, b"OK" * 999, "text/plain", (("X-Penstock-Repeated", "true"),))
    two.answers[0](answer)
    assert await asked == answer
    two.answers[0](answer)  # nobody waits for it any more
    asked = asyncio.create_task(one.requests.ask([1, 2], REQUEST))
    await asyncio.sleep(0)
    one.answers[0](answer)
    assert (await asked, one.served) == (answer, [REQUEST])  # its own part
    refused = await one.requests.ask([7], REQUEST)
    assert (refused.status, b"node 7 is not linked: Connection refused" in refused.body) == (
        503,
        True,
    )


async def test_a_link_that_ends_leaves_the_outcome_unknown() -> None:
    one, _ = linked()
    asked = asyncio.create_task(one.requests.ask([2], REQUEST, "stored"))
    await asyncio.sleep(0)
    one.requests.unlinked(3)
    assert not asked.done()
    one.requests.unlinked(2)
    answer = await asked
    assert (answer.status, json.loads(answer.body)["stored"]) == (503, "unknown")


def test_what_is_no_request_ends_the_link() -> None:
    one, _ = linked()
    for packed in (b"", b"\xc0", b"\x91\x01"):
        with pytest.raises(FrameBroken, match="a request of"):
            one.requests.receive(2, SendRequest(102, 1, packed))
