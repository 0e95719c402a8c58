"""The audit log: who has done what, narrowed by any of it, with the filter in the address, and as a
file.

Deep link: /audit?q=TEXT&who=NAME&action=ACTION&target=NAME&result=failed&since=-1h&until=TIME.
"""

import csv
import io
import json
import time
from collections.abc import Iterator

from fastapi import FastAPI, Request
from fastapi.responses import Response
from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import messages, words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import ApiError, saved, viewed
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.pages import parts
from penstock.nsqadmin.pages.grid import Grid, column
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.store import Entry, Narrowed

_PAGE = 200  # entries of the log at once
_RESULTS = {"": "Any result", "ok": "Done", "failed": "Failed", "warning": "With a warning"}
_SPANS = {"": "Any time", "-1h": "The last hour", "-1d": "The last day", "-7d": "The last week",
          "-30d": "The last month"}  # fmt: skip
_FORMS = {"csv": ("CSV", "text/csv"), "jsonl": ("JSON lines", "application/x-ndjson")}
_ENTRIES = [
    column("time", "Time (UTC)", width=160),
    column("who", "Who", width=120),
    column("how", "How", at=1200, width=110),
    column("remote", "From", at=1000, width=140),
    column("action", "Action", flex=1, minWidth=110),
    column("target", "On", at=560, flex=1, minWidth=140),
    column("detail", "Detail", at=800, flex=1, minWidth=120, tooltipField="detail"),
    column("result", "Result", at=560, flex=1, minWidth=120, tooltipField="result"),
]


def draw(
    here: Opened, q: str = "", who: str = "", action: str = "", target: str = "",
    result: str = "", since: str = "", until: str = "",
) -> None:  # fmt: skip
    _Audit(here, {"q": q, "who": who, "action": action, "target": target, "result": result,
                  "since": since, "until": until})  # fmt: skip


def add(app: FastAPI, deps: Deps) -> None:
    @app.get(f"{deps.base}/audit/download", include_in_schema=False)
    async def download(
        request: Request, form: str = "csv", q: str = "", who: str = "",
        action: str = "", target: str = "", result: str = "", since: str = "", until: str = "",
    ) -> Response:  # fmt: skip
        """What the page shows, in full."""
        viewed(deps, request, Role.OPERATE)
        if form not in _FORMS:
            raise ApiError(400, "INVALID_ARG_FORM")
        try:
            narrowed = _narrowed(who, action, target, result, since, until)
        except PenstockError as error:
            raise ApiError(400, "INVALID_ARG_TIME") from error
        found = deps.store.audit(q, 0, limits.ADMIN_AUDIT_SAVED, narrowed)
        text = "".join(_written(found, form))
        return Response(text, headers=saved(f"audit.{form}"), media_type=_FORMS[form][1])


def _narrowed(
    who: str, action: str, target: str, result: str, since: str, until: str
) -> Narrowed:  # fmt: skip
    """Raises PlaceInvalid."""
    now_s = time.time()
    since_s, until_s = (
        messages.moment_ms(text, now_s) / 1000 if text.strip() else 0.0 for text in (since, until)
    )
    return Narrowed(who, action, target, result, since_s, until_s)


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


class _Audit:
    def __init__(self, here: Opened, asked: dict[str, str]) -> None:
        self._here = here
        self._asked = asked
        self._before_id = 0  # 0: the newest, which move by themselves
        with parts.heading("Audit log"):
            parts.grow()
            self._saves = {form: ui.link(said) for form, (said, _) in _FORMS.items()}
            for form, link in self._saves.items():
                parts.named(link, f"Download as {_FORMS[form][0]}")
        with parts.row():
            self._controls()
        self._note = parts.note()
        empty = "Nothing that fits has been done."
        self._grid = Grid(_ENTRIES, "id", empty, "Audit log", "calc(100vh - 260px)")
        with parts.row():
            self._older = ui.button("Older", on_click=self._go_back).props("flat dense")
            self._newest = ui.button("Newest", on_click=lambda: self._go(0)).props("flat dense")
        ui.timer(2.0, lambda: None if self._before_id else self._show())
        self._show()

    def _controls(self) -> None:
        asked = self._asked
        self._fields: dict[str, ui.input | ui.select] = {}
        labels = {"q": "Search the log", "who": "Who", "action": "Action", "target": "On"}
        for name, label in labels.items():
            field = self._fields[name] = ui.input(label, value=asked[name])
            field.props("clearable debounce=300").style("width: 10rem")
        result = asked["result"] if asked["result"] in _RESULTS else ""
        spans = {asked["since"]: f"Since {asked['since']}"} | _SPANS
        self._fields["result"] = ui.select(_RESULTS, value=result, label="Result")
        self._fields["since"] = ui.select(spans, value=asked["since"], label="When")
        for name in ("result", "since"):
            choice = self._fields[name].props("options-dense")
            choice.style("min-width: 9rem")
        for one in self._fields.values():
            one.on_value_change(self._narrow)

    # --- what is shown ---

    def _now_asked(self) -> dict[str, str]:
        found = {name: str(field.value or "").strip() for name, field in self._fields.items()}
        return found | {"until": self._asked["until"]}

    def _found(self, before_id: int) -> list[Entry]:
        asked = self._now_asked()
        sought = asked.pop("q")
        return self._here.deps.store.audit(sought, before_id, _PAGE, _narrowed(**asked))

    def _show(self) -> None:
        try:
            found = self._found(self._before_id)
        except PenstockError as error:
            self._note.set_text(str(error))
            return
        times = [words.clock(one.time_s).removesuffix(" UTC") for one in found]
        rows = zip(found, times, strict=True)
        self._grid.show([one._asdict() | {"time": time} for one, time in rows])
        more = " of the newest" if len(found) == _PAGE else ""
        self._note.set_text(f"{words.count(len(found), 'entry', 'entries')}{more}")
        self._older.set_enabled(len(found) == _PAGE)
        self._newest.set_enabled(self._before_id > 0)
        for form, link in self._saves.items():
            way = self._here.link("audit", "download", **self._now_asked(), form=form)
            if link.props.get("href") != way:
                link.props["href"] = way

    def _narrow(self) -> None:
        self._go(0)
        self._here.show_address("audit", **self._now_asked())

    def _go(self, older_than: int) -> None:
        self._before_id = older_than
        self._show()

    def _go_back(self) -> None:
        found = self._found(self._before_id)
        self._go(found[-1].id if found else 0)
