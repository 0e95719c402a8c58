"""Tables that stay quick with thousands of rows, and move without reloading.

A column says both how it is shown, by a kind that `static/grid.js` knows, and what of a thing its
rows hold: `row_of` makes a row by the columns. AG Grid keeps the rows in the browser: it sorts,
filters and draws only what is seen. After the first time only rows that have changed are sent.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakMethod

import msgspec
from nicegui import ui

from penstock.nsqadmin.pages import parts

Row = dict[str, Any]
Link = Callable[..., str]  # the address of a page, by the parts of its path

_TEXT = {"filter": "agTextColumnFilter"}
_NUMBER = {"type": "rightAligned", "filter": "agNumberColumnFilter", "flex": 1, "minWidth": 82,
           "maxWidth": 150, "cellClassRules": {"zero": "!x"}}  # fmt: skip
_JS = "penstockGrid"
_NUMBERS = ("count", "value", "rate", "bytes", "percent", "span", "past", "age", "ago")
KINDS: dict[str, dict[str, Any]] = {
    "text": _TEXT,
    **{kind: _NUMBER | {":valueFormatter": f"{_JS}.{kind}"} for kind in _NUMBERS},
    **{kind: _TEXT | {":cellRenderer": f"{_JS}.{kind}"} for kind in ("link", "state")},
    "share": {":cellRenderer": f"{_JS}.share"},
    # Their numbers have to be in other columns, too.
    "curve": {":cellRenderer": f"{_JS}.curve", "sortable": False,
              ":getQuickFilterText": "() => ''"},
}  # fmt: skip
# A moment, in seconds since 1970: how long ago, and exactly when one points at it.
KINDS["ago"] |= {"context": {"ticks": True}, ":tooltipValueGetter": f"{_JS}.moment"}
# So finely they are sent: a row that looks the same is not sent again.
_DIGITS = {"rate": 1, "share": 1, "span": None, "age": None, "percent": None}
FLASH: dict[str, Any] = {"enableCellChangeFlash": True}  # of a column whose changes are worth it
ROW_PX, HEADER_PX = 37, 40
_ANSWER_S = 15.0  # for a busy browser
_FRAME_PX = 18  # its borders, and room for a bar to scroll sideways
_ROWS_MEASURED = 100  # more fill every screen


class Column(NamedTuple):
    field: str
    kind: str
    of: Callable[[Any], Any]
    to: Callable[[Link, Any], str]
    shown: dict[str, Any]  # AG Grid's definition

    def read(self, link: Link, one: Any) -> Row:
        """The fields of a row that belong to this column."""
        name, value = self.field, self.of(one)
        if self.kind == "link":
            return {name: value, f"{name}_link": self.to(link, one)}
        if self.kind == "state":
            return {name: value[0], f"{name}_level": value[1]}
        if value is not None and self.kind in _DIGITS:
            value = round(value, _DIGITS[self.kind])
        return {name: value}


def column(
    field: str, words: str, kind: str = "text", of: Callable[[Any], Any] | None = None,
    to: Callable[[Link, Any], str] = lambda link, one: "", at: int = 0, **more: Any,
) -> Column:  # fmt: skip
    """`of` a thing, by default the attribute of this name; a state has a word and its colour: good,
    warn, bad, soft, or plain. `to` is the target of a link. `at`: it is shown only where the table
    is at least this wide in pixels, not on a phone."""
    shown = {"field": field, "headerName": words} | KINDS[kind] | more
    if at:
        shown["context"] = shown.get("context", {}) | {"from": at}
    return Column(field, kind, of or attrgetter(field), to, shown)


def to_node(of: Callable[[Any], str] = attrgetter("node"), **more: Any) -> Column:
    return column("node", "Node", "link", of, lambda link, one: link("nodes", of(one)),
                  **{"flex": 2, "minWidth": 130} | more)  # fmt: skip


def to_topic(**more: Any) -> Column:
    return column("topic", "Topic", "link", None, lambda link, one: link("topics", one.topic),
                  **{"flex": 2, "minWidth": 130} | more)  # fmt: skip


def row_of(link: Link, columns: Iterable[Column], one: Any, **own: Any) -> Row:
    """`own`: values beside those of the thing."""
    row = dict(own)
    for each in columns:
        if each.field not in own:
            row |= each.read(link, one)
    return row


class _Table(ui.aggrid):
    """Rows become a text when the table is sent to its browser, which reads it: NiceGUI would watch
    each value of a list, and of thousands of rows each page would keep a megabyte."""

    def __init__(self, options: dict[str, Any], rows: Callable[[], Iterable[Row]]) -> None:
        super().__init__(options, auto_size_columns=False)
        self._rows = rows
        self.is_sent = False

    def _to_dict(self) -> dict[str, Any]:
        self.is_sent = True
        document = super()._to_dict()
        text = msgspec.json.encode(list(self._rows())).decode()
        return {
            **document,
            "props": {**document["props"], "options": {**self.options, ":rowData": text}},
        }


class Grid:
    """`key` names the field that identifies rows."""

    def __init__(
        self, columns: Sequence[Column], key: str, empty: str, label: str, height: str = "",
        chosen: bool = False, search: ui.input | None = None,
    ) -> None:  # fmt: skip
        """`chosen`: rows have a box to tick. `height`: the greatest, when there may be many rows;
        with few it is as high as they are. `search`: the field of what is sought in them."""
        self._key = key
        self._height = height
        self._shown: dict[Any, Row] = {}
        options = {
            "columnDefs": [one.shown for one in columns],
            ":getRowId": f"(p) => String(p.data.{key})",
            ":onCellKeyDown": f"{_JS}.follow",
            ":onGridSizeChanged": f"{_JS}.fit",
            ":onGridReady": f"{_JS}.tick",
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
        if search is not None:
            options["quickFilterText"] = search.value
            search.on_value_change(lambda event: self._seek(str(event.value or "")))
        if chosen:
            options["rowSelection"] = {"mode": "multiRow", "enableClickSelection": False}
        self._box = ui.element("div")
        with self._box:
            self.element = _Table(options, lambda: self._shown.values()).classes("grid")
        parts.named(self.element, label)
        self._rows_drawn = -1
        self._fit(0)
        self._waiting: Sequence[Row] | None = None
        connected = WeakMethod(self._on_connect)  # a page keeps its handlers: not with a table
        self.element.client.on_connect(lambda: (shown := connected()) and shown())

    def _fit(self, count: int) -> None:
        """As high as its rows, up to a maximum: the box around it, since a changed style of the
        table itself would redraw it."""
        rows = min(max(count, 2), _ROWS_MEASURED)
        if self._height and rows != self._rows_drawn:
            self._rows_drawn = rows
            height_px = HEADER_PX + rows * ROW_PX + _FRAME_PX
            self._box.style(f"height: min({self._height}, {height_px}px)")

    def show(self, rows: Sequence[Row]) -> None:
        if self.element.is_sent and not self.element.client.has_socket_connection:
            self._waiting = rows  # the browser still draws what the page came with
            return
        shown, self._shown = self._shown, {row[self._key]: row for row in rows}
        self._fit(len(rows))
        if self.element.is_sent:
            self._send(shown, self._shown)

    def _send(self, before: dict[Any, Row], now: dict[Any, Row]) -> None:
        """Send the changed rows; the first rows come with the table itself."""
        transaction = {
            "add": [row for key, row in now.items() if key not in before],
            "update": [
                row for key, row in now.items()
                if (shown := before.get(key, row)) is not row and shown != row
            ],
            "remove": [row for key, row in before.items() if key not in now],
        }  # fmt: skip
        if any(transaction.values()):
            self.element.run_grid_method("applyTransaction", transaction)

    def _on_connect(self) -> None:
        if self._waiting is not None:
            rows, self._waiting = self._waiting, None
            self.show(rows)

    async def chosen(self) -> list[Row]:
        """The ticked rows: ours, whatever the browser says about their contents."""
        rows = await self.element.run_grid_method("getSelectedRows", timeout=_ANSWER_S) or []
        keys = [row.get(self._key) for row in rows]
        return [self._shown[key] for key in keys if key in self._shown]

    def _seek(self, text: str) -> None:
        self.element.run_grid_method("setGridOption", "quickFilterText", text)
