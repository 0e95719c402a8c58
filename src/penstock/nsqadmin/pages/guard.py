"""What stands before the pages: NiceGUI takes a websocket from any site, and an event from whoever
names a page's id. Here a socket must come from a page of ours, and an event from a socket of the
very caller that the page was drawn for, who may still look. Answers say that no other site may put
our pages into a frame, and that a browser loads nothing from elsewhere.

NiceGUI keeps a page for a minute when it was asked for and no browser has opened its socket: it may
be on its way. A script that asks for pages, or a check of health, never opens one, so that hundreds
of pages would wait, each some hundred kilobytes. Here the newest few wait; a browser that comes
late for another loads it again by itself.
"""

import asyncio
import gc
import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs

from nicegui import Client, background_tasks, core
from socketio.exceptions import ConnectionRefusedError  # type: ignore[import-untyped]
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from penstock import limits
from penstock.nsqadmin import access
from penstock.nsqadmin.access import Caller, Role
from penstock.nsqadmin.api import caller_of
from penstock.nsqadmin.gate import Gate
from penstock.nsqadmin.pages.parts import go

log = logging.getLogger("penstock.nsqadmin.guard")

SOCKETS = "/_nicegui_ws"
_FAREWELL_S = 1.0  # for a browser to follow where it is led
_UNKNOWN = "Implicit handshake failed"  # the words upon which NiceGUI loads a page anew
_POLICY = "; ".join((
    "default-src 'self'",
    # A page's elements stand in a script of the page itself. NiceGUI makes functions of texts: in
    # nicegui.js (`renderRecursively`: bound properties and handlers; `runJavascript`: what the
    # server sends), and in Vue's compiler, for components that come as templates.
    "script-src 'self' 'unsafe-inline' 'unsafe-eval'",
    "style-src 'self' 'unsafe-inline'",
    "img-src 'self' data:",
    "font-src 'self' data:",
    "object-src 'none'",
    "base-uri 'none'",
    "form-action 'self'",
    "frame-ancestors 'none'",
))  # fmt: skip
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class Guard:
    """Refuses sockets of other sites and of callers without a role, and adds HEADERS."""

    def __init__(self, app: ASGIApp, gate: Gate, base: str) -> None:
        self._app = app
        self._gate = gate
        self._sockets = f"{base}{SOCKETS}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif str(scope["path"]).startswith(self._sockets) and not self._may_connect(scope):
            await _refuse(scope, receive, send)
        else:
            _trim()
            await self._app(scope, receive, _with_headers(send))

    def _may_connect(self, scope: Scope) -> bool:
        if access.is_foreign(Headers(scope=scope)):
            return False
        return caller_of(self._gate, HTTPConnection(scope)).role >= Role.VIEW


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] == "websocket":
        await receive()
        await send({"type": "websocket.close", "code": 1008})  # not accepted yet: it becomes a 403
        return
    await PlainTextResponse("FORBIDDEN\n", 403)(scope, receive, send)


def _with_headers(send: Send) -> Send:
    async def add(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
        await send(message)

    return add


# --- events ---


class Drawn(NamedTuple):
    client: Client
    caller: Caller
    gate: Gate
    way_out: str


# By the page's id, as long as it may be looked at.
_drawn: dict[str, Drawn] = {}


def drawn_for(client: Client, caller: Caller, gate: Gate, way_out: str) -> None:
    _drawn[client.id] = Drawn(client, caller, gate, way_out)
    client.on_delete(lambda: _drawn.pop(client.id, None))


async def end_with_rights() -> None:
    """The end of a login, or the loss of a role, ends its pages, too, with their contents."""
    while True:
        await asyncio.sleep(limits.ADMIN_RIGHTS_S)
        _end_those_without_rights()  # a function: a variable of this loop would keep a page alive


def _end_those_without_rights() -> None:
    for one in list(_drawn.values()):
        try:
            if one.gate.held(one.caller) < Role.VIEW:
                close(one.client, one.way_out)
        except Exception:
            log.exception("cannot determine whether the caller of a page still has the right to it")


def is_open(client: Client) -> bool:
    return client.id in _drawn


def close(client: Client, target: str) -> None:
    """Its caller lost permission: redirect the browser, then end the page whatever the browser
    does. From now on its events are ignored; without a socket NiceGUI deletes it."""
    _drawn.pop(client.id, None)
    with client:
        go(target)

    async def end() -> None:
        await asyncio.sleep(_FAREWELL_S)
        for sid in [one for one, _ in core.sio.manager.get_participants("/", client.id)]:
            await core.sio.disconnect(sid)

    background_tasks.create(end(), name="end of a page")


def watch_events() -> None:
    """Put ourselves between the sockets and NiceGUI's handlers."""
    handlers = core.sio.handlers["/"]
    for name in ("handshake", "event", "javascript_response", "ack"):
        core.sio.on(name, _guarded(handlers[name]))
    core.sio.on("connect", _guarded_connect(handlers["connect"]))
    core.sio.on("log", _ignore)  # what a browser says goes into no log of ours


def _guarded_connect(handler: Callable[..., Any]) -> Callable[..., Awaitable[None]]:
    async def handle(sid: str, environ: dict[str, Any], auth: Any = None) -> None:
        """A socket may name its page at once."""
        query = parse_qs(environ.get("QUERY_STRING", ""))
        page = query.get("client_id", [""])[0]
        if page and not _is_its(environ.get("asgi.scope") or {}, page):
            raise ConnectionRefusedError(_UNKNOWN)
        await handler(sid, environ, auth)

    return handle


def _guarded(handler: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def handle(sid: str, message: Any = None, *more: Any) -> Any:
        environ = core.sio.get_environ(sid) or {}
        page = message.get("client_id") if isinstance(message, dict) else None
        if not isinstance(page, str) or not _is_its(environ.get("asgi.scope") or {}, page):
            return False
        try:
            result = handler(sid, message)
            return await result if inspect.isawaitable(result) else result
        except (KeyError, TypeError, ValueError, AttributeError):
            log.debug("an event that no page of ours sends was ignored", exc_info=True)
            return False

    return handle


def _is_its(scope: Scope, page: str) -> bool:
    """Whether the socket belongs to whom the page was drawn for, and they may still look."""
    if page not in _drawn or not scope:
        return False
    drawn = _drawn[page].caller
    now = caller_of(_drawn[page].gate, HTTPConnection(scope))
    same = (now.name, now.how, now.session) == (drawn.name, drawn.how, drawn.session)
    return same and now.role >= Role.VIEW


async def _ignore(sid: str, *ignored: Any) -> None:
    return None


# --- pages that nobody looks at ---


def _trim() -> None:
    """With every request, before it may add one more."""
    if len(Client.instances) < limits.ADMIN_PAGES_WAITING:
        return
    waiting = [one for one in Client.instances.values() if _waits(one)]
    for one in waiting[: 1 - limits.ADMIN_PAGES_WAITING]:
        one.delete()


def _waits(client: Client) -> bool:
    """Waits for its first socket. A page that has lost its socket gets it back, or is deleted,
    soon."""
    return not client.has_socket_connection and not client._delete_tasks


class Sweeper:
    """A deleted page is a cycle of objects, which only the collector frees. It is called soon
    after, once for all pages deleted meanwhile: the waiting objects lie between permanent ones."""

    def __init__(self) -> None:
        self._is_due = False

    def on_page_left(self) -> None:
        if not self._is_due:
            self._is_due = True
            asyncio.get_running_loop().call_later(limits.ADMIN_SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        self._is_due = False
        gc.collect()
