"""The pages, under the base path of the application."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response
from nicegui import app as app_of_pages
from nicegui import ui

from penstock import limits
from penstock.nsqadmin.gate import Forbidden, LoginWanted
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import (
    audit,
    channel,
    connections,
    counter,
    crowd,
    definitions,
    diagnostics,
    downloads,
    existing,
    guard,
    login,
    lookup,
    messages,
    nodes,
    overview,
    people,
    pipelines,
    plain,
    run,
    sql,
    tokens,
    topic,
    topics,
    trace,
)

log = logging.getLogger("penstock.nsqadmin.site")

Scope = dict[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


_PARTS = (
    overview, topics, topic, channel, nodes, connections, counter, lookup, messages, people, tokens,
    audit, trace, pipelines, run, sql, diagnostics,
)  # fmt: skip


def add(app: FastAPI, ground: Ground) -> None:
    for part in _PARTS:
        part.add(ground)
    login.add(app, ground)
    downloads.add(app, ground)
    audit.add_download(app, ground)
    definitions.add_download(app, ground)
    run.add_report(app, ground)
    app_of_pages.add_exception_handler(Forbidden, _refuse(ground))
    app_of_pages.add_exception_handler(LoginWanted, _to_login(ground))
    app_of_pages.add_exception_handler(404, _not_found(ground))
    app_of_pages.add_exception_handler(existing.NoSuchPage, _no_such(ground))
    app_of_pages.add_exception_handler(Exception, _broken(ground))
    guard.watch_events()
    app_of_pages.on_delete(crowd.Sweeper().on_page_left)
    ui.run_with(
        app, mount_path=ground.base or "/", title="Penstock", dark=None, tailwind=False,
        language="en-US", show_welcome_message=False,
        reconnect_timeout=limits.ADMIN_RECONNECT_S,
        gzip_middleware_factory=None,  # the application around it does that, more quickly
    )  # fmt: skip
    if ground.base:
        app.add_middleware(_RootOf, base=ground.base)
    app.add_middleware(guard.Guard, gate=ground.gate, base=ground.base)


Answering = Callable[[Request, Exception], Awaitable[Response]]  # in the event loop


def _refuse(ground: Ground) -> Answering:
    async def answer(request: Request, error: Exception) -> Response:
        return plain.instead(request, ground.base, "Not for you", f"{error}.", 403)

    return answer


def _to_login(ground: Ground) -> Answering:
    async def answer(request: Request, error: Exception) -> Response:
        path = request.url.path.removeprefix(ground.base)
        target = f"{path}?{request.url.query}" if request.url.query else path
        return RedirectResponse(f"{ground.base}/login?next={quote(target)}", 303)

    return answer


def _not_found(ground: Ground) -> Answering:
    """Plain, so that those who try addresses cost us nothing."""

    async def answer(request: Request, error: Exception) -> Response:
        words = "There is no such page here. The bar of every page leads to all of them."
        return plain.instead(request, ground.base, "Not found", words, 404)

    return answer


def _no_such(ground: Ground) -> Answering:
    """A topic or channel that is not there."""

    async def answer(request: Request, error: Exception) -> Response:
        return plain.instead(request, ground.base, "Not found", f"{error}.", 404)

    return answer


def _broken(ground: Ground) -> Answering:
    async def answer(request: Request, error: Exception) -> Response:
        log.error("%s failed", request.url.path, exc_info=error)
        words = "This page could not be made. nsqadmin's log says why; try again, and report it."
        return plain.instead(request, ground.base, "Something broke", words, 500)

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
