"""nsqadmin's HTTP API, the official one and ours: one table of routes, each with the role that it
needs."""

import inspect
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from penstock import limits
from penstock.command import logs
from penstock.command.flags import LOG_LEVELS, Kind
from penstock.errors import ConfigError
from penstock.net.fetch import without_password
from penstock.net.listener import parse_address
from penstock.nsqadmin import aggregate, api, traces
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.actions import VERBS, Operation
from penstock.nsqadmin.api import ApiError, Document, document_of, node_stats, origin
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.options import FLAGS, UNTOLD
from penstock.nsqadmin.runs import run_row, run_whole
from penstock.nsqadmin.snapshot import NodeState
from penstock.nsqadmin.traces import Seeker
from penstock.nsqadmin.upstream import warnings
from penstock.trace.search import row_of
from penstock.wire.names import is_valid_name

VIEW, OPERATE, DESTROY = Role.VIEW, Role.OPERATE, Role.DESTROY


class Call(NamedTuple):
    deps: Deps
    request: Request
    caller: Caller

    async def perform(self, operation: Operation) -> Document:
        """Do it, write it down, and notify; it may take more than the route itself."""
        role, names, about, run = operation
        caller = api.changed(self.deps, self.request, role)
        audit, came = self.deps.audit, origin(self.request)
        return {"message": await audit.perform(caller, names, about, run, origin=came)}


class Route(NamedTuple):
    """`answer` is called with the call, and with the parameters that it names; those of changing
    routes are all in the path. Hidden routes are not in the description of the API: files for
    pages."""

    method: str
    path: str
    answer: Callable[..., Awaitable[Any]]
    role: Role = VIEW
    body: tuple[str, ...] = ()  # strings of its JSON document, the first is needed
    numbers: tuple[str, ...] = ()
    is_official: bool = True
    is_hidden: bool = False


# --- reading ---


async def topics(call: Call, inactive: str = "") -> Document:
    """Topics; with inactive=true those without an nsqd, and their channels."""
    upstream = call.deps.upstream
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


async def topic(call: Call, topic: str) -> Document:
    """A topic over all nodes."""
    nodes, warning = await _stats_of(call.deps, topic)
    return {**aggregate.topic(topic, nodes), "message": warning}


async def channel(call: Call, topic: str, channel: str) -> Document:
    """A channel over all nodes, with its clients."""
    nodes, warning = await _stats_of(call.deps, topic, channel)
    found = aggregate.channel(topic, channel, nodes)
    if found is None:
        raise ApiError(404, "CHANNEL_NOT_FOUND")
    return {**found, "message": warning}


async def _stats_of(deps: Deps, topic: str, channel: str = "") -> tuple[list[NodeState], str]:
    producers, warning = await deps.upstream.producers_of(topic)
    found, missed = await node_stats(deps.upstream, producers, topic, channel, bool(channel))
    return found, warnings(warning, missed)


async def nodes(call: Call) -> Document:
    """Every nsqd."""
    found, warning = await call.deps.upstream.producers()
    return {"nodes": api.node_rows(found), "message": warning}


async def node(call: Call, node: str) -> Document:
    """One nsqd: its topics, channels and clients."""
    producer, warning = await call.deps.actions.find(node)
    (found,), _ = await node_stats(call.deps.upstream, [producer], clients=True)
    return {**aggregate.node(found), "message": warning}


async def counter(call: Call) -> Document:
    """Messages by topic, channel and node."""
    upstream = call.deps.upstream
    producers, warning = await upstream.producers()
    found, missed = await node_stats(upstream, producers)
    return {"stats": aggregate.counter(found), "message": warnings(warning, missed)}


async def pipelines(call: Call, pipeline: str = "") -> Document:
    """Runs of pipelines, or of one pipeline, with a report in the last days."""
    await call.deps.runs.ready()
    runs = call.deps.runs.runs
    found = [run for run in runs.all() if pipeline in ("", run.state.pipeline)]
    return {"runs": [run_row(runs, run) for run in found], "message": ""}


