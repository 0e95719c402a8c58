"""Tables that stay quick with thousands of rows, and move without reloading.

AG Grid keeps the rows in the browser: it sorts, filters and draws only what is seen. After the
first time only rows that have changed are sent.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from nicegui import ui

from penstock.nsqadmin.pages import parts, static

Row = dict[str, Any]

NUMBER = {"type": "rightAligned", "filter": "agNumberColumnFilter", "flex": 1, "minWidth": 82,
          "maxWidth": 150, "cellClassRules": {"zero": "!x"}}  # fmt: skip
TEXT = {"filter": "agTextColumnFilter"}
ROW_PX, HEADER_PX = 37, 40
_ANSWER_S = 15.0
_FRAME_PX = 18  # its borders, and room for a bar to scroll sideways
_ROWS_MEASURED = 100  # more fill every screen


def column(field: str, words: str, **more: Any) -> dict[str, Any]:
    return {"field": field, "headerName": words, **TEXT, **more}


# How numbers are shown: JavaScript expressions of `value`.
SPAN = (
    "value < 60 ? value + ' s'"
    " : value < 3600 ? Math.floor(value / 60) + ' min ' + value % 60 + ' s'"
    " : Math.floor(value / 3600) + ' h ' + Math.floor(value % 3600 / 60) + ' min'"
)
_FORMS = {
    "count": "Math.round(value).toLocaleString('en')",
    "rate": "(value >= 10 || value == 0 ? Math.round(value).toLocaleString('en')"
    " : value.toFixed(1)) + '/s'",
    "span": SPAN,
    # In its largest unit, for a column that has little room.
    "age": "value < 1 ? '' : value < 60 ? value + ' s' : value < 3600 ? Math.floor(value / 60)"
    " + ' min' : value < 172800 ? (value / 3600).toFixed(1) + ' h'"
    " : (value / 86400).toFixed(1) + ' d'",
    "percent": "value ? value + ' %' : ''",
    "bytes": "value < 1000 ? value + ' B' : value < 1e6 ? (value / 1e3).toFixed(1) + ' KB'"
    " : value < 1e9 ? (value / 1e6).toFixed(1) + ' MB' : (value / 1e9).toFixed(2) + ' GB'",
}


def numbers(field: str, words: str, form: str = "count", **more: Any) -> dict[str, Any]:
    """A column of numbers; `form` is one of those above, or a JavaScript expression."""
    shown = _FORMS.get(form, form)
    return {
        "field": field,
        "headerName": words,
        **NUMBER,
        ":valueFormatter": (
            f"(p) => {{ const value = p.value; return value == null ? '' : {shown}; }}"
        ),
        **more,
    }


# Of a column whose changes are worth a look.
FLASH: dict[str, Any] = {"enableCellChangeFlash": True}


def wide(width_px: int, column: dict[str, Any]) -> dict[str, Any]:
    """A column that is there only where the table has so much room: not on a phone."""
    return column | {"context": {"from": width_px}}


def since(field: str, words: str, **more: Any) -> dict[str, Any]:
    """A column of moments, in seconds since 1970: how long ago, and exactly when one points at
    it."""
    return {
        "field": field,
        "headerName": words,
        **NUMBER,
        "context": {"ticks": True},
        ":valueFormatter": f"(p) => {{ const at = p.value; if (!at) return ''; {_AGO} }}",
        ":tooltipValueGetter": (
            "(p) => p.value ? new Date(p.value * 1000).toISOString().slice(0, 19)"
            ".replace('T', ' ') + ' UTC' : ''"
        ),
        **more,
    }


_AGO = static.text("grid_ago.js")


def linked(field: str, words: str, href: str, **more: Any) -> dict[str, Any]:
    """A column of links; `href` names the field with the address, which the server has quoted."""
    draw = ("(p) => { if (!p.value) return ''; const a = document.createElement('a');"
            f" a.href = p.data.{href}; a.textContent = p.value; return a; }}")  # fmt: skip
    return {"field": field, "headerName": words, **TEXT, ":cellRenderer": draw, **more}


# A curve from hexadecimal digits, one for each point.
_CURVE = static.text("grid_curve.js")


def curves(field: str, words: str, **more: Any) -> dict[str, Any]:
    """A column of small curves. Their numbers have to be in other columns, too."""
    return {"field": field, "headerName": words, "sortable": False,
            ":getQuickFilterText": "() => ''", ":cellRenderer": _CURVE, **more}  # fmt: skip


# A word with its colour, which the row has as its level: good, warn, bad, soft, or plain.
_STATED = static.text("grid_stated.js")


def stated(field: str, words: str, level: str = "level", **more: Any) -> dict[str, Any]:
    """A column of states; `level` names the field with the colour."""
    draw = _STATED.replace("LEVEL", level)
    return {"field": field, "headerName": words, **TEXT, ":cellRenderer": draw, **more}


# The keyboard's focus is on a cell, and Enter there means its link.
_FOLLOW = "(p) => { if (p.event.key === 'Enter') p.event.target.querySelector('a')?.click(); }"


# Columns that have no room go; those that stay share what there is.
_FIT = static.text("grid_fit.js")
# What says how long ago something was has to be drawn again and again.
_TICK = static.text("grid_tick.js")


def row_of(columns: Iterable[dict[str, Any]], one: object, **own: Any) -> Row:
    """`own`, and under the other fields of the columns what `one` has by that name."""
    fields = (each["field"] for each in columns if each["field"] not in own)
    return {name: getattr(one, name) for name in fields} | own


class _Table(ui.aggrid):
    """Rows become a text when the table is sent to its browser, which reads it: NiceGUI would watch
    each value of a list, and of thousands of rows each page would keep a megabyte."""

    def __init__(self, options: dict[str, Any], rows: Callable[[], Iterable[Row]]) -> None:
        super().__init__(options, auto_size_columns=False)
        self._rows = rows

    def _to_dict(self) -> dict[str, Any]:
        told = super()._to_dict()
        text = msgspec.json.encode(list(self._rows())).decode()
        return {**told, "props": {**told["props"], "options": {**self.options, ":rowData": text}}}


class Grid:
    """`key` names the field that tells rows apart."""

    def __init__(
        self, columns: Sequence[dict[str, Any]], rows: Sequence[Row], key: str, empty: str,
        label: str, height: str = "", chosen: bool = False,
    ) -> None:  # fmt: skip
        """`chosen`: rows have a box to tick. `height`: the greatest, when there may be many rows;
        with few it is as high as they are."""
        self._key = key
        self._height = height
        self._shown = {row[key]: row for row in rows}
        options = {
            "columnDefs": list(columns),
            ":getRowId": f"(p) => String(p.data.{key})",
            ":onCellKeyDown": _FOLLOW,
            ":onGridSizeChanged": _FIT,
            ":onGridReady": _TICK,
            "rowHeight": ROW_PX,
            "headerHeight": HEADER_PX,
            "tooltipShowDelay": 300,
            "defaultColDef": {
                "sortable": True,
                "resizable": True,
                "minWidth": 60,
                "suppressHeaderFilterButton": True,
            },
            "overlayNoRowsTemplate": f'<span class="empty">{empty}</span>',
            "animateRows": False,
            "rowClassRules": {"stale": "data.stale"},
            "suppressCellFocus": False,
            "ensureDomOrder": True,
            "enableCellTextSelection": True,
            "domLayout": "normal" if height else "autoHeight",
        }
        if chosen:
            options["rowSelection"] = {"mode": "multiRow", "enableClickSelection": False}
        self._box = ui.element("div")
        with self._box:
            self.element = _Table(options, lambda: self._shown.values()).classes("grid")
        parts.named(self.element, label)
        self._rows_drawn = -1
        self._fit(len(rows))
        self._waiting: Sequence[Row] | None = None
        self.element.client.on_connect(self._on_connect)

    def _fit(self, count: int) -> None:
        """As high as its rows, up to a maximum: the box around it, for a changed style of the table
        itself would draw it anew."""
        rows = min(max(count, 2), _ROWS_MEASURED)
        if self._height and rows != self._rows_drawn:
            self._rows_drawn = rows
            height_px = HEADER_PX + rows * ROW_PX + _FRAME_PX
            self._box.style(f"height: min({self._height}, {height_px}px)")

    def show(self, rows: Sequence[Row]) -> None:
        if not self.element.client.has_socket_connection:
            self._waiting = rows  # the browser still draws what the page came with
            return
        now = {row[self._key]: row for row in rows}
        added = [row for key, row in now.items() if key not in self._shown]
        changed = [
            row for key, row in now.items()
            if (shown := self._shown.get(key, row)) is not row and shown != row
        ]  # fmt: skip
        removed = [row for key, row in self._shown.items() if key not in now]
        self._shown = now
        self._fit(len(now))
        if added or changed or removed:
            transaction = {"add": added, "update": changed, "remove": removed}
            self.element.run_grid_method("applyTransaction", transaction)

    def _on_connect(self) -> None:
        if self._waiting is not None:
            rows, self._waiting = self._waiting, None
            self.show(rows)

    async def chosen(self) -> list[Row]:
        """The rows that are ticked: ours, whatever the browser says that is in them."""
        told = await self.ask("getSelectedRows") or []
        keys = [row.get(self._key) for row in told]
        return [self._shown[key] for key in keys if key in self._shown]

    async def ask(self, method: str) -> Any:
        """What the table in the browser says; a browser that is busy has time to."""
        return await self.element.run_grid_method(method, timeout=_ANSWER_S)

    def search(self, text: str) -> None:
        self.element.run_grid_method("setGridOption", "quickFilterText", text)
