"""The audit log: who has done what, narrowed by any of it, with the filter in the address, and as a
file.

Deep link: /audit?q=TEXT&who=NAME&action=ACTION&target=NAME&result=failed&since=-1h&until=TIME.
"""

from __future__ import annotations

import csv
import io
import json
import time
from collections.abc import Iterator
from urllib.parse import urlencode

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import messages
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import ApiError, viewed
from penstock.nsqadmin.gate import Forbidden
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.grid import Grid, Row, column, wide
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.store import Entry, Narrowed

_PAGE = 200  # entries of the log at once
_RESULTS = {"": "Any result", "ok": "Done", "failed": "Failed", "warning": "With a warning"}
_SPANS = {"": "Any time", "-1h": "The last hour", "-1d": "The last day", "-7d": "The last week",
          "-30d": "The last month"}  # fmt: skip
_ENTRIES = [
    column("time", "Time (UTC)", width=160),
    column("who", "Who", width=120),
    wide(1200, column("how", "How", width=110)),
    wide(1000, column("remote", "From", width=140)),
    column("action", "Action", flex=1, minWidth=110),
    wide(560, column("target", "On", flex=1, minWidth=140)),
    wide(800, column("detail", "Detail", flex=1, minWidth=120, tooltipField="detail")),
    wide(560, column("result", "Result", flex=1, minWidth=120, tooltipField="result")),
]
_FIELDS = ("q", "who", "action", "target", "result", "since", "until")


def add(ground: Ground) -> None:
    @ui.page("/audit")
    def audit(
        request: Request, q: str = "", who: str = "", action: str = "", target: str = "",
        result: str = "", since: str = "", until: str = "",
    ) -> None:  # fmt: skip
        here = layout.opened(ground, request)
        if not here.may(Role.OPERATE):
            raise Forbidden("this page needs the role operate")
        with layout.page(here, "Audit log"):
            asked = dict(zip(_FIELDS, (q, who, action, target, result, since, until), strict=True))
            _Audit(here, asked).draw()


def add_download(app: FastAPI, ground: Ground) -> None:
    @app.get(f"{ground.base}/audit/download", include_in_schema=False)
    async def download(
        request: Request, form: str = "csv", q: str = "", who: str = "",
        action: str = "", target: str = "", result: str = "", since: str = "", until: str = "",
    ) -> Response:  # fmt: skip
        """What the page shows, in full."""
        viewed(ground, request)
        here = layout.opened(ground, request)
        here.ground.gate.check(here.caller, Role.OPERATE)
        if form not in ("csv", "jsonl"):
            raise ApiError(400, "INVALID_ARG_FORM")
        asked = dict(zip(_FIELDS, (q, who, action, target, result, since, until), strict=True))
        try:
            narrowed = _narrowed(asked)
        except PenstockError as error:
            raise ApiError(400, "INVALID_ARG_TIME") from error
        found = here.ground.store.audit(q, 0, limits.ADMIN_AUDIT_SAVED, narrowed)
        headers = {
            "Content-Disposition": f'attachment; filename="audit.{form}"',
            "X-Content-Type-Options": "nosniff",
        }
        kind = "text/csv" if form == "csv" else "application/x-ndjson"
        return Response("".join(_written(found, form)), headers=headers, media_type=kind)


def _written(found: list[Entry], form: str) -> Iterator[str]:
    """The newest first, as the page."""
    if form == "jsonl":
        for one in found:
            yield json.dumps(one._asdict(), ensure_ascii=False) + "\n"
        return
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("time", *Entry._fields))
    writer.writerows((words.clock(one.time_s), *map(_as_cell, one)) for one in found)
    yield text.getvalue()


def _as_cell(value: object) -> object:
    """A table's program takes what begins so for a formula."""
    text = str(value)
    return f"'{text}" if text.startswith(("=", "+", "@", "\t")) else value


def _narrowed(asked: dict[str, str]) -> Narrowed:
    """Raises PlaceInvalid."""
    now_s = time.time()
    since, until = (
        messages.moment_ms(asked[name], now_s) / 1000 if asked[name].strip() else 0.0
        for name in ("since", "until")
    )
    return Narrowed(
        asked["who"], asked["action"], asked["target"], asked["result"], since, until
    )  # fmt: skip


