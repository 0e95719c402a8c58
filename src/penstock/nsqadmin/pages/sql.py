"""A small SQL console over topics and tables: one SELECT at a time, bounded in every way."""

import asyncio
import json
import re
import time
from functools import partial
from typing import Any

from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import console, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.audit import NotDone
from penstock.nsqadmin.console import Question, Reply
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.pages import layout, parts
from penstock.nsqadmin.pages.grid import Column, Grid, column
from penstock.nsqadmin.pages.layout import PageView

_PLAIN = re.compile(r"[a-z_][a-z0-9_]*")
_RESERVED = frozenset(("offset", "order", "group", "table", "user", "select", "from", "where"))
_LISTED_MAX = 200  # topics beside the statement: more is a search, which Ctrl+K does
_ROWS_NOTE = f"the first {limits.ADMIN_SQL_ROWS:,} rows are shown"
_running = asyncio.Semaphore(1)  # one statement at a time, whoever asks
_INSERT = "(e) => penstock.insert(e)"
_OPENS = "icon-right=expand_more"
_ITEM = "role=menuitem"  # of a list, says NiceGUI
_KINDS = {"TIMESTAMP WITH TIME ZONE": "timestamptz"}
_RECENT, _REMEMBER, _FORGET = (
    f"return penstock.{name}()" for name in ("recent", "remember", "forget")
)


async def check(view: PageView) -> None:
    view.deps.gate.check(view.caller, _role(view.deps))


def _role(deps: Deps) -> Role:
    """Masks are for pages that know which field they show; a statement can take any apart."""
    return Role.DESTROY if deps.options.mask_field else Role.OPERATE


