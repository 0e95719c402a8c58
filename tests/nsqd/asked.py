"""A request of HTTP to one node of a cluster that is played."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from penstock.net.exchange import Request, Response
from penstock.nsqd.http.deps import Deps
from penstock.nsqd.http.routes import Routes
from penstock.nsqd.options import read_options
from penstock.nsqd.topics import TopicMaker
from sim.brokers.node import JoinedNode

OPTIONS = read_options(["--data-path=/data"], {})
BILLING = "topic=orders&channel=billing"


def nothing(*_: Any) -> None:
    pass


def topic_maker(node: Any, soon: Callable[[], None] = nothing) -> TopicMaker:
    unused: Any = SimpleNamespace()
    return TopicMaker(node.broker, unused, lambda: [], soon, nothing)


def routes(node: Any, on_fault: Callable[..., None] = nothing) -> Routes:
    """Of a node that has a broker and a clock."""
    unused: Any = SimpleNamespace()
    return Routes(
        Deps(
            broker=node.broker, topics=topic_maker(node), protocol=unused, options=OPTIONS,
            config={}, identity=unused, clock=node.clock, bulk=unused, soon=nothing,
            set_lookupds=nothing, sync_times=unused, http_connections=lambda: 0, on_fault=on_fault,
            long_work=asyncio.Lock(),
        )
    )  # fmt: skip


def request(target: str, body: bytes = b"", method: str = "POST") -> Request:
    path, _, query = target.partition("?")
    return Request(method, path, query.encode(), body, "client", "HTTP/1.1", True, False)


def ask(node: JoinedNode, path: str, query: str = BILLING, method: str = "POST") -> list[Response]:
    """Its answer is in the list, now or later."""
    answers: list[Response] = []
    routes(node).serve(request(f"{path}?{query}", method=method), answers.append)
    return answers
