"""The official `/api`, `/ping`, `/config` and `/render`: what scripts and dashboards call.

Every document has a `message`: "" or a warning. An error is `{"message": "CODE"}`. `upstream.py`
has the rule for daemons that fail.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from penstock import limits
from penstock.errors import FetchFailed, NotFound
from penstock.nsqadmin import aggregate, graphite
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.actions import VERBS
from penstock.nsqadmin.gate import Forbidden, LoginWanted
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.runs import run_row, run_whole
from penstock.nsqadmin.store import StoreFailed
from penstock.nsqadmin.upstream import Producer, UpstreamFailed, warnings
from penstock.wire.names import is_valid_name

Document = dict[str, Any]
_TARGET_CHARS = 300  # of what was refused, in the audit log: a topic's and a channel's name

ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "the request breaks a rule; `message` is its code"},
    401: {"description": "log in first"},
    403: {"description": "the caller may not do this"},
    404: {"description": "there is no such thing"},
    413: {"description": "the body is empty or too large"},
    502: {"description": "no daemon gave an answer"},
    503: {"description": "nothing was done, because the audit log can't be written"},
}


class ApiError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


def error_response(error: Exception) -> JSONResponse:
    """The answer to whatever a handler has raised on purpose."""
    if isinstance(error, ApiError):
        status, message = error.status, error.message
    elif isinstance(error, UpstreamFailed):
        status, message = 502, f"UPSTREAM_ERROR: {error}"
    elif isinstance(error, LoginWanted):
        status, message = 401, "UNAUTHORIZED"
    elif isinstance(error, Forbidden):
        status, message = 403, "FORBIDDEN"
    elif isinstance(error, NotFound):
        status, message = 404, f"{error.kind.upper()}_NOT_FOUND"
    elif isinstance(error, StoreFailed):
        status, message = 503, f"STORE_FAILED: {error}"
    else:
        raise error
    return JSONResponse({"message": message}, status)


HANDLED = (ApiError, UpstreamFailed, Forbidden, NotFound, StoreFailed)


def caller_of(ground: Ground, request: Request) -> Caller:
    remote = request.client.host if request.client else ""
    return ground.gate.caller(request.headers, request.cookies, remote)


def viewed(ground: Ground, request: Request, role: Role = Role.VIEW) -> Ground:
    """`ground`, when the caller may look at it."""
    caller = caller_of(ground, request)
    ground.gate.check(caller, Role.VIEW)
    ground.gate.check(caller, role)
    return ground


def changed(ground: Ground, request: Request, role: Role) -> tuple[Ground, Caller]:
    """The same for a request that changes something."""
    caller = caller_of(ground, request)
    try:
        ground.gate.check_change(caller, role, request.headers, request.cookies)
    except Forbidden as error:
        if ground.gate.is_new_refusal(caller, f"{request.method} {request.url.path}"):
            target = f"{request.method} {request.url.path}"[:_TARGET_CHARS]
            ground.audit.note(caller, "request", f"failed: {error}", target)
        raise
    return ground, caller


class Api:
    """The handlers. Each checks its caller first."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground

    def router(self) -> APIRouter:
        router = APIRouter(
            prefix=self._ground.base, responses=ERRORS, default_response_class=JSONResponse
        )
        add = router.add_api_route
        add("/ping", self.ping, response_class=PlainTextResponse)
        add("/api/topics", self.topics, methods=["GET"])
        add("/api/topics", self.create, methods=["POST"],
            openapi_extra=_body("topic", "channel", numbers=("partitions",)))  # fmt: skip
        add("/api/topics/{topic}", self.topic, methods=["GET"])
        add("/api/topics/{topic}", self.act, methods=["POST"], openapi_extra=_body("action"))
        add("/api/topics/{topic}", self.delete, methods=["DELETE"])
        add("/api/topics/{topic}/{channel}", self.channel, methods=["GET"])
        add("/api/topics/{topic}/{channel}", self.act_channel, methods=["POST"],
            openapi_extra=_body("action"))  # fmt: skip
        add("/api/topics/{topic}/{channel}", self.delete_channel, methods=["DELETE"])
        add("/api/nodes", self.nodes, methods=["GET"])
        add("/api/nodes/{node}", self.node, methods=["GET"])
        add("/api/nodes/{node}", self.tombstone, methods=["DELETE"], openapi_extra=_body("topic"))
        add("/api/counter", self.counter, methods=["GET"])
        add("/api/graphite", self.graphite, methods=["GET"])
        add("/api/pipelines", self.pipelines, methods=["GET"])
        add("/api/pipelines/{run}", self.pipeline, methods=["GET"])
        options = self._ground.options
        if options.proxy_graphite and options.graphite_url:
            add("/render", self.render, methods=["GET"])
        self._refuse_the_rest(router)
        return router

    def _refuse_the_rest(self, router: APIRouter) -> None:
        """Below /api nothing falls through to the pages. (Wrong methods do not come here: see
        `paths.py`.)"""

        async def refuse(request: Request) -> Response:
            raise ApiError(404, "NOT_FOUND")

        methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
        for path in ("/api", "/api/{rest:path}"):
            router.add_api_route(path, refuse, methods=methods, include_in_schema=False)

    async def ping(self) -> PlainTextResponse:
        """Whether it is there."""
        return PlainTextResponse("OK")

    # --- reading ---

    async def topics(self, request: Request, inactive: str = "") -> Document:
        """Topics; with inactive=true those that no nsqd has, and their channels."""
        upstream = self._viewed(request).upstream
        names, warning = await upstream.topics()
        if inactive != "true":
            return {"topics": names, "message": warning}
        if not upstream.lookupds:
            return {"topics": {}, "message": warning}
        found, missed = await upstream.producers()
        active = {name for producer in found for name, _ in producer.topics}
        idle = [name for name in names if name not in active]
        channels = {name: await upstream.channels(name) for name in idle}
        return {"topics": channels, "message": warnings(warning, missed)}

    async def topic(self, request: Request, topic: str) -> Document:
        """A topic over all nodes."""
        nodes, warning = await _stats_of(self._viewed(request), topic)
        return {**aggregate.topic(topic, nodes), "message": warning}

    async def channel(self, request: Request, topic: str, channel: str) -> Document:
        """A channel over all nodes, with its clients."""
        nodes, warning = await _stats_of(self._viewed(request), topic, channel)
        found = aggregate.channel(topic, channel, nodes)
        if found is None:
            raise ApiError(404, "CHANNEL_NOT_FOUND")
        return {**found, "message": warning}

    async def nodes(self, request: Request) -> Document:
        """Every nsqd."""
        found, warning = await self._viewed(request).upstream.producers()
        return {"nodes": node_rows(found), "message": warning}

    async def node(self, request: Request, node: str) -> Document:
        """One nsqd: its topics, channels and clients."""
        ground = self._viewed(request)
        producer, warning = await ground.actions.find(node)
        asked = await ground.upstream.stats([producer], clients=True)
        stats = node_stats([producer], asked.answers)[0]
        return {**aggregate.node(stats), "message": warning}

    async def counter(self, request: Request) -> Document:
        """Messages by topic, channel and node."""
        upstream = self._viewed(request).upstream
        found, warning = await upstream.producers()
        asked = await upstream.stats(found)
        stats = aggregate.counter(node_stats(found, asked.answers))
        return {"stats": stats, "message": warnings(warning, asked.warning)}

    async def graphite(self, request: Request, metric: str = "", target: str = "") -> Document:
        """The rate of a counter, as graphite knows it."""
        ground = self._viewed(request)
        options = ground.options
        if metric != "rate":
            raise ApiError(400, "INVALID_ARG_METRIC")
        if not target:
            raise ApiError(400, "INVALID_ARG_TARGET")
        if not options.graphite_url:
            raise ApiError(404, "NO_GRAPHITE")
        try:
            interval_ns = options.statsd_interval_ns
            found = await graphite.rate(ground.fetcher, options.graphite_url, target, interval_ns)
        except FetchFailed as error:
            raise ApiError(502, f"UPSTREAM_ERROR: {error.reason}") from error
        return {"rate": found}

    async def pipelines(self, request: Request, pipeline: str = "") -> Document:
        """Runs of pipelines, or of one pipeline, that were heard of in the last days."""
        ground = viewed(self._ground, request)
        await ground.runs.ready()
        runs = ground.runs.runs
        found = [run for run in runs.all() if pipeline in ("", run.state.pipeline)]
        return {"runs": [run_row(runs, run) for run in found], "message": ""}

    async def pipeline(self, request: Request, run: str) -> Document:
        """One run, with its chart and the command that starts it again."""
        ground = viewed(self._ground, request)
        await ground.runs.ready()
        runs = ground.runs.runs
        found = runs.find(run)
        if found is None:
            raise ApiError(404, "RUN_NOT_FOUND")
        return {**run_whole(runs, found), "message": ""}

    async def render(self, request: Request) -> Response:
        """Graphite's pictures."""
        ground = self._viewed(request)
        if not (ground.options.proxy_graphite and ground.options.graphite_url):
            raise ApiError(404, "NOT_FOUND")
        try:
            query = request.url.query
            found = await graphite.render(ground.fetcher, ground.options.graphite_url, query)
        except FetchFailed as error:
            raise ApiError(502, f"UPSTREAM_ERROR: {error.reason}") from error
        kind = found.headers.get("content-type")
        return Response(found.body, found.status, media_type=kind)

    # --- changing ---

    async def create(self, request: Request) -> Document:
        """Make a topic, and a channel of it."""
        ground, caller = self._changed(request, Role.OPERATE)
        document = await _document(request)
        topic, channel = _text(document, "topic"), _text(document, "channel")
        if not is_valid_name(topic.encode()):
            raise ApiError(400, "INVALID_TOPIC")
        if channel and not is_valid_name(channel.encode()):
            raise ApiError(400, "INVALID_CHANNEL")
        partitions = _partitions(document)
        about = _about(topic, channel)
        run = partial(ground.actions.create, topic, channel, partitions)
        actions = ("create_topic", "create_channel") if channel else ("create_topic",)
        return await _change(ground, request, caller, actions, about, run)

    async def act(self, request: Request, topic: str) -> Document:
        """Pause, unpause or empty a topic."""
        return await self._act(request, topic, "")

    async def act_channel(self, request: Request, topic: str, channel: str) -> Document:
        """Pause, unpause or empty a channel."""
        return await self._act(request, topic, channel)

    async def _act(self, request: Request, topic: str, channel: str) -> Document:
        ground, caller = self._changed(request, Role.OPERATE)
        verb = _text(await _document(request), "action")
        if verb not in VERBS:
            raise ApiError(400, "INVALID_ACTION")
        if verb == "empty":
            ground, caller = self._changed(request, Role.DESTROY)
        name = f"{verb}_{'channel' if channel else 'topic'}"
        run = partial(ground.actions.act, verb, topic, channel)
        return await _change(ground, request, caller, (name,), _about(topic, channel), run)

    async def delete(self, request: Request, topic: str) -> Document:
        """Delete a topic everywhere."""
        ground, caller = self._changed(request, Role.DESTROY)
        run = partial(ground.delete, topic)
        return await _change(ground, request, caller, ("delete_topic",), _about(topic), run)

    async def delete_channel(self, request: Request, topic: str, channel: str) -> Document:
        """Delete a channel everywhere."""
        ground, caller = self._changed(request, Role.DESTROY)
        run = partial(ground.delete, topic, channel)
        about = _about(topic, channel)
        return await _change(ground, request, caller, ("delete_channel",), about, run)

    async def tombstone(self, request: Request, node: str) -> Document:
        """Take a topic off one nsqd."""
        ground, caller = self._changed(request, Role.DESTROY)
        try:
            topic = _text(await _document(request), "topic")
        except ApiError as error:
            raise ApiError(400, "INVALID_BODY") from error
        if not is_valid_name(topic.encode()):
            raise ApiError(400, "INVALID_TOPIC")
        about = _about(topic) | {"node": node}
        run = partial(ground.actions.tombstone, node, topic)
        return await _change(ground, request, caller, ("tombstone_topic_producer",), about, run)

    # --- whose ---

    def _viewed(self, request: Request) -> Ground:
        return viewed(self._ground, request)

    def _changed(self, request: Request, role: Role) -> tuple[Ground, Caller]:
        return changed(self._ground, request, role)


