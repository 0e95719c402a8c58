"""The pages, under the base path of the application."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, RedirectResponse, Response
from nicegui import app as app_of_pages
from nicegui import ui

from penstock import limits
from penstock.nsqadmin import ways
from penstock.nsqadmin.gate import Forbidden, LoginWanted
from penstock.nsqadmin.ground import Grounds, place_in
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
    installations,
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
    audit, trace, pipelines, run, sql, diagnostics, installations,
)  # fmt: skip


def add(app: FastAPI, grounds: Grounds) -> None:
    for part in _PARTS:
        part.add(grounds)
    login.add(app, grounds.shared)
    downloads.add(app, grounds)
    audit.add_download(app, grounds)
    definitions.add_download(app, grounds)
    run.add_report(app, grounds)
    app_of_pages.add_exception_handler(Forbidden, _refuse(grounds))
    app_of_pages.add_exception_handler(LoginWanted, _to_login(grounds))
    app_of_pages.add_exception_handler(404, _not_found(grounds))
    app_of_pages.add_exception_handler(existing.NoSuchPage, _no_such(grounds))
    app_of_pages.add_exception_handler(Exception, _broken(grounds))
    guard.watch_events()
    app_of_pages.on_delete(crowd.Sweeper().on_page_left)
    ui.run_with(
        app, mount_path=grounds.base or "/", title="Penstock", dark=None, tailwind=False,
        language="en-US", show_welcome_message=False,
        reconnect_timeout=limits.ADMIN_RECONNECT_S,
        gzip_middleware_factory=None,  # the application around it does that, more quickly
    )  # fmt: skip
    if grounds.base:
        app.add_middleware(_RootOf, base=grounds.base)
    gates = [grounds.shared.gate, *(one.gate for one in grounds)]
    app.add_middleware(guard.Guard, gates=gates, base=grounds.base)
    if grounds.shared.options.installation:
        names = [ground.name for ground in grounds]
        app.add_middleware(ways.Ways, names=names, base=grounds.base)


Answering = Callable[[Request, Exception], Awaitable[Response]]  # in the event loop


def _refuse(grounds: Grounds) -> Answering:
    async def answer(request: Request, error: Exception) -> Response:
        others = _others(grounds, request)
        return plain.instead(request, grounds.base, "Not for you", f"{error}.", 403, others)

    return answer


def _to_login(grounds: Grounds) -> Answering:
    async def answer(request: Request, error: Exception) -> Response:
        path = place_in(request.scope) + request.url.path.removeprefix(grounds.base)
        target = f"{path}?{request.url.query}" if request.url.query else path
        return RedirectResponse(f"{grounds.base}/login?next={quote(target)}", 303)

    return answer


def _not_found(grounds: Grounds) -> Answering:
    """Plain, so that those who try addresses cost us nothing."""

    async def answer(request: Request, error: Exception) -> Response:
        found = ways.asked(request.scope, grounds.base) if len(grounds) > 1 else None
        if found is None:
            words = "There is no such page here. The bar of every page leads to all of them."
            return plain.instead(request, grounds.of(request).home, "Not found", words, 404)
        if ways.is_api(found):
            return JSONResponse({"message": "INSTALLATION_NOT_FOUND"}, 404)
        words = "There is no such installation here, or no such page of one."
        others = _others(grounds, request)
        return plain.instead(request, grounds.base, "Not found", words, 404, others)

    return answer


def _no_such(grounds: Grounds) -> Answering:
    """A topic or channel that is not there."""

    async def answer(request: Request, error: Exception) -> Response:
        home = grounds.of(request).home
        return plain.instead(request, home, "Not found", f"{error}.", 404)

    return answer


def _others(grounds: Grounds, request: Request) -> list[tuple[str, str]]:
    """Where the caller may go on, if there are several installations: (words, address)."""
    if len(grounds) == 1:
        return []
    return [(ground.name, f"{ground.home}/") for ground in grounds.seen_by(request)]


def _broken(grounds: Grounds) -> Answering:
    async def answer(request: Request, error: Exception) -> Response:
        log.error("%s failed", request.url.path, exc_info=error)
        words = "This page could not be made. nsqadmin's log says why; try again, and report it."
        return plain.instead(request, grounds.of(request).home, "Something broke", words, 500)

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
