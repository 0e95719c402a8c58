"""The audit log: actions and their users, filtered by any field, with the filter in the address,
and as a file.

Deep link: /audit?q=TEXT&who=NAME&action=ACTION&target=NAME&result=failed&since=-1h&until=TIME.
"""

import json
from collections.abc import Mapping

from fastapi.responses import Response
from nicegui import ui

from penstock import limits
from penstock.errors import PenstockError
from penstock.nsqadmin import words
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import ApiError, saved
from penstock.nsqadmin.deps import Deps
from penstock.nsqadmin.messages import InputInvalid, typed_time_ns
from penstock.nsqadmin.pages import parts
from penstock.nsqadmin.pages.grid import Grid, column
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.routes import Call, file_route
from penstock.nsqadmin.store import Entry

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


_FILTERS = ("q", "who", "action", "target", "result", "since", "until")


async def download(call: Call, form: str = "csv") -> Response:
    """The shown entries, in full."""
    if form not in _FORMS:
        raise ApiError(400, "INVALID_ARG_FORM")
    query = call.request.query_params
    asked = {name: query.get(name, "") for name in _FILTERS}
    try:
        found = _found(call.deps, asked, 0, limits.ADMIN_AUDIT_SAVED)
    except InputInvalid as error:
        raise ApiError(400, "INVALID_ARG_TIME") from error
    kind = _FORMS[form][1]
    return Response(_written(found, form), headers=saved(f"audit.{form}"), media_type=kind)


FILES = (file_route("/audit/download", download, Role.OPERATE),)


def _found(deps: Deps, asked: Mapping[str, str], before_id: int, count: int) -> list[Entry]:
    """By the values of _FILTERS. Raises InputInvalid."""
    search, who, action, target, result, *span = asked.values()
    since_s, until_s = (typed_time_ns(one) / 1e9 if one.strip() else 0.0 for one in span)
    return deps.store.audit(search, who, action, target, result, since_s, until_s, before_id, count)


def _written(found: list[Entry], form: str) -> str:
    """The newest first, as the page."""
    if form == "jsonl":
        rows = (json.dumps(one._asdict(), ensure_ascii=False) for one in found)
        return "".join(f"{row}\n" for row in rows)
    rows_of = ((words.clock(one.time_s), *one) for one in found)
    return parts.as_csv(("time", *Entry._fields), rows_of)


class AuditLog:
    def __init__(self, view: PageView) -> None:
        self._view = view
        self._asked = view.asked(*_FILTERS)
        self._before_id = 0  # 0: the newest, which move by themselves
        self._last_id = 0  # of those shown
        with parts.heading("Audit log"):
            parts.grow()
            self._saves = {form: ui.link(label) for form, (label, _) in _FORMS.items()}
            for form, link in self._saves.items():
                parts.named(link, f"Download as {_FORMS[form][0]}")
        with parts.row():
            self._controls()
        self._note = parts.note()
        empty = "Nothing that fits has been done."
        self._grid = Grid(_ENTRIES, "id", empty, "Audit log", "calc(100vh - 260px)")
        with parts.row():
            self._older = parts.small_button("Older", lambda: self._go(self._last_id))
            self._older.set_enabled(False)
            self._newest = parts.small_button("Newest", lambda: self._go(0))
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

    def _now_asked(self) -> dict[str, str]:
        found = {name: str(field.value or "").strip() for name, field in self._fields.items()}
        return self._asked | found

    def _show(self) -> None:
        try:
            found = _found(self._view.deps, self._now_asked(), self._before_id, _PAGE)
        except PenstockError as error:
            self._note.set_text(str(error))
            return
        times = [words.clock(one.time_s).removesuffix(" UTC") for one in found]
        rows = zip(found, times, strict=True)
        self._grid.show([one._asdict() | {"time": time} for one, time in rows])
        more = " of the newest" if len(found) == _PAGE else ""
        self._note.set_text(f"{words.count(len(found), 'entry', 'entries')}{more}")
        self._last_id = found[-1].id if found else 0
        self._older.set_enabled(len(found) == _PAGE)
        self._newest.set_enabled(self._before_id > 0)
        for form, link in self._saves.items():
            way = self._view.link("audit", "download", **self._now_asked(), form=form)
            if link.props.get("href") != way:
                link.props["href"] = way

    def _narrow(self) -> None:
        self._go(0)
        self._view.show_address("audit", **self._now_asked())

    def _go(self, older_than: int) -> None:
        self._before_id = older_than
        self._show()
