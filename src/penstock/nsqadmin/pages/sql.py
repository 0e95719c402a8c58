"""A small SQL console over topics and tables: one SELECT at a time, bounded in every way."""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import Request
from nicegui import ui

from penstock import limits
from penstock.nsqadmin import sandbox
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.console import Question, Reply
from penstock.nsqadmin.gate import Forbidden
from penstock.nsqadmin.ground import Ground, Grounds
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.grid import Grid, column
from penstock.nsqadmin.pages.layout import Opened

_running = asyncio.Semaphore(1)  # one statement at a time, whoever asks
_EXAMPLE = "SELECT topic, count(*) AS messages, max(timestamp) AS newest FROM orders GROUP BY topic"


def add(grounds: Grounds) -> None:
    @ui.page("/sql")
    def console(request: Request) -> None:
        here = layout.opened(grounds, request)
        role = _role(here.ground)
        if not here.may(role):
            raise Forbidden(f"this page needs the role {role.name.lower()}")
        with layout.page(here, "SQL"):
            _Console(here).draw()


def _role(ground: Ground) -> Role:
    """Masks are for pages that know which field they show; a statement can take any apart."""
    return Role.DESTROY if ground.options.mask_field else Role.OPERATE


class _Console:
    def __init__(self, here: Opened) -> None:
        self._here = here

    def draw(self) -> None:
        layout.heading("SQL over topics and tables")
        lakes = self._here.ground.options.lake
        where = f"tables are those in {', '.join(lakes)}" if lakes else "-lake names no tables"
        count = limits.ADMIN_SQL_MESSAGES
        ui.label(
            f"A topic is a view of its newest {count:,} messages; {where}."
            f" One SELECT of DuckDB's SQL, {limits.ADMIN_SQL_S:.0f} seconds at most."
        ).classes("soft")
        self._sql = (
            ui.textarea("Statement", value=_EXAMPLE).props("outlined autogrow").classes("mono")
        )
        self._sql.on("keydown.ctrl.enter", self._run)
        with ui.element("div").classes("heading"):
            self._button = ui.button("Run (Ctrl+Enter)", on_click=self._run).props("unelevated")
            self._note = ui.label().classes("soft").props('role="status"')
        self._place = ui.element("div")

    async def _run(self) -> None:
        here, text = self._here, str(self._sql.value or "")
        if not here.ground.gate.is_still(here.caller, _role(here.ground)):
            self._note.set_text("You may not do this any more: open the page again.")
            return
        if len(text) > limits.ADMIN_SQL_STATEMENT_CHARS:
            self._note.set_text(f"At most {limits.ADMIN_SQL_STATEMENT_CHARS:,} characters, please.")
            return
        self._button.disable()
        self._note.set_text("Running …")
        try:
            async with _running:
                reply = await _ask(here.ground, text)
        finally:
            self._button.enable()
        here.ground.done(here.caller, "sql", {}, reply.error and f"failed: {reply.error}", text)
        self._show(reply)

    def _show(self, reply: Reply) -> None:
        self._place.clear()
        if reply.error:
            self._note.set_text(reply.error)
            return
        more = " (there are more)" if reply.is_cut else ""
        notes = "".join(f"; {note}" for note in reply.notes)
        self._note.set_text(f"{words.count(len(reply.rows), 'row')}{more}{notes}")
        names = [f"c{number}" for number in range(len(reply.columns))]
        columns = [
            column(name, shown, flex=1, minWidth=120)
            for name, shown in zip(names, reply.columns, strict=True)
        ]
        rows = [
            {"row": number, **dict(zip(names, map(_exact, row), strict=True))}
            for number, row in enumerate(reply.rows)
        ]
        with self._place:
            Grid(columns, rows, "row", "No row.", "Rows", "55vh")


async def _ask(ground: Ground, text: str) -> Reply:
    """Over the topics of all nodes that answer, and the tables of -lake."""
    question = Question(
        sql=text,
        nodes=[one.address for one in ground.watch.latest.nodes.values() if one.is_up],
        lakes=list(ground.options.lake),
        rows_max=limits.ADMIN_SQL_ROWS,
        ca_file=ground.options.http_client_tls_root_ca_file,
    )
    return await sandbox.ask(question)


def _exact(value: Any) -> Any:
    """A browser's numbers are exact up to 2**53."""
    return str(value) if isinstance(value, int) and abs(value) > 1 << 53 else value
