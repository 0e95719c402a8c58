"""One topic: how it does, its channels, who reads and writes, its nodes, its history, and what can
be done to it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from fastapi import Request
from nicegui import context, ui

from penstock import limits
from penstock.nsqadmin import lag, remembered
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.ground import Ground
from penstock.nsqadmin.pages import (
    chart,
    copies,
    existing,
    layout,
    settings,
    states,
    telling,
    words,
)
from penstock.nsqadmin.pages import partitions as split
from penstock.nsqadmin.pages.grid import (
    BYTES,
    FLASH,
    PERCENT,
    RATE,
    SPAN_OR_NONE,
    Grid,
    Row,
    column,
    linked,
    numbers,
    since,
    stated,
    wide,
)  # fmt: skip
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import ChannelState, Snapshot, TopicState


def add(ground: Ground) -> None:
    @ui.page("/topics/{name}")
    async def topic(request: Request, name: str) -> None:
        here = layout.opened(ground, request)
        await existing.check(here, name)
        with layout.page(here, name):
            draw(here, name)


def draw(here: Opened, name: str) -> None:
    latest = here.ground.watch.latest
    with layout.heading(name, ("Topics", here.link("topics"))):
        paused, state = layout.Badge(states.PAUSED, "warn"), layout.Badge()
        ui.element("div").classes("grow")
        turn = _buttons(here, name, latest)
    layout.tabs("This topic", tabs_of(here, name), "Topic")
    gone = _gone(here)
    with ui.element("div").classes("below") as below:
        saying = ui.label().classes("saying")
        with ui.element("div").classes("tiles row"):
            tiles = {label: layout.Tile(label) for label in tiles_of(TopicState(name))}
        with layout.section("Channels"):
            empty = "No channel: what is published waits for the first one."
            rows = channel_rows(here, name, latest)
            channels = Grid(_CHANNELS, rows, "name", empty, "Channels")
        partitions = split.of_topic(here, name)
        replicas = copies.of_topic(here, name)
        clients = _Clients(here, name)
        with layout.section("Nodes"):
            nodes = Grid(
                _NODES, node_rows(here, name, latest), "node", "On no node that is known.", "Nodes"
            )
        chart.pair(here, name)
        settings.panel(here, name)

    def show(snapshot: Snapshot) -> None:
        topic = snapshot.topics.get(name)
        gone.set_visibility(topic is None)
        below.set_visibility(topic is not None)
        layout.show_age(below, topic.stale_s if topic else 0)
        found = states.by_topic(states.found(here, snapshot))
        word, level = states.of_topic(topic, found) if topic else ("", "")
        state.show("" if word == states.paused(topic) else word, level)
        turn(snapshot)
        paused.show(states.paused(topic), "warn")
        saying.set_text(telling.of_topic(topic, telling.lags(here, topic)) if topic else "")
        for label, shown in tiles_of(topic or TopicState(name)).items():
            tiles[label].show(*shown)
        channels.show(channel_rows(here, name, snapshot))
        partitions(snapshot)
        replicas(snapshot)
        nodes.show(node_rows(here, name, snapshot))

    layout.follow(here, show)
    clients.follow()


def _gone(here: Opened) -> ui.element:
    with ui.element("div").classes("panel empty") as gone:
        ui.label("No nsqd and no nsqlookupd that answers knows this topic.")
        with ui.element("div"):
            layout.written("span", "It is made by the first message that is published to it, or ")
            ui.link("under Lookup", here.link("lookup"))
            layout.written("span", ".")
    return gone


def tabs_of(here: Opened, name: str) -> list[tuple[str, str]]:
    """The pages about a topic."""
    return [
        ("Topic", here.link("topics", name)),
        ("Messages", here.link("messages", name)),
        ("Connections", here.connections(topic=name)),
    ]


def _buttons(here: Opened, name: str, latest: Snapshot) -> Callable[[Snapshot], None]:
    """Returns what shows the buttons that apply. None does while no node of it answers."""
    actions = here.ground.actions
    about = {"topic": name}

    async def turn(pause: bool) -> None:
        verb = "pause" if pause else "unpause"
        await layout.change(here, Role.OPERATE, f"{verb}_topic", about,
                            partial(actions.act, verb, name))  # fmt: skip

    async def empty() -> None:
        if await layout.confirm("Throw away all messages that wait in this topic?", name):
            await layout.change(here, Role.DESTROY, "empty_topic", about,
                                partial(actions.act, "empty", name))  # fmt: skip

    async def delete() -> None:
        if await layout.confirm(lost_with(here.ground.watch.latest, name), name):
            done = await layout.change(here, Role.DESTROY, "delete_topic", about,
                                       partial(here.ground.delete, name))  # fmt: skip
            if done:
                layout.go(here.link("topics"))

    known = latest.topics.get(name)
    buttons = layout.StateButtons(here, turn, empty, delete, bool(known and known.paused))

    def show(snapshot: Snapshot) -> None:
        topic = snapshot.topics.get(name) or TopicState(name)
        nodes = [*topic.nodes, *topic.registered]
        is_forgotten = not any(snapshot.nodes[at].is_listed for at in nodes)
        buttons.show(snapshot, topic, nodes, bool(here.ground.upstream.lookupds) and is_forgotten)

    return show


def lost_with(snapshot: Snapshot, name: str) -> str:
    """What a deletion of the topic loses, and what it does not reach."""
    topic = snapshot.topics.get(name) or TopicState(name)
    left = remembered.words_about(snapshot, name)
    if left and not snapshot.can_ask(topic.nodes):
        return f"Delete the name {name} at every nsqlookupd? Nothing else is lost: {left}."
    waits = topic.backlog + topic.in_flight + topic.deferred - sum(
        one.messages for one in remembered.left_on(snapshot, name)
    )  # fmt: skip
    said = (
        f"Delete {name}? {words.count(waits, 'message')} in"
        f" {words.count(len(topic.channels), 'channel')} are lost,"
        f" and {words.count(topic.clients, 'consumer')} cut off."
    )
    return f"{said} Not on {left}." if left else said


def tiles_of(topic: TopicState) -> dict[str, tuple[str, str, str]]:
    oldest = max(
        topic.channels.values(), key=lambda one: (one.oldest_s, one.tells_age), default=None
    )
    finished = sum(one.finish_rate for one in topic.channels.values())
    plain = {
        "In": (words.rate(topic.in_rate), f"{words.size(topic.byte_rate)}/s"),
        "Out": (words.rate(finished), "finished"),
        "Depth": (words.number(topic.backlog), "messages wait"),
        "In flight": (words.number(topic.in_flight), "at consumers"),
        "Deferred": (words.number(topic.deferred), "not due yet"),
        "Messages": (words.number(topic.messages), words.size(topic.message_bytes)),
        "On disk": (words.size(topic.stored_bytes),
                    f"{words.size(topic.unsynced_bytes)} not synced" if not topic.without_disk
                    else f"without {words.count(topic.without_disk, 'node')} that do not tell")
                   if topic.tells_disk else words.UNKNOWN,
    }  # fmt: skip
    shown = {name: (*pair, "") for name, pair in plain.items()}
    return shown | {"Oldest": oldest_of(oldest, oldest.name if oldest else "")}


def oldest_of(channel: ChannelState | None, where: str) -> tuple[str, str, str]:
    """The tile of the oldest unfinished message, which stands out when it is old."""
    if channel is not None and not channel.tells_age:
        return (*words.UNKNOWN, "")
    if channel is None or not channel.oldest_s:
        return "none", "unfinished", ""
    is_old = channel.oldest_s > limits.ADMIN_OLD_S
    note = f"old: in {where}" if is_old and where else "old" if is_old else "unfinished"
    return words.span(channel.oldest_s), note, "warn" if is_old else ""


_CHANNELS = [
    linked("name", "Channel", "link", flex=2, minWidth=110),
    numbers("depth", "Depth"),
    wide(700, numbers("share", "Share", PERCENT, maxWidth=90,
                      headerTooltip="The share of all that waits in this topic")),
    wide(450, numbers("oldest", "Oldest", SPAN_OR_NONE, minWidth=95)),
    wide(600, column("empty", "Empty in", width=105,
                     headerTooltip="When none waits any more, if it goes on like this")),
    wide(500, numbers("in_rate", "In", RATE)),
    wide(500, numbers("finish_rate", "Out", RATE)),
    wide(700, numbers("in_flight", "In flight")),
    wide(900, numbers("deferred", "Deferred")),
    wide(1000, numbers("requeues", "Requeued", minWidth=95)),
    wide(1000, numbers("timeouts", "Timed out", minWidth=95)),
    wide(600, numbers("clients", "Clients", **FLASH)),
    stated("state", "State", width=125, **FLASH),
]  # fmt: skip


def channel_rows(here: Opened, name: str, snapshot: Snapshot) -> list[Row]:
    topic = snapshot.topics.get(name)
    if topic is None:
        return []
    lags, found = telling.lags(here, topic), states.found(here, snapshot)
    waits = sum(one.depth for one in topic.channels.values())
    return [
        _channel_row(here, one, waits)
        | {"empty": telling.until_empty(lags[one.name])}
        | dict(zip(("state", "level"), states.of_channel(found, ("topics", name, one.name)),
                   strict=True))
        for one in topic.channels.values()
    ]  # fmt: skip


def _channel_row(here: Opened, one: ChannelState, waits: int) -> Row:
    return {
        "name": one.name,
        "link": here.link("topics", one.topic, one.name),
        "depth": one.depth,
        "share": round(lag.share(one, waits)),
        "oldest": round(one.oldest_s) if one.tells_age else None,
        "in_flight": one.in_flight,
        "deferred": one.deferred,
        "in_rate": round(one.in_rate, 1),
        "finish_rate": round(one.finish_rate, 1),
        "requeues": one.requeues,
        "timeouts": one.timeouts,
        "clients": one.clients,
        "stale": bool(one.stale_s),
    }


_CLIENTS = [
    column("client", "Client", flex=2, minWidth=120),
    linked("reads", "Reads", "reads_link", flex=2, minWidth=120),
    wide(600, column("writes", "Publishes to", flex=1, minWidth=120)),
    wide(500, linked("node", "Node", "node_link", flex=1, minWidth=130)),
    numbers("rate", "Rate", RATE),
    wide(800, numbers("in_flight", "In flight")),
    wide(800, numbers("ready", "Ready")),
    wide(900, numbers("requeued", "Requeued")),
    wide(1000, since("since", "Connected", minWidth=115)),
]


class _Clients:
    """Who reads the topic, and who has published to it."""

    def __init__(self, here: Opened, name: str) -> None:
        self._here = here
        self._name = name
        self._client = context.client
        with layout.section("Consumers and producers"):
            self._silent = ui.label().classes("soft")
            empty = "Nobody is known to be connected: its consumers and producers show here."
            label = "Consumers and producers"
            self._grid = Grid(_CLIENTS, [], "key", empty, label, "22rem")

    def follow(self) -> None:
        connections = self._here.ground.connections
        self._client.on_delete(connections.listen(self._show))
        if connections.latest:
            self._show(connections.latest)

    def _show(self, rows: Sequence[Row]) -> None:
        link, latest = self._here.link, self._here.ground.watch.latest
        topic = latest.topics.get(self._name) or TopicState(self._name)
        silent = [at for at in (*topic.nodes, *topic.registered) if not latest.can_ask([at])]
        said = f"{telling.listed(silent)} does not answer" if silent else ""
        with self._client:
            self._silent.set_text(f"{said}: who is there now is not known." if said else "")
            self._grid.show([
                row | {"reads_link": link("topics", row["topic"], row["channel"]),
                       "node_link": link("nodes", row["node"])}
                for row in rows
                if row["topic"] == self._name or self._name in row["writes"].split(", ")
            ])  # fmt: skip


_NODES = [
    linked("node", "Node", "link", flex=2, minWidth=130),
    numbers(
        "waits", "In channels", minWidth=105, headerTooltip="Messages that wait in the channels"
    ),
    wide(500, numbers("depth", "Depth", headerTooltip="Those that wait for the first channel")),
    wide(700, numbers("memory", "In memory")),
    wide(700, numbers("disk", "Behind")),
    wide(500, numbers("messages", "Messages", minWidth=95)),
    wide(500, numbers("stored", "On disk", BYTES)),
    wide(700, numbers("channels", "Channels")),
    wide(600, column("durability", "Durability", width=110)),
    column("state", "State", width=125),
]


def node_rows(here: Opened, name: str, snapshot: Snapshot) -> list[Row]:
    """The topic on each node; tombstoned there, or the node down, is its state."""
    rows = []
    for node in snapshot.nodes.values():
        found = next((row for row in node.document.get("topics") or ()
                      if row.get("topic_name") == name), None)  # fmt: skip
        registered = dict(node.producer.topics)
        dead, is_silent = registered.get(name, False), name in registered and not node.document
        if found is None and not dead and not is_silent:
            continue
        row = found or {}
        depth, backend = row.get("depth", 0), row.get("backend_depth", 0)
        rows.append({
            "node": node.address,
            "link": here.link("nodes", node.address),
            "waits": sum(part.get("depth", 0) for part in row.get("channels") or ()),
            "depth": depth,
            "memory": depth - backend,
            "disk": backend,
            "messages": row.get("message_count", 0),
            "stored": row.get("stored_bytes"),
            "channels": len(row.get("channels") or ()),
            "durability": row.get("durability", ""),
            "state": "tombstoned" if dead else states.silent(node),
            "stale": bool(node.stale_s),
        })  # fmt: skip
    return rows
