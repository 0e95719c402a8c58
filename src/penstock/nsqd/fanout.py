"""Verbs at any node of a cluster.

**About messages**: each leader of a partition does its part.

A request such as `/channel/empty` acts on the partitions that the asked node leads. Where others
lead some, it is sent to them, too, with `only_here=true`, so that they ask nobody else, and the
answers are put together: numbers are added, tables by partition joined. A request that names a
partition goes to its leader alone.

| verbs | answered with 200 when |
|---|---|
| about all messages | every leader has done it; else the first that has not says why |
| about one message | one of them has it |

A partition without a leader is named in an error: nothing was done there.

**About a topic or a channel**, which the metadata has: any node with a replica changes that. One
that has none of the topic's sends the request to one of its leaders.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from penstock.errors import FetchFailed
from penstock.net.api import JSON, NSQ_HEADER, Answer, HttpError, Route, error_response
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query
from penstock.net.secret_file import authorization

if TYPE_CHECKING:
    from penstock.net.fetch import Fetcher
    from penstock.net.http_client import Fetched
    from penstock.nsqd.cluster import ClusterMember

ONLY_HERE = "only_here"
ABOUT_ALL = frozenset(
    {
        "/topic/empty", "/channel/empty", "/channel/setoffset", "/channel/fixconfirmed",
        "/channel/finishmemdelayed", "/channel/emptydelayed", "/channel/requeuedelayed",
    }
)  # fmt: skip
ABOUT_ONE = frozenset(
    {
        "/message/finish", "/channel/message/finish", "/channel/message/requeue",
        "/channel/redrive",
    }
)  # fmt: skip
ABOUT_METADATA = frozenset(
    {
        "/topic/delete", "/topic/pause", "/topic/unpause", "/topic/config", "/topic/meta/update",
        "/topic/partition/expand", "/channel/create", "/channel/delete", "/channel/pause",
        "/channel/unpause", "/channel/config", "/channel/setorder", "/channel/skip",
        "/channel/unskip", "/channel/skipZanTest", "/channel/unskipZanTest",
        "/message/trace/enable", "/message/trace/disable",
    }
)  # fmt: skip
Serve = Callable[[Request, Answer], None]


class FanOut:
    """`secret`: that other nodes ask of whoever changes something; empty: none."""

    def __init__(self, member: ClusterMember, fetcher: Fetcher, secret: str) -> None:
        self._member = member
        self._fetcher = fetcher
        self._headers = authorization(secret)
        self._tasks: set[asyncio.Task[None]] = set()

    def spread(self, table: dict[str, Route]) -> None:
        """The routes of these verbs, from now on."""
        for path in ABOUT_ALL | ABOUT_ONE:
            route = table[path]
            table[path] = route._replace(serve=self._spread(path, route.serve))
        for path in ABOUT_METADATA:
            route = table[path]
            table[path] = route._replace(serve=self._passed_on(route.serve))

    def _passed_on(self, serve: Serve) -> Serve:
        def at_a_replica(request: Request, answer: Answer) -> None:
            parameters = parse_query(request.query)
            is_here = self._member.has_replica(parameters.get("topic", ""))
            leaders = set() if ONLY_HERE in parameters or is_here else self._leaders(parameters)
            if leaders:
                self._begin(self._pass_on(request, min(leaders), answer))
            else:
                serve(request, answer)

        return at_a_replica

    async def _pass_on(self, request: Request, node: int, answer: Answer) -> None:
        answer(await self._ask(request, node))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _spread(self, path: str, serve: Serve) -> Serve:
        def everywhere(request: Request, answer: Answer) -> None:
            parameters = parse_query(request.query)
            leaders = self._leaders(parameters)
            if ONLY_HERE in parameters or not leaders or leaders == {self._member.own}:
                serve(request, answer)
                return
            local: asyncio.Future[Response] | None = None
            if self._member.own in leaders:
                local = asyncio.get_running_loop().create_future()
                serve(request, local.set_result)
            others = sorted(leaders - {self._member.own})
            self._begin(self._ask_all(path, request, others, local, answer))

        return everywhere

    def _leaders(self, parameters: Mapping[str, str]) -> set[int]:
        """Of what the request is about. Raises HttpError where one is missing."""
        topic, chosen = parameters.get("topic", ""), parameters.get("partition", "")
        found: set[int] = set()
        for number, leader in self._member.leaders(topic):
            if chosen in ("", "-1", str(number)):
                if leader is None:
                    reason = f"partition {number} of topic {topic} has no leader at present"
                    raise HttpError(503, f"FAILED {reason}")
                found.add(leader)
        return found

    async def _ask_all(
        self,
        path: str,
        request: Request,
        others: list[int],
        local: asyncio.Future[Response] | None,
        answer: Answer,
    ) -> None:
        asked = await asyncio.gather(*(self._ask(request, node) for node in others))
        responses = [*([await local] if local is not None else []), *asked]
        done = [one for one in responses if one.status == 200]
        failed = [one for one in responses if one.status != 200]
        if failed and not (path in ABOUT_ONE and done):
            answer(failed[0])
        else:
            answer(_joined(done))

    async def _ask(self, request: Request, node: int) -> Response:
        address = self._member.http_address(node)
        url = f"http://{address}{request.target}&{ONLY_HERE}=true"
        try:
            found: Fetched = await self._fetcher.request(
                request.method, url, request.body, self._headers
            )
        except FetchFailed as error:
            return error_response(HttpError(503, f"FAILED node {node}: {error}"))
        return Response(found.status, found.body, JSON if found.body else "", NSQ_HEADER)


def _joined(responses: list[Response]) -> Response:
    documents = [json.loads(one.body) for one in responses if one.body]
    if len(documents) < 2:
        return next((one for one in responses if one.body), responses[0])
    joined = documents[0]
    for other in documents[1:]:
        joined = _added(joined, other)
    return responses[0]._replace(body=json.dumps(joined, separators=(",", ":")).encode())


def _added(one: Any, other: Any) -> Any:
    """Numbers are added, lists follow one another, objects are joined member by member."""
    match one, other:
        case dict(), dict():
            both = {key: _added(one[key], other[key]) for key in one if key in other}
            return {**one, **other, **both}
        case list(), list():
            return [*one, *other]
        case bool(), _:
            return one
        case ((int() | float()), (int() | float())):
            return one + other
    return one