async def _change(
    ground: Ground, request: Request, caller: Caller, actions: tuple[str, ...],
    about: dict[str, str], run: Callable[[], Awaitable[str]],
) -> Document:  # fmt: skip
    came = origin(request)
    return {"message": await ground.audit.perform(caller, actions, about, run, origin=came)}


async def _stats_of(
    ground: Ground, topic: str, channel: str = ""
) -> tuple[list[aggregate.NodeStats], str]:
    producers, warning = await ground.upstream.producers_of(topic)
    asked = await ground.upstream.stats(producers, topic, channel, clients=bool(channel))
    return node_stats(producers, asked.answers), warnings(warning, asked.warning)


def node_stats(
    producers: list[Producer], answers: Mapping[str, Mapping[str, Any]]
) -> list[aggregate.NodeStats]:
    return [
        aggregate.NodeStats(
            one.address, one.hostname, answers[one.address], one.topology_zone, one.topology_region
        )
        for one in producers
        if one.address in answers
    ]


def node_rows(producers: list[Producer]) -> list[Document]:
    """`/api/nodes`; a node is out of date when another one has a higher version."""
    highest = max((_version(one.version) for one in producers), default=())
    rows = []
    for one in producers:
        remote = one.remote_addresses[0].partition("/")[2] if one.remote_addresses else ""
        row: Document = {
            "remote_addresses": list(one.remote_addresses),
            "remote_address": remote,
            "hostname": one.hostname,
            "broadcast_address": one.broadcast_address,
            "tcp_port": one.tcp_port,
            "http_port": one.http_port,
            "version": one.version,
        }
        if one.topology_zone:
            row["topology_zone"] = one.topology_zone
        if one.topology_region:
            row["topology_region"] = one.topology_region
        row["topics"] = [{"topic": name, "tombstoned": dead} for name, dead in one.topics]
        row["out_of_date"] = _version(one.version) < highest
        rows.append(row)
    return rows


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split("-")[0].split("."):
        if not part.isdigit():
            break
        numbers.append(int(part))
    return tuple(numbers)


