"""One topic: its nodes, its channels, its history, and what can be done to it."""

from __future__ import annotations

from functools import partial

from fastapi import Request
from nicegui import ui

from penstock.nsqadmin.access import Role
from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.pages import chart, layout, settings, words
from penstock.nsqadmin.pages.grid import BYTES, RATE, Grid, Row, column, linked, numbers
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.pages.topics import state_of
from penstock.nsqadmin.snapshot import ChannelState, Snapshot, TopicState


def add(grounds: Grounds) -> None:
    @ui.page("/topics/{name}")
    def topic(request: Request, name: str) -> None:
        here = layout.opened(grounds, request)
        with layout.page(here, name):
            draw(here, name)


def draw(here: Opened, name: str) -> None:
    with layout.heading(name):
        state = ui.label().classes("badge warn")
        ui.link("Messages", here.link("messages", name))
        ui.link("Connections", here.connections(topic=name))
        ui.element("div").classes("grow")
        _buttons(here, name)
    gone = ui.label("No nsqd and no nsqlookupd knows this topic.").classes("empty")
    with ui.element("div").classes("tiles"):
        tiles = {label: layout.Tile(label) for label in tiles_of(TopicState(name))}
    latest = here.ground.watch.latest
    with layout.section("Channels"):
        empty = "No channel: what is published waits for the first one."
        rows = channel_rows(here, name, latest)
        channels = Grid(_CHANNELS, rows, "name", empty, "Channels")
    with layout.section("Nodes"):
        nodes = Grid(_NODES, node_rows(here, name, latest), "node", "On no node.", "Nodes")
    chart.pair(here, name)
    settings.panel(here, name)

    def show(snapshot: Snapshot) -> None:
        topic = snapshot.topics.get(name)
        gone.set_visibility(topic is None)
        state.set_text(state_of(topic) if topic else "")
        state.set_visibility(bool(topic and state_of(topic)))
        for label, (number, note) in tiles_of(topic or TopicState(name)).items():
            tiles[label].show(number, note)
        channels.show(channel_rows(here, name, snapshot))
        nodes.show(node_rows(here, name, snapshot))

    layout.follow(here, show)


def _buttons(here: Opened, name: str) -> None:
    actions = here.ground.actions
    about = {"topic": name}

    async def act(verb: str) -> None:
        await layout.change(here, Role.OPERATE, f"{verb}_topic", about,
                            partial(actions.act, verb, name))  # fmt: skip

    async def empty() -> None:
        if await layout.confirm("Throw away all messages that wait in this topic?", name):
            await layout.change(here, Role.DESTROY, "empty_topic", about,
                                partial(actions.act, "empty", name))  # fmt: skip

    async def delete() -> None:
        words_ = "Delete this topic with its channels and messages on every node?"
        if await layout.confirm(words_, name):
            done = await layout.change(here, Role.DESTROY, "delete_topic", about,
                                       partial(actions.delete, name))  # fmt: skip
            if done:
                ui.navigate.to(here.link("topics"))

    if here.may(Role.OPERATE):
        ui.button("Pause", on_click=partial(act, "pause")).props("flat dense")
        ui.button("Unpause", on_click=partial(act, "unpause")).props("flat dense")
    if here.may(Role.DESTROY):
        ui.button("Empty", on_click=empty).props("flat dense color=negative")
        ui.button("Delete", on_click=delete).props("flat dense color=negative")


def tiles_of(topic: TopicState) -> dict[str, tuple[str, str]]:
    return {
        "In": (words.rate(topic.in_rate), f"{words.size(topic.byte_rate)}/s"),
        "Depth": (words.number(topic.backlog), "messages wait"),
        "In flight": (words.number(topic.in_flight), "at consumers"),
        "Deferred": (words.number(topic.deferred), "not due yet"),
        "Messages": (words.number(topic.messages), words.size(topic.message_bytes)),
        "On disk": (words.size(topic.stored_bytes),
                    f"{words.size(topic.unsynced_bytes)} not synced")
                   if topic.tells_disk else words.UNKNOWN,
    }  # fmt: skip


_CHANNELS = [
    linked("name", "Channel", "link", flex=2, minWidth=160),
    numbers("depth", "Depth"),
    numbers("in_flight", "In flight"),
    numbers("deferred", "Deferred"),
    numbers("in_rate", "In", RATE),
    numbers("finish_rate", "Finished", RATE),
    numbers("requeues", "Requeued"),
    numbers("timeouts", "Timed out"),
    numbers("messages", "Messages"),
    numbers("clients", "Clients"),
    column("state", "State", width=100),
]


def channel_rows(here: Opened, name: str, snapshot: Snapshot) -> list[Row]:
    topic = snapshot.topics.get(name)
    return [_channel_row(here, one) for one in topic.channels.values()] if topic else []


def _channel_row(here: Opened, one: ChannelState) -> Row:
    return {
        "name": one.name,
        "link": here.link("topics", one.topic, one.name),
        "depth": one.depth,
        "in_flight": one.in_flight,
        "deferred": one.deferred,
        "in_rate": round(one.in_rate, 1),
        "finish_rate": round(one.finish_rate, 1),
        "requeues": one.requeues,
        "timeouts": one.timeouts,
        "messages": one.messages,
        "clients": one.clients,
        "state": "paused" if one.paused else "",
    }


_NODES = [
    linked("node", "Node", "link", flex=2, minWidth=160),
    numbers("depth", "Depth"),
    numbers("memory", "In memory"),
    numbers("disk", "Behind"),
    numbers("messages", "Messages"),
    numbers("stored", "On disk", BYTES),
    numbers("channels", "Channels"),
    column("durability", "Durability", width=110),
    column("state", "State", width=130),
]


def node_rows(here: Opened, name: str, snapshot: Snapshot) -> list[Row]:
    """The topic on each node; tombstoned there, or the node down, is its state."""
    rows = []
    for node in snapshot.nodes.values():
        found = next((row for row in node.document.get("topics") or ()
                      if row.get("topic_name") == name), None)  # fmt: skip
        dead = dict(node.producer.topics).get(name, False)
        if found is None and not dead:
            continue
        row = found or {}
        depth, backend = row.get("depth", 0), row.get("backend_depth", 0)
        rows.append({
            "node": node.address,
            "link": here.link("nodes", node.address),
            "depth": depth,
            "memory": depth - backend,
            "disk": backend,
            "messages": row.get("message_count", 0),
            "stored": row.get("stored_bytes", 0),
            "channels": len(row.get("channels") or ()),
            "durability": row.get("durability", ""),
            "state": "tombstoned" if dead else "" if node.is_up else "node down",
        })  # fmt: skip
    return rows
