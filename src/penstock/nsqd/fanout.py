"""Verbs at any node of a cluster: other nodes are asked over their links (`peer_requests`).

**About messages**: each leader of a partition does its part.

A request such as `/channel/empty` acts on the partitions that the asked node leads. Where others
lead some, it is sent to them, too, with `only_here=true`, so that they ask nobody else, and the
answers are put together: numbers are added, tables by partition joined. A request that names a
partition goes to its leader alone.

| verbs | answered with 200 when |
|---|---|
| about all messages | every leader has done it; else the first that has not says why |
| about one message | one of them has it |
| a redrive | all have done it, one after the other, as `count` is for them together |

A redrive concerns the leaders of the dead-letter topic; the others, those of the topic.
A partition without a leader is named in an error: nothing was done there.

**About a topic or a channel**, which the metadata has: any node with a replica changes that. One
that has none sends the request to the first that it reaches, a leader if there is one.

**Publishes of an idempotent producer** are sent to the leader of its partition, which remembers
what it has stored. Others are forwarded in rows (`broker/replicas/outbox.py`).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from penstock.broker.topics.publishing import PRODUCER_ID_BYTES
from penstock.net.api import Answer, HttpError, Route
from penstock.net.exchange import Request, Response
from penstock.net.query import parse_query, whole_number
from penstock.nsqd.http.routes import OF_ALL, OF_METADATA, OF_ONE

if TYPE_CHECKING:
    from penstock.nsqd.cluster import ClusterMember
    from penstock.nsqd.peer_requests import PeerRequests

_ONLY_HERE = b"only_here="  # of the query, which the verbs do not know
REDRIVE = "/channel/redrive"
OF_PRODUCERS = frozenset({"/pub", "/mpub", "/pubtrace", "/mpubtrace", "/pub_ext"})
Serve = Callable[[Request, Answer], None]
Far = Callable[[Serve, Request, Answer], None]


class FanOut:
    def __init__(self, member: ClusterMember, peers: PeerRequests) -> None:
        self._member = member
        self._peers = peers
        self._tasks: set[asyncio.Task[None]] = set()

    def spread(self, table: dict[str, Route]) -> None:
        """The routes of these verbs, from now on."""
        for paths, serve in (
            (OF_ALL | OF_ONE, self._at_all_leaders),
            ({REDRIVE}, self._at_dead_letters),
            (OF_METADATA, self._at_a_replica),
            (OF_PRODUCERS, self._at_producers_leader),
        ):
            for path in paths:
                here = table[path].serve
                table[path] = table[path]._replace(serve=partial(self._serve, here, serve))

    def _serve(self, here: Serve, serve: Far, request: Request, answer: Answer) -> None:
        if _ONLY_HERE in request.query:
            words = [one for one in request.query.split(b"&") if not one.startswith(_ONLY_HERE)]
            if len(query := b"&".join(words)) < len(request.query):
                here(request._replace(query=query), answer)
                return
        serve(here, request, answer)

    def _at_producers_leader(self, serve: Serve, request: Request, answer: Answer) -> None:
        leader = self._producers_leader(request) if b"producer_id=" in request.query else None
        if leader is None or leader == self._member.own:
            serve(request, answer)
        else:
            self._begin(self._pass_on_to([leader], request, answer, "stored"))

    def _producers_leader(self, request: Request) -> int | None:
        """None: the producer's leader is absent at present, or the request is invalid, and is
        answered here."""
        parameters = parse_query(request.query)
        producer_id = whole_number(parameters.get("producer_id", ""), (1 << 64) - 1)
        if producer_id is None:
            return None
        key = producer_id.to_bytes(PRODUCER_ID_BYTES, "big")
        return self._member.leader_of_producer(parameters.get("topic", ""), key)

    def _at_a_replica(self, serve: Serve, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        member, topic = self._member, parameters.get("topic", "")
        held = member.view.topics.get(topic)
        is_there = held is not None and not held.document.deleted  # else it is a tombstone
        if is_there and not member.has_replica(topic):
            self._begin(self._pass_on_to(member.view.nodes_for(topic), request, answer))
        else:
            serve(request, answer)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_on_to(
        self, nodes: list[int], request: Request, answer: Answer, outcome: str = "changed"
    ) -> None:
        answer(await self._pass_on(request, nodes, outcome))

    def _at_all_leaders(self, serve: Serve, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        leaders = self._leaders(parameters.get("topic", ""), parameters)
        if leaders <= {self._member.own}:
            serve(request, answer)
            return
        local: asyncio.Future[Response] | None = None
        if self._member.own in leaders:
            local = asyncio.get_running_loop().create_future()
            serve(request, local.set_result)
        others = sorted(leaders - {self._member.own})
        self._begin(self._ask_all(request, others, local, answer))

    def _leaders(self, topic: str, parameters: Mapping[str, str]) -> set[int]:
        """The leaders that the request concerns. Raises HttpError where one is missing."""
        chosen = parameters.get("partition", "")
        found: set[int] = set()
        for number, leader in self._member.leaders(topic):
            if chosen in ("", "-1", str(number)):
                if leader is None:
                    reason = f"partition {number} of topic {topic} has no leader at present"
                    raise HttpError(503, f"FAILED {reason}")
                found.add(leader)
        return found

    def _at_dead_letters(self, serve: Serve, request: Request, answer: Answer) -> None:
        parameters = parse_query(request.query)
        names = parameters.get("topic", ""), parameters.get("channel", "")
        leaders = self._leaders(self._member.dead_letter_topic(*names), {})
        leaders = leaders or self._leaders(names[0], {})  # there never was one: they answer so
        if leaders <= {self._member.own}:
            serve(request, answer)
        else:
            self._begin(self._redrive(request, parameters, sorted(leaders), answer))

    async def _redrive(
        self, request: Request, parameters: dict[str, str], leaders: list[int], answer: Answer
    ) -> None:
        responses: list[Response] = []
        left = whole_number(parameters.get("count", ""), (1 << 63) - 1)
        for node in leaders:
            if left:
                query = urlencode(parameters | {"count": left}).encode()
                request = request._replace(query=query)
            response = await self._pass_on(request, [node])
            if response.status != 200:
                answer(_after(responses, response))
                return
            responses.append(response)
            if left:
                left -= json.loads(response.body)["redriven"]
                if not left:
                    break
        answer(join_answers(responses))

    async def _ask_all(
        self, request: Request, others: list[int], local: asyncio.Future[Response] | None,
        answer: Answer,
    ) -> None:  # fmt: skip
        asked = await asyncio.gather(*(self._pass_on(request, [one]) for one in others))
        responses = [*([await local] if local is not None else []), *asked]
        done = [one for one in responses if one.status == 200]
        failed = [one for one in responses if one.status != 200]
        is_of_one = request.path in OF_ONE
        is_elsewhere = is_of_one or all(b"MESSAGE_NOT_FOUND" in one.body for one in failed)
        answer(join_answers(done) if done and (not failed or is_elsewhere) else failed[0])

    async def _pass_on(
        self, request: Request, nodes: list[int], outcome: str = "changed"
    ) -> Response:
        here = request._replace(query=request.query + b"&only_here=true")
        return await self._peers.ask(nodes, here, outcome)


def _after(done: list[Response], refusal: Response) -> Response:
    """A refusal that says what others have sent back before it."""
    sent = sum(json.loads(one.body)["redriven"] for one in done)
    if not sent:
        return refusal
    document = {"reason": "", **json.loads(refusal.body), "redriven": sent}
    document["reason"] = f"{document['reason']} ({sent} were sent back before that)".strip()
    return refusal._replace(body=json.dumps(document, separators=(",", ":")).encode())


def join_answers(responses: list[Response]) -> Response:
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
            both |= {"offset": None} if "offset" in both else {}  # of different logs
            return {**one, **other, **both}
        case list(), list():
            return [*one, *other]
        case bool(), _:
            return one
        case ((int() | float()), (int() | float())):
            return one + other
    return one