class _Audit:
    def __init__(self, here: Opened, asked: dict[str, str]) -> None:
        self._here = here
        self._asked = asked
        self._before_id = 0  # 0: the newest, which move by themselves

    def draw(self) -> None:
        with layout.heading("Audit log"):
            ui.element("div").classes("grow")
            self._saves = [ui.link("CSV"), ui.link("JSON lines")]
            for link, said in zip(self._saves, ("CSV", "JSON lines"), strict=True):
                layout.named(link, f"Download as {said}")
        with ui.element("div").classes("heading"):
            self._controls()
        self._note = ui.label().classes("soft").props('role="status"')
        empty = "Nothing that fits has been done."
        self._grid = Grid(_ENTRIES, [], "id", empty, "Audit log", "calc(100vh - 260px)")
        with ui.element("div").classes("heading"):
            self._older = ui.button("Older", on_click=self._go_back).props("flat dense")
            self._newest = ui.button("Newest", on_click=lambda: self._go(0)).props("flat dense")
        ui.timer(2.0, lambda: None if self._before_id else self._show())
        self._show()

    def _controls(self) -> None:
        asked = self._asked
        self._fields = {
            "q": ui.input("Search the log", value=asked["q"]),
            "who": ui.input("Who", value=asked["who"]),
            "action": ui.input("Action", value=asked["action"]),
            "target": ui.input("On", value=asked["target"]),
        }
        for field in self._fields.values():
            field.props("dense outlined clearable debounce=300").style("width: 10rem")
        result = asked["result"] if asked["result"] in _RESULTS else ""
        self._result = ui.select(_RESULTS, value=result, label="Result")
        since = {asked["since"]: f"Since {asked['since']}"} | _SPANS
        self._since = ui.select(since, value=asked["since"], label="When")
        for choice in (self._result, self._since):
            choice.props("dense outlined options-dense").style("min-width: 9rem")
        for one in (*self._fields.values(), self._result, self._since):
            one.on_value_change(self._narrow)

    # --- what is shown ---

    def _now_asked(self) -> dict[str, str]:
        found = {name: str(field.value or "").strip() for name, field in self._fields.items()}
        found |= {"result": str(self._result.value), "since": str(self._since.value)}
        return found | {"until": self._asked["until"]}

    def _found(self, before_id: int) -> list[Entry]:
        asked = self._now_asked()
        return self._here.ground.store.audit(asked["q"], before_id, _PAGE, _narrowed(asked))

    def _show(self) -> None:
        try:
            found = self._found(self._before_id)
        except PenstockError as error:
            self._note.set_text(str(error))
            return
        self._grid.show([_entry_row(one) for one in found])
        more = " of the newest" if len(found) == _PAGE else ""
        self._note.set_text(f"{words.count(len(found), 'entry', 'entries')}{more}")
        self._older.set_enabled(len(found) == _PAGE)
        self._newest.set_enabled(self._before_id > 0)
        asked = {name: value for name, value in self._now_asked().items() if value}
        for link, form in zip(self._saves, ("csv", "jsonl"), strict=True):
            query = urlencode(asked | {"form": form})
            target = f"{self._here.link('audit', 'download')}?{query}"
            if link.props.get("href") != target:
                link.props["href"] = target

    def _narrow(self) -> None:
        self._go(0)
        asked = {name: value for name, value in self._now_asked().items() if value}
        query = f"?{urlencode(asked)}" if asked else ""
        ui.navigate.history.replace(f"{self._here.link('audit')}{query}")

    def _go(self, older_than: int) -> None:
        self._before_id = older_than
        self._show()

    def _go_back(self) -> None:
        found = self._found(self._before_id)
        self._go(found[-1].id if found else 0)


def _entry_row(one: Entry) -> Row:
    return {
        "id": one.id,
        "time": words.clock(one.time_s).removesuffix(" UTC"),
        "who": one.who,
        "how": one.how,
        "remote": one.remote,
        "action": one.action,
        "target": one.target,
        "detail": one.detail,
        "result": one.result,
    }
