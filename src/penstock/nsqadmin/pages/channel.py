"""One channel: how it does, its clients, the messages inside, its nodes, its history, and what can
be done to it.
"""

from collections.abc import Mapping
from typing import Any

from nicegui import ui

from penstock.nsqadmin import words
from penstock.nsqadmin.pages import (
    channel_messages,
    chart,
    layout,
    partitions,
    parts,
    resource,
    settings,
    states,
)
from penstock.nsqadmin.pages import connections as clients
from penstock.nsqadmin.pages.grid import Grid, Row, column, linked, numbers, wide
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import ChannelState, NodeState, Snapshot


def draw(here: Opened, topic: str, channel: str) -> None:
    latest, none = here.deps.watch.latest, ChannelState(topic, channel)
    trail = (("Topics", here.link("topics")), (topic, here.link("topics", topic)))
    head = resource.Head(
        channel, trail, "channel", tabs_of(here, topic, channel),
        lambda: resource.StateButtons(here, topic, channel),
    )  # fmt: skip
    gone = ui.label("No nsqd that answers has this channel: its first consumer makes it.")
    gone.classes("panel empty")
    body = resource.Body(figures_of(none))
    with body.place:
        show_partitions = partitions.of_channel(here, topic, channel)
        clients.panel(here, topic, channel)
        channel_messages.panel(here, topic, channel)
        with parts.section("Nodes"):
            rows = node_rows(here, topic, channel, latest)
            nodes = Grid(_NODES, rows, "node", "On no node that is known.", "Nodes")
        channel_messages.replay_panel(here, topic, channel)
        chart.pair(here, f"{topic}/{channel}")
        settings.panel(here, topic, channel)

    def show(snapshot: Snapshot) -> None:
        known = snapshot.channel(topic, channel)
        word, level = states.channel_badge(
            states.found(here, snapshot), ("topics", topic, channel)
        ) if known else ("", "")  # fmt: skip
        shown = "" if word == states.PAUSED else word
        head.show(snapshot, (states.paused(known), "warn"), (shown, level))
        gone.set_visibility(known is None)
        saying = _writing_about(here, known) if known else ""
        body.show(known is not None, known.stale_s if known else 0, saying,
                  figures_of(known or none))  # fmt: skip
        show_partitions(snapshot)
        nodes.show(node_rows(here, topic, channel, snapshot))

    layout.follow(here, show)


def tabs_of(here: Opened, topic: str, name: str) -> list[tuple[str, str]]:
    return [
        ("Channel", here.link("topics", topic, name)),
        ("Messages", here.link("messages", topic)),
        ("Connections", here.link("connections", topic=topic, channel=name)),
    ]


def _writing_about(here: Opened, found: ChannelState) -> str:
    recent = here.deps.history.window(f"{found.topic}/{found.name}")
    told = states.channel_saying(found, states.lag_of(found, recent))
    return f"{told} {partitions.said(found.partitions)}".strip()


def figures_of(channel: ChannelState) -> resource.Figures:
    given_up = words.number(channel.given_up)
    return {
        **resource.plain({
            "In": (words.rate(channel.in_rate), "published"),
            "Out": (words.rate(channel.finish_rate), "finished"),
            "Depth": (words.number(channel.depth), "messages wait"),
            "In flight": (words.number(channel.in_flight), "at consumers"),
            "Deferred": (words.number(channel.deferred), "not due yet"),
            "Requeued": (words.number(channel.requeues), words.rate(channel.requeue_rate)),
            "Timed out": (words.number(channel.timeouts), words.rate(channel.timeout_rate)),
            "Dead letters": (words.number(channel.dead_letters), f"wait; {given_up} since start"),
        }),
        "Oldest": resource.oldest_of(channel, ""),
    }  # fmt: skip


_NODES = [
    linked("node", "Node", "link", flex=2, minWidth=125),
    numbers("depth", "Depth"),
    wide(1300, numbers("memory", "In memory", minWidth=105)),
    wide(900, numbers("backend_depth", "Behind")),
    wide(500, numbers("in_flight_count", "In flight")),
    wide(700, numbers("deferred_count", "Deferred")),
    wide(700, numbers("requeue_count", "Requeued", minWidth=98)),
    wide(700, numbers("timeout_count", "Timed out", minWidth=98)),
    wide(900, numbers("message_count", "Messages", minWidth=98)),
    numbers("client_count", "Clients"),
    wide(1300, numbers("near", "Same zone", minWidth=105)),
    wide(1000, column("latency", "End to end", flex=1, minWidth=110)),
    column("state", "State", width=100),
]
_COUNTS = ("depth", "backend_depth", "in_flight_count", "deferred_count", "requeue_count",
           "timeout_count", "message_count", "client_count")  # fmt: skip


def node_rows(here: Opened, topic: str, name: str, snapshot: Snapshot) -> list[Row]:
    rows = ((node, node.row(topic, name)) for node in snapshot.nodes.values())
    return [_node_row(here, node, row) for node, row in rows if row is not None]


def _node_row(here: Opened, node: NodeState, row: Mapping[str, Any]) -> Row:
    counts = {name: row.get(name, 0) for name in _COUNTS}
    percentiles = (row.get("e2e_processing_latency") or {}).get("percentiles") or ()
    latency = [f"{one['quantile'] * 100:g} %: {words.span(one['value'] / 1e9)}"
               for one in percentiles]  # fmt: skip
    return {
        "node": node.address,
        "link": here.link("nodes", node.address),
        **counts,
        "memory": counts["depth"] - counts["backend_depth"],
        "near": row.get("zone_local_msg_count", 0 if "oldest_age_seconds" in row else None),
        "latency": ", ".join(latency),
        "state": states.silent(node) or ("paused" if row.get("paused") else ""),
        "stale": bool(node.stale_s),
    }