class Console:
    def __init__(self, view: PageView) -> None:
        self._view = view
        topic = view.query.get("topic", "")
        self._topics = topics_of(view.deps)
        if topic and topic not in self._topics:
            self._topics.insert(0, topic)  # it may be younger than the last look
        self._topic = topic or (self._topics[0] if self._topics else "")
        self._reply = Reply()
        parts.heading("SQL over topics and tables")
        count = limits.ADMIN_SQL_MESSAGES
        parts.soft(
            f"One SELECT of DuckDB's SQL, {limits.ADMIN_SQL_S:.0f} seconds at most. A topic is a"
            f" table of its newest {count:,} messages; decode(body) is a body as text."
        )
        with ui.element("div").classes("console"):
            self._things()
            with ui.element("div").classes("writing"):
                self._writing()

    def _things(self) -> None:
        with ui.element("section").classes("panel things"):
            parts.written("h3", "Topics")
            shown = self._topics[:_LISTED_MAX]
            for name in shown:
                self._thing(name)
            if not shown:
                parts.soft("No topic yet.")
            parts.more(self._topics, _LISTED_MAX)
            parts.written("h3", "Tables")
            self._tables = ui.element("div")
        ui.timer(0.05, self._show_tables, once=True)

    def _thing(self, name: str) -> None:
        with ui.element("div").classes("thing"):
            self._insert(name)
            with ui.element("details") as box:
                summary = parts.written("summary", "columns")
                parts.named(summary.classes("soft small"), f"Columns of {name}")
                area = ui.element("ul")

        async def ask() -> None:
            if area.default_slot.children:
                return
            found = await columns_of(self._view.deps, name)
            self._list(area, found or (("can't be read", ""),))

        box.on("toggle", ask)

    def _list(self, area: ui.element, columns: tuple[tuple[str, str], ...]) -> None:
        area.clear()
        with area:
            for name, kind in columns:
                with ui.element("li"):
                    self._insert(name)
                    ui.label(_KINDS.get(kind, kind.lower())).classes("soft small")

    def _insert(self, name: str) -> None:
        """A click inserts the name at the statement's cursor."""
        button = parts.written("button", name)
        button.props["data-name"] = quoted(name)
        button.props["type"] = "button"
        button.on("click", js_handler=_INSERT)

    async def _show_tables(self) -> None:
        found = await tables_of(self._view.deps)
        with self._tables:
            for name in found:
                self._thing(name)
            if not found:
                lakes = ", ".join(self._view.deps.options.lake)
                text = f"None below {lakes} yet." if lakes else "-lake names no tables."
                parts.soft(text)

    def _writing(self) -> None:
        first, *more = examples(self._topic).items()
        self._sql = ui.textarea("Statement", value=first[1]).classes("mono statement")
        self._sql.props('outlined autogrow input-style="min-height: 7rem" spellcheck=false')
        self._sql.on("keydown.ctrl.enter", self._run)
        self._sql.on("keydown.meta.enter", self._run)
        with parts.row():
            self._button = ui.button("Run (Ctrl+Enter)", on_click=self._run).props("unelevated")
            with parts.small_button("Examples").props(_OPENS), ui.menu():
                for name, sql in more or [first]:
                    ui.menu_item(name, partial(self._sql.set_value, sql)).props(_ITEM)
            recent = parts.small_button("Recent").props(_OPENS)
            with recent:
                self._recent = ui.menu()
            recent.on("click", self._show_recent)
            parts.grow()
            self._saves = [
                parts.small_button("CSV", self._save_csv, "Download as CSV"),
                parts.small_button("JSON", self._save_json, "Download as JSON"),
            ]
            for button in self._saves:
                button.props("icon=download").set_visibility(False)
        self._note = parts.note()
        self._area = ui.element("div")

    async def _show_recent(self) -> None:
        found = await ui.run_javascript(_RECENT, timeout=10.0)
        self._recent.clear()
        with self._recent:
            for text in found if isinstance(found, list) else []:
                shown = " ".join(str(text).split())
                shown = shown[:90] + ("…" if len(shown) > 90 else "")
                ui.menu_item(shown, partial(self._sql.set_value, str(text))).props(_ITEM)
            if not found:
                none = ui.menu_item("No statement has run in this browser yet.")
                none.props(_ITEM).props("disable")
            else:
                ui.separator()
                ui.menu_item("Forget these", lambda: ui.run_javascript(_FORGET)).props(_ITEM)

    async def _run(self) -> None:
        view, text = self._view, str(self._sql.value or "")
        if not layout.may_still(view, _role(view.deps), "sql", {}):
            return
        if len(text) > limits.ADMIN_SQL_STATEMENT_CHARS:
            self._note.set_text(f"At most {limits.ADMIN_SQL_STATEMENT_CHARS:,} characters, please.")
            return
        if not self._button.enabled:
            return  # the one before still runs
        self._button.disable()
        ui.run_javascript(_REMEMBER)
        self._note.set_text("Running …")
        try:
            with view.deps.audit.entry(view.caller, ("sql",), {}, text) as entry:
                reply, took_s = await _ask(view.deps, text)
                entry.result = reply.error and f"failed: {reply.error}"
        except NotDone as error:
            self._note.set_text(str(error))
        else:
            self._show(reply, took_s)
        finally:
            self._button.enable()

    def _show(self, reply: Reply, took_s: float) -> None:
        self._area.clear()
        self._reply = reply
        for button in self._saves:
            button.set_visibility(not reply.error)
        if reply.error:
            self._note.set_text("The statement was not answered:")
            with self._area, ui.element("pre").classes("mono fault").props("tabindex=0"):
                ui.label(reply.error)
            return
        notes = [words.count(len(reply.rows), "row") + (", and more" if reply.is_cut else "")]
        notes += [f"{took_s:.2f} s"]
        notes += [_ROWS_NOTE] if reply.is_cut else []
        self._note.set_text("; ".join((*notes, *reply.notes)))
        names = [f"c{number}" for number in range(len(reply.columns))]
        columns = [
            _column(name, shown, kind)
            for name, shown, kind in zip(names, reply.columns, reply.types, strict=True)
        ]
        rows = [
            {"row": number, **dict(zip(names, map(_exact, row), strict=True))}
            for number, row in enumerate(reply.rows)
        ]
        with self._area:
            grid = Grid(columns, "row", "No row.", "Rows", "max(18rem, calc(100vh - 430px))")
            grid.show(rows)

    def _save_csv(self) -> None:
        text = parts.as_csv(self._reply.columns, self._reply.rows)
        ui.download.content(text, "rows.csv", "text/csv")

    def _save_json(self) -> None:
        names = console.distinct(self._reply.columns)
        found = [dict(zip(names, row, strict=True)) for row in self._reply.rows]
        text = json.dumps(found, indent=1, ensure_ascii=False)
        ui.download.content(text, "rows.json", "application/json")


