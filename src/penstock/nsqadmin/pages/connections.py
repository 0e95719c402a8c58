"""Every client connection: /connections?q=…&kind=…&topic=…&channel=…&node=…&sort=…

What the page is narrowed to, and how it is sorted, stands in its address, so that it can be sent to
a colleague. nsqds are asked for their connections only while somebody has such a page open.
"""

from collections.abc import Sequence
from typing import Any

from nicegui import context, ui

from penstock.nsqadmin import words
from penstock.nsqadmin.connections import KINDS, Row
from penstock.nsqadmin.pages import layout, parts, states
from penstock.nsqadmin.pages.grid import Grid, column, linked, numbers, since, wide
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import TopicState

_HEIGHT = "max(24rem, calc(100vh - 150px))"
_WORDS = {"": "All kinds", "consumer": "Consumers", "producer": "Producers",
          "both": "Both at once", "idle": "Idle"}  # fmt: skip
_NARROWED = ("topic", "channel", "node")


async def draw(
    here: Opened, q: str = "", kind: str = "", topic: str = "", channel: str = "", node: str = "",
    sort: str = "",
) -> None:  # fmt: skip
    chosen = {"q": q, "kind": kind if kind in KINDS else "", "topic": topic,
              "channel": channel, "node": node, "sort": sort}  # fmt: skip
    shown = _Page(here, chosen)
    layout.listen(here.deps.connections.listen, shown.show)
    await here.deps.connections.ready()
    shown.draw()


class _Page:
    def __init__(self, here: Opened, chosen: dict[str, str]) -> None:
        self._here = here
        self._chosen = chosen
        self._client = context.client
        self._grid: Grid | None = None

    def draw(self) -> None:
        chosen = self._chosen
        with parts.heading("Connections"):
            self._count = parts.note()
            parts.grow()
            kind = ui.select(_WORDS, value=chosen["kind"]).props('aria-label="Kind of connection"')
            search = ui.input("Search", value=chosen["q"]).props(
                'clearable debounce=200 aria-label="Search connections"'
            )
        self._narrowed = parts.row()
        self._draw_narrowed()
        rows = self._wanted(self._here.deps.connections.latest)
        self._grid = Grid(_columns(chosen["sort"]), rows, "key", _EMPTY, "Connections", _HEIGHT)
        self._grid.element.options["quickFilterText"] = chosen["q"]
        self._grid.element.on("sortChanged", self._on_sort)
        kind.on_value_change(lambda event: self._choose("kind", event.value or ""))
        search.on_value_change(lambda event: self._search(event.value or ""))
        self._tell(self._here.deps.connections.latest)

    def _draw_narrowed(self) -> None:
        self._narrowed.clear()
        with self._narrowed:
            for name in _NARROWED:
                if self._chosen[name]:
                    words_ = f"{name} {self._chosen[name]}"
                    button = ui.button(f"{words_} ✕", on_click=lambda _, at=name: self._widen(at))
                    parts.named(button.props("outline dense no-caps"), f"Not only {words_}")
        self._narrowed.set_visibility(any(self._chosen[name] for name in _NARROWED))

    # --- what is chosen ---

    def _choose(self, name: str, value: str) -> None:
        self._chosen[name] = value
        self._remember()
        self.show(self._here.deps.connections.latest)

    def _widen(self, name: str) -> None:
        self._choose(name, "")
        self._draw_narrowed()

    def _search(self, text: str) -> None:
        self._chosen["q"] = text
        self._remember()
        if self._grid is not None:
            self._grid.search(text)

    async def _on_sort(self) -> None:
        if self._grid is None:
            return
        states = await self._grid.ask("getColumnState")
        sorted_ = [one for one in states or () if one.get("sort")]
        first = min(sorted_, key=lambda one: one.get("sortIndex") or 0, default=None)
        mark = "-" if first and first["sort"] == "desc" else ""
        self._chosen["sort"] = f"{mark}{first['colId']}" if first else ""
        self._remember()

    def _remember(self) -> None:
        with self._client:
            self._here.show_address("connections", **self._chosen)

    # --- what is shown ---

    def show(self, rows: list[Row]) -> None:
        if self._grid is not None:
            self._grid.show(self._wanted(rows))
            self._tell(rows)

    def _wanted(self, rows: list[Row]) -> list[Row]:
        given = {name: self._chosen[name] for name in ("kind", *_NARROWED) if self._chosen[name]}
        return [
            _linked(self._here, row) for row in rows
            if all(_is(row, name, value) for name, value in given.items())
        ]  # fmt: skip

    def _tell(self, rows: list[Row]) -> None:
        counts = [(_WORDS[kind].lower(), sum(row["kind"] == kind for row in rows))
                  for kind in KINDS]  # fmt: skip
        parts = [f"{number:,} {name}" for name, number in counts if number]
        total = words.count(len(rows), "connection")
        self._count.set_text(f"{total}: {', '.join(parts)}" if parts else total)