async def pipeline(call: Call, run: str) -> Document:
    """One run, with its chart and the command that starts it again."""
    await call.deps.runs.ready()
    runs = call.deps.runs.runs
    found = runs.find(run)
    if found is None:
        raise ApiError(404, "RUN_NOT_FOUND")
    return {**run_whole(runs, found), "message": ""}


async def trace(
    call: Call, id: str = "", topic: str = "", partition: str = "", since: str = ""
) -> Document:
    """Events of a message id, or of trace:N; of one topic, of one partition."""
    deps = call.deps
    ask, only = traces.wanted(id, since), traces.only_in(topic, partition)
    await deps.watch.ready()
    seeker = Seeker(deps.upstream, deps.watch.up(), deps.options.trace_table, ask, only)
    await seeker.look_in_log()
    await seeker.look_in_tables()
    found = seeker.found()
    known = await traces.contexts(deps.upstream, found, deps.options.mask_field)
    rows = [
        row_of(one.event, one.node, known.get(one.event.message_id, "")) | {"sources": one.sources}
        for one in found
    ]
    return {"events": rows, "message": "; ".join(seeker.notes)}


# --- graphite, if there is one ---


async def graphite(call: Call, metric: str = "", target: str = "") -> Document:
    """The rate of a counter, as graphite knows it."""
    if metric != "rate":
        raise ApiError(400, "INVALID_ARG_METRIC")
    if not target:
        raise ApiError(400, "INVALID_ARG_TARGET")
    if not call.deps.options.graphite_url:
        raise ApiError(404, "NO_GRAPHITE")
    # What it grew by in a second of the interval before the last.
    interval_s = call.deps.options.statsd_interval_ns // limits.SECOND
    query = {"target": target, "format": "json", "from": f"-{2 * interval_s}s",
             "until": f"-{interval_s}s"}  # fmt: skip
    answer = await call.deps.fetcher.get_json(_render_url(call, urlencode(query)))
    points = answer[0].get("datapoints") if isinstance(answer, list) and answer else None
    if not points or points[0][0] is None:
        return {"rate": "N/A"}
    return {"rate": f"{float(points[0][0]) / max(interval_s, 1):.2f}"}


async def render(call: Call) -> Response:
    """Graphite's pictures."""
    url = _render_url(call, call.request.url.query)
    found = await call.deps.fetcher.request("GET", url)
    return Response(found.body, found.status, media_type=found.headers.get("content-type"))


def _render_url(call: Call, query: str) -> str:
    return f"{call.deps.options.graphite_url.rstrip('/')}/render?{query}"


# --- changing ---


async def create(call: Call) -> Document:
    """Make a topic, and a channel of it."""
    document = await document_of(call.request)
    topic, channel = _text(document, "topic"), _text(document, "channel")
    if not is_valid_name(topic):
        raise ApiError(400, "INVALID_TOPIC")
    if channel and not is_valid_name(channel):
        raise ApiError(400, "INVALID_CHANNEL")
    partitions = _count(document, "partitions", limits.PARTITIONS_MAX)
    replicas = _count(document, "replicas", limits.MEMBERS_MAX)
    return await call.perform(call.deps.actions.create(topic, channel, partitions, replicas))


async def act(call: Call, topic: str, channel: str = "") -> Document:
    """Pause, unpause or empty a topic, or a channel of it."""
    verb = _text(await document_of(call.request), "action")
    if verb not in VERBS:
        raise ApiError(400, "INVALID_ACTION")
    return await call.perform(call.deps.actions.act(verb, topic, channel))


async def delete(call: Call, topic: str, channel: str = "") -> Document:
    """Delete a topic, or a channel of it, everywhere."""
    return await call.perform(call.deps.actions.delete(topic, channel))


async def tombstone(call: Call, node: str) -> Document:
    """Take a topic off one nsqd."""
    try:
        topic = _text(await document_of(call.request), "topic")
    except ApiError as error:
        raise ApiError(400, "INVALID_BODY") from error
    if not is_valid_name(topic):
        raise ApiError(400, "INVALID_TOPIC")
    return await call.perform(call.deps.actions.tombstone(node, topic))