def _column(name: str, shown: str, kind: str) -> Column:
    words = f"{shown} ({_KINDS.get(kind, kind.lower())})" if kind else shown
    if kind in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UBIGINT", "HUGEINT", "DOUBLE"):
        return column(name, words, "value", flex=1, minWidth=110, maxWidth=None, filter=False)
    return column(name, words, flex=2, minWidth=130, tooltipField=name)


async def _ask(deps: Deps, text: str) -> tuple[Reply, float]:
    """Over the topics of all nodes that answer, and the tables of -lake; and the seconds that it
    took once it was its turn."""
    question = Question(
        sql=text,
        nodes=deps.watch.up(),
        lakes=list(deps.options.lake),
        rows_max=limits.ADMIN_SQL_ROWS,
        tls=deps.options.tls_files,
    )
    async with _running:
        began_s = time.monotonic()
        return await console.ask(question), time.monotonic() - began_s


def _exact(value: Any) -> Any:
    """A browser's numbers are exact up to 2**53."""
    return str(value) if isinstance(value, int) and abs(value) > 1 << 53 else value


# --- help with statements ---


def quoted(name: str) -> str:
    """In the form of a statement."""
    if _PLAIN.fullmatch(name) and name not in _RESERVED:
        return name
    return console.quoted(name)


def topics_of(deps: Deps) -> list[str]:
    """Topics with messages first, the busiest before the others; internal ones last."""
    found = deps.watch.latest.topics.values()
    asked = sorted(found, key=lambda one: (one.is_internal, -one.stored_bytes, one.name))
    return [one.name for one in asked if one.nodes]


async def tables_of(deps: Deps) -> list[str]:
    """The names of the tables of -lake. Finding them reads a disk."""
    names: set[str] = set()
    for lake in deps.options.lake:
        names |= set(await asyncio.to_thread(_below, lake))
    return sorted(names)


def _below(lake: str) -> list[str]:
    from penstock.pipelines.delta_reader import tables_below

    try:
        return list(tables_below(lake))
    except (OSError, PenstockError):
        return []  # it is not there yet; a statement that names a table says more


async def columns_of(deps: Deps, table: str) -> tuple[tuple[str, str], ...]:
    """The columns of a table or topic; () when it cannot be read."""
    reply, _ = await _ask(deps, f"SELECT * FROM {quoted(table)} LIMIT 0")
    return tuple(zip(reply.columns, reply.types, strict=True))


_EXAMPLES = """-- First
SELECT count(*) AS messages, min(timestamp) AS oldest, max(timestamp) AS newest
FROM {topic}
-- Newest messages
SELECT "offset", timestamp, try(decode(body)) AS body
FROM {topic}
ORDER BY "offset" DESC
LIMIT 50
-- Messages a minute
SELECT date_trunc('minute', timestamp) AS minute, count(*) AS messages,
  sum(octet_length(body)) AS bytes
FROM {topic}
GROUP BY minute
ORDER BY minute DESC
-- By a field of JSON
SELECT json_extract_string(try(decode(body)), '$.status') AS status, count(*) AS messages
FROM {topic}
WHERE json_valid(try(decode(body)))
GROUP BY status
ORDER BY messages DESC
-- The same body twice
SELECT md5(body) AS body_md5, count(*) AS times, min("offset") AS first, max("offset") AS last
FROM {topic}
GROUP BY body_md5
HAVING count(*) > 1
ORDER BY times DESC
-- Largest bodies
SELECT "offset", timestamp, octet_length(body) AS bytes
FROM {topic}
ORDER BY bytes DESC
LIMIT 20"""


def examples(topic: str) -> dict[str, str]:
    """By name; the first is shown when the page opens."""
    if not topic:
        return {"What day is it": "SELECT current_date AS today"}
    found = dict(one.split("\n", 1) for one in _EXAMPLES.removeprefix("-- ").split("\n-- "))
    return {name: sql.replace("{topic}", quoted(topic)) for name, sql in found.items()}
