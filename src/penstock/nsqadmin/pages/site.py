"""The pages, under the base path of the application: one table of them, and the answers for pages
that cannot be shown."""

import logging
from html import escape
from typing import Any
from urllib.parse import quote

from fastapi import FastAPI, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from nicegui import app as app_of_pages
from nicegui import ui

from penstock import limits
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.gate import Forbidden, LoginWanted
from penstock.nsqadmin.pages import (
    audit,
    connections,
    downloads,
    guard,
    login,
    lookup,
    messages,
    nodes,
    overview,
    people,
    pipelines,
    sql,
    topic,
    topics,
    trace,
)
from penstock.nsqadmin.pages.layout import NoSuchPage, Page, check_exists
from penstock.nsqadmin.pages.style import plain

log = logging.getLogger("penstock.nsqadmin.site")

PAGES = (
    Page("/", "Overview", overview.draw),
    Page("/topics", "Topics", topics.Topics),
    Page("/topics/{topic}", "{topic}", topic.draw, check_exists),
    Page("/topics/{topic}/{channel}", "{topic}/{channel}", topic.draw_channel, check_exists),
    Page("/messages/{topic}", "Messages of {topic}", messages.draw, check_exists),
    Page("/nodes", "Nodes", nodes.draw_all),
    Page("/nodes/{address}", "{address}", nodes.draw, nodes.check),
    Page("/connections", "Connections", connections.draw),
    Page("/counter", "Counter", overview.draw_counter),
    Page("/lookup", "Lookup", lookup.draw),
    Page("/trace", "Trace", trace.Lives),
    Page("/pipelines", "Pipelines", pipelines.draw, pipelines.check),
    Page("/pipelines/{run}", pipelines.title, pipelines.draw_run, pipelines.check),
    Page("/sql", "SQL", sql.Console, sql.check),
    Page("/audit", "Audit log", audit.AuditLog),
    Page("/users", "Users", people.Users),
    Page("/tokens", "Tokens", people.Tokens),
    Page("/account", "Your account", people.draw_account),
)


FILES = (*downloads.FILES, *audit.FILES, *lookup.FILES, *pipelines.FILES)


def add(app: FastAPI, deps: Deps) -> None:
    for page in PAGES:
        page.add(deps)
    login.add(app, deps)
    _add_answers(deps)
    guard.watch_events()
    app_of_pages.on_delete(guard.Sweeper().on_page_left)
    ui.run_with(
        app, mount_path=deps.base or "/", title="Penstock", dark=None, tailwind=False,
        language="en-US", show_welcome_message=False,
        reconnect_timeout=limits.ADMIN_RECONNECT_S,
        gzip_middleware_factory=None,  # the application around it does that, more quickly
    )  # fmt: skip
    app.add_middleware(guard.Guard, gate=deps.gate, base=deps.base)


def _add_answers(deps: Deps) -> None:
    """Plain answers, so that requests for random addresses are cheap."""

    def instead(request: Request, heading: str, words: str, status: int) -> HTMLResponse:
        """The text gives the reason, and the remedy."""
        way = f'<p><a href="{escape(deps.base)}/">To the overview</a></p>'
        return plain(request, heading, heading, f"<p>{escape(words)}</p>{way}", status)

    async def to_login(request: Request, error: Exception) -> Response:
        path = request.url.path.removeprefix(deps.base)
        target = f"{path}?{request.url.query}" if request.url.query else path
        return RedirectResponse(f"{deps.base}/login?next={quote(target)}", 303)

    async def refuse(request: Request, error: Exception) -> Response:
        return instead(request, "Not for you", f"{error}.", 403)

    async def not_found(request: Request, error: Exception) -> Response:
        none = "There is no such page here. The bar of every page leads to all of them."
        words = f"{error}." if isinstance(error, NoSuchPage) else none
        return instead(request, "Not found", words, 404)

    async def broken(request: Request, error: Exception) -> Response:
        log.error("%s failed", request.url.path, exc_info=error)
        words = "This page could not be made. nsqadmin's log says why; try again, and report it."
        return instead(request, "Something broke", words, 500)

    answers: dict[Any, Any] = {
        Forbidden: refuse, LoginWanted: to_login, 404: not_found, NoSuchPage: not_found,
        Exception: broken,
    }  # fmt: skip
    for error, answer in answers.items():
        app_of_pages.add_exception_handler(error, answer)