def _text(document: Document, key: str) -> str:
    value = document.get(key, "")
    if not isinstance(value, str):
        raise ApiError(400, f"{key} is not a string")
    return value


def _count(document: Document, name: str, most: int) -> int:
    """The number of partitions of a new topic; 0: nsqd's default."""
    value = document.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ApiError(400, f"{name} is not a whole number")
    if not 0 <= value <= most:
        raise ApiError(400, f"{name} {value}: from 1 to {most}")
    return value


# --- configuring ---

_FLAGS = {flag.file_key: flag for flag in FLAGS if flag.name not in UNTOLD}
_WRITABLE = ("log_level", "nsqlookupd_http_addresses")


async def config(call: Call, option: str) -> Response:
    """The value of an option."""
    if option not in _FLAGS:
        raise ApiError(400, "INVALID_OPTION")
    return _shown(call.deps, option)


async def configure(call: Call, option: str) -> Response:
    """Change nsqlookupd_http_addresses or log_level."""
    body = await api.body_of(call.request, "INVALID_VALUE")
    if not body:
        raise ApiError(413, "INVALID_VALUE")
    if option not in _WRITABLE:
        raise ApiError(400, "INVALID_OPTION")

    def run() -> None:
        set_ = _set_log_level if option == "log_level" else _set_lookupds
        call.deps.configured[option] = set_(call.deps, body)

    about, text = {"option": option}, body.decode("utf-8", "replace")
    await call.deps.audit.perform(call.caller, ("config",), about, run, text)
    return _shown(call.deps, option)


def _shown(deps: Deps, option: str) -> Response:
    flag = _FLAGS[option]
    value = deps.configured.get(option, getattr(deps.options, flag.attribute))
    if option == "log_level":
        return JSONResponse(LOG_LEVELS.index(value) + 1)
    if isinstance(value, str):
        return PlainTextResponse(without_password(value))
    if flag.kind is Kind.STRINGS:
        return JSONResponse([without_password(one) for one in value])
    return JSONResponse(value)


def _set_lookupds(deps: Deps, body: bytes) -> list[str]:
    if not deps.upstream.lookupds:
        raise ApiError(400, "INVALID_VALUE")  # it was told of nsqds
    try:
        found = json.loads(body)
        if not isinstance(found, list) or not found:
            raise ValueError
        for one in found:
            parse_address(one if isinstance(one, str) else "")
    except (ValueError, RecursionError, ConfigError) as error:
        raise ApiError(400, "INVALID_VALUE") from error
    deps.upstream.lookupds = tuple(found)
    return found


def _set_log_level(deps: Deps, body: bytes) -> str:
    level = body.decode("utf-8", "replace").lower()
    if level not in LOG_LEVELS:
        raise ApiError(400, "INVALID_VALUE")
    logs.set_level(level)
    return level


async def ping(call: Call) -> Response:
    """Whether it is there."""
    return PlainTextResponse("OK")