def origin(request: Request) -> dict[str, str]:
    """What a notification says about the request."""
    found = {
        "remote_ip": f"{request.client.host}:{request.client.port}" if request.client else "",
        "user_agent": request.headers.get("user-agent", ""),
        "url": str(request.url),
    }
    user = _basic_user(request.headers.get("authorization", ""))
    return {"user": user, **found} if user else found


def _basic_user(header: str) -> str:
    scheme, _, text = header.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(text, validate=True).decode().partition(":")[0]
    except ValueError:
        return ""


def _about(topic: str, channel: str = "") -> dict[str, str]:
    return {"topic": topic, "channel": channel} if channel else {"topic": topic}


async def _document(request: Request) -> Document:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limits.ADMIN_BODY_BYTES_MAX:
            raise ApiError(413, "BODY_TOO_BIG")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(400, str(error) or "not JSON") from error
    if not isinstance(document, dict):
        raise ApiError(400, "the body is not a JSON object")
    return document


def _text(document: Document, key: str) -> str:
    value = document.get(key, "")
    if not isinstance(value, str):
        raise ApiError(400, f"{key} is not a string")
    return value


def _partitions(document: Document) -> int:
    """How many a new topic is to have; 0: as many as nsqd makes by default."""
    value = document.get("partitions", 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ApiError(400, "partitions is not a whole number")
    if not 0 <= value <= limits.PARTITIONS_MAX:
        raise ApiError(400, f"partitions {value}: from 1 to {limits.PARTITIONS_MAX}")
    return value


def _body(*names: str, numbers: tuple[str, ...] = ()) -> dict[str, Any]:
    """The description of a JSON body with these strings and whole numbers."""
    properties = {name: {"type": "string"} for name in names}
    schema = {
        "type": "object",
        "required": [names[0]],
        "properties": properties | {name: {"type": "integer"} for name in numbers},
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
