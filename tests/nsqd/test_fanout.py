"""Verbs that concern other nodes of a cluster."""

import asyncio
import json
from types import SimpleNamespace
from typing import Any

from penstock.net.api import POST, Route
from penstock.net.exchange import Request, Response
from penstock.nsqd import fanout
from penstock.nsqd.fanout import FanOut
from penstock.nsqd.http.routes import OF_ALL, OF_METADATA, OF_ONE

PATHS = (*OF_ALL, *OF_ONE, *OF_METADATA, *fanout.OF_PRODUCERS)
LEADERS = {"orders": [(0, 1)], "orders.billing.dead": [(0, 3), (1, 2)]}


class Node:
    """Node 1. `asked` has what it was asked, and what it has asked others."""

    def __init__(self, *redriven: int) -> None:
        self.asked: list[str] = []
        self._redriven = list(redriven)
        member: Any = SimpleNamespace(
            own=1,
            leaders=lambda topic: LEADERS.get(topic, []),
            dead_letter_topic="{}.{}.dead".format,
        )
        self.table = {path: Route(POST, self._here) for path in (*PATHS, fanout.REDRIVE)}
        peers: Any = SimpleNamespace(ask=self.ask_other)
        FanOut(member, peers).spread(self.table)

    def _here(self, request: Request, answer: Any) -> None:
        self.asked.append(request.target)
        answer(Response(200))

    async def ask_other(self, nodes: list[int], request: Request, outcome: str) -> Response:
        self.asked += [f"node {node}: {request.target}" for node in nodes]
        if not self._redriven:
            return Response(409, b'{"message":"NO"}')
        return Response(200, json.dumps({"redriven": self._redriven.pop(0)}).encode())

    async def ask(self, path: str, query: str) -> Response:
        answers: list[Response] = []
        request = Request("POST", path, query.encode(), b"", "", "1.1", True, False)
        self.table[path].serve(request, answers.append)
        while not answers:
            await asyncio.sleep(0)
        return answers[0]


async def test_a_verb_for_this_node_alone_does_not_see_that_it_is() -> None:
    """Settings that are not known are refused."""
    node = Node()
    for path in node.table:
        await node.ask(path, "topic=orders&only_here=true&max_depth=1")
    assert {one.partition("?")[2] for one in node.asked} == {"topic=orders&max_depth=1"}


async def test_the_count_of_a_redrive_is_for_all_leaders_of_dead_letters_together() -> None:
    node, query = Node(3, 2), "topic=orders&channel=billing&count=5"
    answer = await node.ask(fanout.REDRIVE, query)
    assert json.loads(answer.body) == {"redriven": 5}
    more = "topic=orders&channel=billing&count={}&only_here=true"
    urls = [f"node {number}: /channel/redrive?{more}" for number in (2, 3)]
    assert node.asked == [urls[0].format(5), urls[1].format(2)]
    refused = json.loads((await Node(3).ask(fanout.REDRIVE, query)).body)
    assert refused == {"message": "NO", "reason": "(3 were sent back before that)", "redriven": 3}