def _is(row: Row, name: str, value: str) -> bool:
    if name == "topic":
        return row["topic"] == value or value in row["writes"].split(", ")
    return bool(row[name] == value)


# --- on the page of a topic or channel ---

_CLIENTS = [
    column("client", "Client", flex=2, minWidth=120),
    wide(900, column("remote", "Address", flex=1, minWidth=135)),
    wide(1100, column("agent", "User agent", flex=1, minWidth=110)),
    linked("reads", "Reads", "topic_link", flex=2, minWidth=120),
    wide(600, column("writes", "Publishes to", flex=1, minWidth=120)),
    wide(500, linked("node", "Node", "node_link", flex=1, minWidth=125)),
    numbers("rate", "Rate", "rate"),
    wide(500, numbers("in_flight", "In flight")),
    wide(800, numbers("ready", "Ready")),
    wide(700, numbers("finished", "Finished")),
    wide(900, numbers("requeued", "Requeued")),
    wide(1200, column("transport", "Transport", width=120)),
    wide(800, since("since", "Connected", minWidth=110)),
]


def panel(here: Opened, topic: str, channel: str = "") -> None:
    """Who reads it, and of a topic who has published to it."""
    label = "Clients" if channel else "Consumers and producers"
    with parts.section(label):
        silent = parts.soft()
        empty = "Nobody is known to be connected: its consumers and producers show here."
        if channel:
            empty = "Nobody is known to be connected: start its consumers."
        grid = Grid(_CLIENTS, [], "key", empty, label, "" if channel else "22rem")

    def show(rows: Sequence[Row]) -> None:
        latest = here.deps.watch.latest
        found = latest.topics.get(topic) or TopicState(topic)
        away = [at for at in (*found.nodes, *found.registered) if not latest.can_ask([at])]
        named = states.listed(away) if away else ""
        silent.set_text(named and f"{named} does not answer: who is there now is not known.")
        wanted = ("reads", f"{topic}/{channel}") if channel else ("topic", topic)
        grid.show([_linked(here, row) for row in rows if _is(row, *wanted)])

    connections = here.deps.connections
    layout.listen(connections.listen, show)
    show(connections.latest)


def _linked(here: Opened, row: Row) -> Row:
    topic_link = here.link("topics", row["topic"], row["channel"])
    return row | {"topic_link": topic_link, "node_link": here.link("nodes", row["node"])}


_EMPTY = "No client is known to be connected, or none that you look for."


def _columns(sort: str) -> list[dict[str, Any]]:
    columns = [
        column("client", "Client", flex=2, minWidth=85),
        wide(1000, column("remote", "Address", minWidth=135, flex=1)),
        wide(1250, column("agent", "User agent", minWidth=110, flex=1)),
        linked("reads", "Reads", "topic_link", minWidth=105, flex=2),
        column("writes", "Publishes to", minWidth=100, flex=1),
        wide(700, linked("node", "Node", "node_link", minWidth=125, flex=1)),
        numbers("rate", "Rate", "rate", minWidth=70),
        wide(700, numbers("in_flight", "In flight", minWidth=78)),
        wide(1150, numbers("ready", "RDY", minWidth=60)),
        wide(1550, numbers("received", "Received", minWidth=90)),
        wide(900, numbers("finished", "Finished", minWidth=90)),
        wide(1400, numbers("requeued", "Requeued", minWidth=95)),
        wide(900, numbers("published", "Published", minWidth=92)),
        wide(1500, column("transport", "Transport", width=120)),
        wide(900, since("since", "Connected", minWidth=105)),
    ]
    field = sort.removeprefix("-")
    for one in columns:
        if one["field"] == field:
            one["sort"] = "desc" if sort.startswith("-") else "asc"
    return columns