ROUTES = (
    Route("GET", "/ping", ping, Role.NONE),  # everybody
    Route("GET", "/api/trace", trace, is_official=False),
    Route("GET", "/api/topics", topics),
    Route("POST", "/api/topics", create, OPERATE, ("topic", "channel"), ("partitions", "replicas")),
    Route("GET", "/api/topics/{topic}", topic),
    Route("POST", "/api/topics/{topic}", act, OPERATE, ("action",)),
    Route("DELETE", "/api/topics/{topic}", delete, DESTROY),
    Route("GET", "/api/topics/{topic}/{channel}", channel),
    Route("POST", "/api/topics/{topic}/{channel}", act, OPERATE, ("action",)),
    Route("DELETE", "/api/topics/{topic}/{channel}", delete, DESTROY),
    Route("GET", "/api/nodes", nodes),
    Route("GET", "/api/nodes/{node}", node),
    Route("DELETE", "/api/nodes/{node}", tombstone, DESTROY, ("topic",)),
    Route("GET", "/api/counter", counter),
    Route("GET", "/api/graphite", graphite),
    Route("GET", "/api/pipelines", pipelines, is_official=False),
    Route("GET", "/api/pipelines/{run}", pipeline, is_official=False),
    Route("GET", "/config/{option}", config),
    Route("PUT", "/config/{option}", configure, DESTROY),
)
_RENDER = Route("GET", "/render", render)
_ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"description": "the request breaks a rule; `message` is its code"},
    401: {"description": "log in first"},
    403: {"description": "the caller may not do this"},
    404: {"description": "there is no such thing"},
    409: {"description": "a cluster would do it on all nodes"},
    413: {"description": "the body is empty or too large"},
    502: {"description": "no daemon gave an answer"},
    503: {"description": "nothing was done, because the audit log can't be written"},
}
_CONFIG_ANSWER: dict[int | str, dict[str, Any]] = {200: {
    "description": "a text as it is, everything else as JSON",
    "content": {"application/json": {}, "text/plain": {}},
}}  # fmt: skip


def routes_of(deps: Deps) -> tuple[Route, ...]:
    options = deps.options
    return (*ROUTES, _RENDER) if options.proxy_graphite and options.graphite_url else ROUTES


def router(deps: Deps, files: Sequence[Route]) -> APIRouter:
    found = APIRouter(prefix=deps.base)
    for route in (*routes_of(deps), *files):
        _add(found, deps, route)

    async def refuse(request: Request) -> Response:
        raise ApiError(404, "NOT_FOUND")

    # Below /api nothing falls through to the pages.
    methods = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    for path in ("/api", "/api/{rest:path}"):
        found.add_api_route(path, refuse, methods=methods, include_in_schema=False)
    return found


def file_route(path: str, answer: Callable[..., Awaitable[Response]], role: Role = VIEW) -> Route:
    """A file for pages, not for programs."""
    return Route("GET", path, answer, role, is_official=False, is_hidden=True)


def _add(router: APIRouter, deps: Deps, route: Route) -> None:
    async def answer(request: Request, **given: str) -> Any:
        return await route.answer(_checked(deps, request, route), **given)

    signature, kind = inspect.signature(route.answer), inspect.Parameter.POSITIONAL_OR_KEYWORD
    wanted = [inspect.Parameter("request", kind, annotation=Request)]
    for one in list(signature.parameters.values())[1:]:
        if f"{{{one.name}}}" in route.path:
            wanted.append(one.replace(default=one.empty))
        elif route.method == "GET":
            wanted.append(one)  # of the query
    answer.__signature__ = signature.replace(parameters=wanted)  # type: ignore[attr-defined]
    answer.__doc__ = route.answer.__doc__
    is_config = route.path.startswith("/config/")
    part = "_channel" if route.method != "GET" and "{channel}" in route.path else ""
    name = f"{route.answer.__name__}{part}"
    router.add_api_route(
        route.path, answer, methods=[route.method], name=name,
        responses=_ERRORS | _CONFIG_ANSWER if is_config else _ERRORS,
        response_class=PlainTextResponse if route.answer is ping else JSONResponse,
        include_in_schema=not route.is_hidden,
        openapi_extra=_body(route) if route.body else None,
    )  # fmt: skip


def _checked(deps: Deps, request: Request, route: Route) -> Call:
    """For /config the network is checked before the role, as in the official nsqadmin."""
    if route.path.startswith("/config/"):
        remote = request.client.host if request.client else ""
        if not deps.gate.may_configure(remote):
            raise ApiError(403, "FORBIDDEN")
    check = api.viewed if route.method == "GET" else api.changed
    return Call(deps, request, check(deps, request, route.role))


def _body(route: Route) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in route.body}
    schema = {
        "type": "object",
        "required": [route.body[0]],
        "properties": properties | {name: {"type": "integer"} for name in route.numbers},
    }
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
