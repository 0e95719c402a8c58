"""A request of HTTP to one node of a cluster that is played."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from penstock.net.exchange import Request, Response
from penstock.nsqd.ground import Ground
from penstock.nsqd.options import read_options
from penstock.nsqd.routes import Routes
from penstock.nsqd.topics import TopicMaker
from sim.brokers.node import JoinedNode

OPTIONS = read_options(["--data-path=/data"], {})
BILLING = "topic=orders&channel=billing"


def nothing(*_: Any) -> None:
    pass


def topic_maker(node: JoinedNode, soon: Callable[[], None] = nothing) -> TopicMaker:
    unused: Any = SimpleNamespace()
    return TopicMaker(node.broker, unused, lambda: [], soon, nothing, unused)


def ask(node: JoinedNode, path: str, query: str = BILLING, method: str = "POST") -> list[Response]:
    """Its answer is in the list, now or later."""
    unused: Any = SimpleNamespace()
    ground = Ground(
        broker=node.broker, topics=topic_maker(node), protocol=unused, options=OPTIONS, config={},
        identity=unused, clock=node.clock, bulk=unused, soon=nothing, set_lookupds=nothing,
        sync_times=unused, http_connections=lambda: 0, refusals=unused, on_fault=nothing,
    )  # fmt: skip
    answers: list[Response] = []
    request = Request(method, path, query.encode(), b"", "client", "HTTP/1.1", True, False)
    Routes(ground).serve(request, answers.append)
    return answers
