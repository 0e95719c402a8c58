"""Every client connection: /connections?q=…&kind=…&topic=…&channel=…&node=…

What the page is narrowed to stands in its address, so that it can be sent to a colleague. nsqds are
asked for their connections only while somebody has such a page open.
"""

from collections.abc import Sequence
from operator import itemgetter

from nicegui import ui

from penstock.nsqadmin import words
from penstock.nsqadmin.connections import KINDS, Row
from penstock.nsqadmin.pages import layout, parts, states
from penstock.nsqadmin.pages.grid import Grid, column, row_of, to_node
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.snapshot import TopicState

_HEIGHT = "max(24rem, calc(100vh - 150px))"
_WORDS = {"": "All kinds", "consumer": "Consumers", "producer": "Producers",
          "both": "Both at once", "idle": "Idle"}  # fmt: skip
_NARROWED = ("topic", "channel", "node")


async def draw(view: PageView) -> None:
    connections = view.deps.connections
    layout.listen(connections.listen, lambda rows: None)  # so that nsqds are asked
    await connections.ready()
    layout.listen(connections.listen, _Page(view).show)


class _Page:
    def __init__(self, view: PageView) -> None:
        self._view = view
        chosen = self._chosen = view.asked("q", "kind", *_NARROWED)
        if chosen["kind"] not in KINDS:
            chosen["kind"] = ""
        with parts.heading("Connections"):
            self._count = parts.note()
            parts.grow()
            kind = ui.select(_WORDS, value=chosen["kind"]).props('aria-label="Kind of connection"')
            search = ui.input("Search", value=chosen["q"])
            search.props('clearable debounce=200 aria-label="Search connections"')
        self._narrowed = parts.row()
        self._draw_narrowed()
        self._grid = Grid(_COLUMNS, "key", _EMPTY, "Connections", _HEIGHT, search=search)
        kind.on_value_change(lambda event: self._choose("kind", event.value or ""))
        search.on_value_change(lambda event: self._choose("q", event.value or ""))
        self.show(view.deps.connections.latest)

    def _draw_narrowed(self) -> None:
        self._narrowed.clear()
        with self._narrowed:
            for name in _NARROWED:
                if self._chosen[name]:
                    words_ = f"{name} {self._chosen[name]}"
                    button = ui.button(f"{words_} ✕", on_click=lambda _, at=name: self._widen(at))
                    parts.named(button.props("outline dense no-caps"), f"Not only {words_}")
        self._narrowed.set_visibility(any(self._chosen[name] for name in _NARROWED))

    def _choose(self, name: str, value: str) -> None:
        self._chosen[name] = value
        self._view.show_address("connections", **self._chosen)
        self.show(self._view.deps.connections.latest)

    def _widen(self, name: str) -> None:
        self._choose(name, "")
        self._draw_narrowed()

    def show(self, rows: list[Row]) -> None:
        self._grid.show(self._wanted(rows))
        self._tell(rows)

    def _wanted(self, rows: list[Row]) -> list[Row]:
        given = {name: self._chosen[name] for name in ("kind", *_NARROWED) if self._chosen[name]}
        return [
            _linked(self._view, row) for row in rows
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


def panel(view: PageView, topic: str, channel: str = "") -> None:
    """The consumers, and for a topic its publishers."""
    label = "Clients" if channel else "Consumers and producers"
    with parts.section(label):
        silent = parts.soft()
        empty = "Nobody is known to be connected: its consumers and producers show here."
        if channel:
            empty = "Nobody is known to be connected: start its consumers."
        grid = Grid(_COLUMNS, "key", empty, label, "" if channel else "22rem")

    def show(rows: Sequence[Row]) -> None:
        latest = view.deps.watch.latest
        found = latest.topics.get(topic) or TopicState(topic)
        away = [at for at in (*found.nodes, *found.registered) if not latest.can_ask([at])]
        named = states.listed(away) if away else ""
        silent.set_text(named and f"{named} does not answer: who is there now is not known.")
        wanted = ("reads", f"{topic}/{channel}") if channel else ("topic", topic)
        grid.show([_linked(view, row) for row in rows if _is(row, *wanted)])

    connections = view.deps.connections
    layout.listen(connections.listen, show)
    show(connections.latest)


def _linked(view: PageView, row: Row) -> Row:
    return row | row_of(view.link, _LINKS, row)


_EMPTY = "No client is known to be connected, or none that you look for."


_READS = column("reads", "Reads", "link", itemgetter("reads"),
                to=lambda link, row: link("topics", row["topic"], row["channel"]), minWidth=105,
                flex=2)  # fmt: skip
_NODE = to_node(itemgetter("node"), at=700, minWidth=125, flex=1)
_LINKS = (_READS, _NODE)
_COLUMNS = [
    column("client", "Client", flex=2, minWidth=85),
    column("remote", "Address", at=1000, minWidth=135, flex=1),
    column("agent", "User agent", at=1100, minWidth=110, flex=1),
    _READS,
    column("writes", "Publishes to", minWidth=100, flex=1),
    _NODE,
    column("rate", "Rate", "rate", minWidth=70),
    column("in_flight", "In flight", "count", at=700, minWidth=78),
    column("ready", "RDY", "count", at=1150, minWidth=60),
    column("received", "Received", "count", at=1550, minWidth=90),
    column("finished", "Finished", "count", at=900, minWidth=90),
    column("requeued", "Requeued", "count", at=1400, minWidth=95),
    column("published", "Published", "count", at=900, minWidth=92),
    column("transport", "Transport", at=1500, width=120),
    column("since", "Connected", "ago", at=900, minWidth=105),
]
