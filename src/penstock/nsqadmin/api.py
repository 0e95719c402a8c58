"""The caller and the answer: errors, checks and rows that `/api` and the pages share.

Every document of `/api` has a `message`: "" or a warning. An error is `{"message": "CODE"}`.
`upstream.py` has the rule for daemons that fail; `routes.py` has the addresses.
"""

import base64
import json
import sys
from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.requests import HTTPConnection

from penstock import limits
from penstock.errors import FetchFailed, NotFound
from penstock.net.query import whole_number
from penstock.nsqadmin import aggregate
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.actions import OfCluster
from penstock.nsqadmin.aggregate import TOPOLOGY
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.gate import Forbidden, Gate, LoginWanted
from penstock.nsqadmin.messages import InputInvalid
from penstock.nsqadmin.snapshot import NodeState
from penstock.nsqadmin.store import StoreFailed
from penstock.nsqadmin.upstream import NSQD, NsqdAddress, Upstream, UpstreamFailed
from penstock.nsqdapi.calls import stats_query

Document = dict[str, Any]
_DESCRIBED = ("hostname", "broadcast_address", "tcp_port", "http_port", "version")
_TARGET_CHARS = 300  # of what was refused, in the audit log: a topic's and a channel's name


class ApiError(Exception):
    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


# What handlers raise on purpose: the status and the message that it becomes.
ANSWERS: dict[type[Exception], Callable[[Any], tuple[int, str]]] = {
    ApiError: lambda error: (error.status, str(error)),
    InputInvalid: lambda error: (400, f"INVALID_ARG: {error}"),
    UpstreamFailed: lambda error: (502, f"UPSTREAM_ERROR: {error}"),
    FetchFailed: lambda error: (502, f"UPSTREAM_ERROR: {error.reason}"),
    LoginWanted: lambda error: (401, "UNAUTHORIZED"),
    Forbidden: lambda error: (403, "FORBIDDEN"),
    NotFound: lambda error: (404, f"{error.kind.upper()}_NOT_FOUND"),
    OfCluster: lambda error: (409, f"OF_CLUSTER: {error}"),
    StoreFailed: lambda error: (503, f"STORE_FAILED: {error}"),
}


def error_response(error: Exception) -> JSONResponse:
    answer = next(ANSWERS[kind] for kind in type(error).__mro__ if kind in ANSWERS)
    status, message = answer(error)
    return JSONResponse({"message": message}, status)


def caller_of(gate: Gate, asking: HTTPConnection) -> Caller:
    """The caller of a request, or of a socket, which keeps the headers of its opening."""
    remote = asking.client.host if asking.client else ""
    return gate.caller(asking.headers, asking.cookies, remote)


def viewed(deps: Deps, request: Request, role: Role = Role.VIEW) -> Caller:
    caller = caller_of(deps.gate, request)
    deps.gate.check(caller, role)
    return caller


def changed(deps: Deps, request: Request, role: Role) -> Caller:
    caller = caller_of(deps.gate, request)
    try:
        deps.gate.check_change(caller, role, request.headers, request.cookies)
    except Forbidden as error:
        target = f"{request.method} {request.url.path}"
        is_known = bool(caller.name) or caller.role > Role.NONE
        if is_known and deps.gate.is_new_refusal(caller.shown, caller.remote, target):
            deps.audit.note(caller, "request", f"failed: {error}", target[:_TARGET_CHARS])
        raise
    return caller


def saved(name: str) -> dict[str, str]:
    """Headers of a file that a browser saves, and does not run."""
    return {
        "Content-Disposition": f'attachment; filename="{name}"',
        "X-Content-Type-Options": "nosniff",
    }


async def body_of(request: Request, too_big: str) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > limits.ADMIN_BODY_BYTES_MAX:
            raise ApiError(413, too_big)
    return body


async def document_of(request: Request) -> Document:
    try:
        document = json.loads(await body_of(request, "BODY_TOO_BIG"))
    except (ValueError, RecursionError) as error:
        raise ApiError(400, str(error) or "not JSON") from error
    if not isinstance(document, dict):
        raise ApiError(400, "the body is not a JSON object")
    return document


async def node_stats(
    upstream: Upstream, producers: list[NsqdAddress], topic: str = "", channel: str = "",
    clients: bool = False,
) -> tuple[list[NodeState], str]:  # fmt: skip
    """Of those that answer as an nsqd does, and a warning about the others."""
    named, query = {one.address: one for one in producers}, stats_query(topic, channel, clients)

    async def read(address: str) -> NodeState:
        found = NodeState(
            address, named[address], await upstream.document(address, "/stats", query)
        )
        aggregate.node(found), aggregate.counter([found])  # where they fail, it is its fault
        return found

    asked = await upstream.ask(NSQD, named, read)
    return list(asked.answers.values()), asked.warning


def node_rows(producers: list[NsqdAddress]) -> list[Document]:
    """`/api/nodes`."""
    old = out_of_date(producers)
    rows = []
    for one in producers:
        remote = one.remote_addresses[0].rpartition("/")[2] if one.remote_addresses else ""
        described = {name: getattr(one, name) for name in _DESCRIBED}
        topology = {name: getattr(one, name) for name in TOPOLOGY if getattr(one, name)}
        topics = [{"topic": name, "tombstoned": dead} for name, dead in one.topics]
        remotes = {"remote_addresses": list(one.remote_addresses), "remote_address": remote}
        more = {"topics": topics, "out_of_date": one.address in old}
        rows.append(remotes | described | topology | more)
    return rows


def out_of_date(producers: list[NsqdAddress]) -> set[str]:
    """The addresses of those of which another one has a higher version."""
    highest = max((_version(one.version) for one in producers), default=())
    return {one.address for one in producers if _version(one.version) < highest}


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split("-")[0].split("."):
        number = whole_number(part, sys.maxsize)
        if number is None:
            break
        numbers.append(number)
    return tuple(numbers)


def origin(request: Request) -> dict[str, str]:
    """The origin of the request for a notification."""
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
