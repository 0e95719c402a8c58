"""The pages, under the base path of the application."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from nicegui import app as app_of_pages
from nicegui import ui

from penstock.nsqadmin.gate import Forbidden, LoginWanted
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import (
    channel,
    connections,
    counter,
    login,
    lookup,
    messages,
    nodes,
    overview,
    people,
    sql,
    topic,
    topics,
    trace,
)

Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


_PARTS = (
    overview, topics, topic, channel, nodes, connections, counter, lookup, messages, people, trace,
    sql,
)  # fmt: skip


def add(app: FastAPI, ground: Ground) -> None:
    for part in _PARTS:
        part.add(ground)
    login.add(app, ground)
    messages.add_download(app, ground)
    app_of_pages.add_exception_handler(Forbidden, _refuse)
    app_of_pages.add_exception_handler(LoginWanted, _to_login(ground))
    ui.run_with(
        app, mount_path=ground.base or "/", title="Penstock", dark=None, tailwind=False,
        show_welcome_message=False, reconnect_timeout=10.0,
    )  # fmt: skip
    if ground.base:
        app.add_middleware(_RootOf, base=ground.base)


def _refuse(request: Request, error: Exception) -> Response:
    return PlainTextResponse(f"{error}\n", 403)


def _to_login(ground: Ground) -> Callable[[Request, Exception], Response]:
    def answer(request: Request, error: Exception) -> Response:
        path = request.url.path.removeprefix(ground.base)
        return RedirectResponse(f"{ground.base}/login?next={quote(path)}", 303)

    return answer


class _RootOf:
    """The page at the base path itself has no slash at its end, as official."""

    def __init__(self, app: App, base: str) -> None:
        self._app = app
        self._base = base

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        path = scope.get("path")
        if scope["type"] == "http" and path == f"{self._base}/":
            response: Response = RedirectResponse(self._base, 301)
            await response(scope, receive, send)
            return
        if scope["type"] in ("http", "websocket") and path == self._base:
            scope = {**scope, "path": f"{path}/", "raw_path": f"{path}/".encode()}
        await self._app(scope, receive, send)
