"""Every nsqd, and one of them: where it is, what it holds, how its disk does."""

from __future__ import annotations

import time
from functools import partial

from fastapi import Request
from nicegui import ui

from penstock.nsqadmin import aggregate
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.api import node_rows as official_rows
from penstock.nsqadmin.api import node_stats
from penstock.nsqadmin.ground import Grounds
from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.grid import RATE, Grid, Row, column, linked, numbers
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import NodeState, Snapshot


def add(grounds: Grounds) -> None:
    @ui.page("/nodes")
    def nodes(request: Request) -> None:
        here = layout.opened(grounds, request)
        with layout.page(here, "Nodes"):
            draw_all(here)

    @ui.page("/nodes/{address}")
    def node(request: Request, address: str) -> None:
        here = layout.opened(grounds, request)
        with layout.page(here, address):
            draw(here, address)


_ALL = [
    linked("address", "Node", "link", flex=2, minWidth=150),
    column("hostname", "Host", flex=1, minWidth=100),
    numbers("in_rate", "In", RATE),
    numbers("out_rate", "Out", RATE),
    numbers("topics", "Topics"),
    numbers("tcp", "TCP port", "value"),
    column("version", "Version", width=150),
    column("place", "Zone", width=120),
    column("lookupds", "nsqlookupds", flex=1, minWidth=130),
    column("since", "Runs for", width=120),
    column("state", "State", width=150),
]


def draw_all(here: Opened) -> None:
    with layout.heading("Nodes"):
        count = ui.label().classes("soft")
    grid = Grid(_ALL, all_rows(here, here.ground.watch.latest), "address",
                "No nsqd is registered.", "Nodes")  # fmt: skip

    def show(snapshot: Snapshot) -> None:
        count.set_text(f"{len(snapshot.nodes):,}")
        grid.show(all_rows(here, snapshot))

    layout.follow(here, show)


def all_rows(here: Opened, snapshot: Snapshot) -> list[Row]:
    producers = [one.producer for one in snapshot.nodes.values()]
    old = {one["broadcast_address"] + str(one["http_port"])
           for one in official_rows(producers) if one["out_of_date"]}  # fmt: skip
    return [_all_row(here, one, old) for one in snapshot.nodes.values()]


def _all_row(here: Opened, node: NodeState, old: set[str]) -> Row:
    producer = node.producer
    is_old = producer.broadcast_address + str(producer.http_port) in old
    return {
        "address": node.address,
        "link": here.link("nodes", node.address),
        "hostname": producer.hostname,
        "in_rate": round(node.in_rate, 1),
        "out_rate": round(node.out_rate, 1),
        "topics": len(node.document.get("topics") or ()),
        "tcp": producer.tcp_port,
        "version": f"{producer.version} (out of date)" if is_old else producer.version,
        "place": "/".join(one for one in (producer.topology_region, producer.topology_zone) if one),
        "lookupds": ", ".join(one.partition("/")[0] for one in producer.remote_addresses),
        "since": words.span(max(0, int(time.time()) - node.start_s)) if node.start_s else "",
        "state": f"down: {node.error}" if node.error else node.health,
    }


_TOPICS = [
    linked("topic", "Topic", "link", flex=2, minWidth=150),
    numbers("depth", "Depth"),
    numbers("memory", "In memory"),
    numbers("disk", "Behind"),
    numbers("messages", "Messages"),
    numbers("channels", "Channels"),
    numbers("clients", "Clients"),
    column("tombstoned", "", width=120),
]


def draw(here: Opened, address: str) -> None:
    with layout.heading(address):
        state = ui.label().classes("badge")
        ui.link("Connections", here.connections(node=address))
    with ui.element("div").classes("tiles"):
        tiles = {name: layout.Tile(name) for name in _tiles_of(None)}
    with layout.section("Topics"):
        grid = Grid(_TOPICS, [], "topic", "It has no topic.", "Topics of this node")
        grid.follow(here, partial(_topic_rows, here, address))
    if here.may(Role.DESTROY):
        _tombstone(here, address)

    def show(snapshot: Snapshot) -> None:
        node = snapshot.nodes.get(address)
        text = "unknown" if node is None else "down" if node.error else node.health
        state.set_text(text)
        state.classes(remove="good bad", add="good" if text == "OK" else "bad")
        for name, (number, note) in _tiles_of(node).items():
            tiles[name].show(number, note)

    layout.follow(here, show)


def _tiles_of(node: NodeState | None) -> dict[str, tuple[str, str]]:
    document = node.document if node else {}
    topics = document.get("topics") or ()
    unsynced = sum(row.get("unsynced_bytes", 0) for row in topics)
    stored = sum(row.get("stored_bytes", 0) for row in topics)
    disk = document.get("disk") or {}
    free, slowest_s = disk.get("free_bytes"), disk.get("sync_slowest_seconds")
    return {
        "In": (words.rate(node.in_rate if node else 0), "published"),
        "Out": (words.rate(node.out_rate if node else 0), "finished"),
        "On disk": (words.size(stored), f"{words.size(unsynced)} not synced")
        if disk else words.UNKNOWN,
        "Disk left": (words.size(free) if free is not None else "unknown", "on its data path"),
        "Slowest sync": (words.span(slowest_s) if slowest_s else "none", "in the last minute")
        if disk else words.UNKNOWN,
        "Runs for": (
            words.span(max(0, int(time.time()) - node.start_s)) if node and node.start_s else "–",
            node.producer.version if node else "",
        ),
    }  # fmt: skip


async def _topic_rows(here: Opened, address: str) -> list[Row]:
    node = here.ground.watch.latest.nodes.get(address)
    if node is None:
        return []
    asked = await here.ground.upstream.stats([node.producer], clients=True)
    shown = aggregate.node(node_stats([node.producer], asked.answers)[0])
    dead = dict(node.producer.topics)
    return [
        {
            "topic": one["topic_name"],
            "link": here.link("topics", one["topic_name"]),
            "depth": one["depth"],
            "memory": one["memory_depth"],
            "disk": one["backend_depth"],
            "messages": one["message_count"],
            "channels": len(one["channels"]),
            "clients": sum(part["client_count"] for part in one["channels"]),
            "tombstoned": "tombstoned" if dead.get(one["topic_name"]) else "",
        }
        for one in shown["topics"]
    ]


def _tombstone(here: Opened, address: str) -> None:
    """Take a topic off this node: consumers are told to look elsewhere first."""

    async def go() -> None:
        topic = str(name.value or "")
        words_ = (
            f"Delete {topic} on {address}? Its messages there are lost; other nodes keep theirs."
        )
        if topic and await layout.confirm(words_, topic):
            about = {"topic": topic, "node": address}
            run = partial(here.ground.actions.tombstone, address, topic)
            await layout.change(here, Role.DESTROY, "tombstone_topic_producer", about, run)

    with layout.section("Take a topic off this node"), ui.element("div").classes("heading"):
        name = ui.input("Topic").props("dense outlined")
        ui.button("Delete there", on_click=go).props("flat color=negative")
