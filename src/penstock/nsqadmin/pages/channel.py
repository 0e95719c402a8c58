"""One channel: how it does, its clients, the messages inside, its nodes, its history, and what can
be done to it.
"""

from operator import attrgetter

from nicegui import ui

from penstock.nsqadmin import words
from penstock.nsqadmin.pages import (
    channel_messages,
    chart,
    layout,
    partitions,
    resource,
    settings,
    states,
)
from penstock.nsqadmin.pages import connections as clients
from penstock.nsqadmin.pages.grid import Row, column, row_of, to_node
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.pages.resource import OnNode, memory, told
from penstock.nsqadmin.snapshot import ChannelState, Snapshot


def draw(here: Opened, topic: str, channel: str) -> None:
    none = ChannelState(topic, channel)
    gone = "No nsqd that answers has this channel: its first consumer makes it."
    frame = resource.Frame(
        here, figures_of(none), "topics", topic, channel, gone=lambda: ui.label(gone)
    )

    def show(snapshot: Snapshot) -> None:
        known = snapshot.channel(topic, channel)
        found = states.found(here, snapshot) if known else ()
        word, level = states.channel_badge(found, ("topics", topic, channel))
        badges = (states.paused(known), "warn"), ("" if word == states.PAUSED else word, level)
        saying = _writing_about(here, known) if known else ""
        frame.show(snapshot, badges, saying, figures_of(known or none), known is not None,
                   known.stale_s if known else 0)  # fmt: skip

    layout.follow(here, show)
    with frame.place:
        partitions.of_channel(here, topic, channel)
        clients.panel(here, topic, channel)
        channel_messages.panel(here, topic, channel)
        resource.table(here, "Nodes", _NODES, "node", "On no node that is known.",
                       lambda snapshot: node_rows(here, topic, channel, snapshot))  # fmt: skip
        channel_messages.replay_panel(here, topic, channel)
        chart.pair(here, f"{topic}/{channel}")
        settings.panel(here, topic, channel)


def _writing_about(here: Opened, found: ChannelState) -> str:
    recent = here.deps.history.window(f"{found.topic}/{found.name}")
    told = states.channel_saying(found, states.lag_of(found, recent))
    return f"{told} {partitions.said(found.partitions)}".strip()


def figures_of(channel: ChannelState) -> resource.Figures:
    given_up = words.number(channel.given_up)
    return {
        "In": (words.rate(channel.in_rate), "published"),
        "Out": (words.rate(channel.finish_rate), "finished"),
        "Depth": (words.number(channel.depth), "messages wait"),
        "In flight": (words.number(channel.in_flight), "at consumers"),
        "Deferred": (words.number(channel.deferred), "not due yet"),
        "Requeued": (words.number(channel.requeues), words.rate(channel.requeue_rate)),
        "Timed out": (words.number(channel.timeouts), words.rate(channel.timeout_rate)),
        "Dead letters": (words.number(channel.dead_letters), f"wait; {given_up} since start"),
        "Oldest": resource.oldest_of(channel, ""),
    }


_NODES = [
    to_node(attrgetter("node.address"), minWidth=125),
    told("depth", "Depth"),
    memory(at=1300),
    told("backend_depth", "Behind", at=900),
    told("in_flight_count", "In flight", at=500),
    told("deferred_count", "Deferred", at=700),
    told("requeue_count", "Requeued", at=700, minWidth=98),
    told("timeout_count", "Timed out", at=700, minWidth=98),
    told("message_count", "Messages", at=900, minWidth=98),
    told("client_count", "Clients"),
    column("near", "Same zone", "count", at=1300, of=lambda one: _near(one), minWidth=105),
    column("latency", "End to end", at=1000, of=lambda one: _latency(one), flex=1, minWidth=110),
    column("state", "State",
           of=lambda one: states.silent(one.node) or ("paused" if one.row.get("paused") else ""),
           width=100),
]  # fmt: skip


def node_rows(here: Opened, topic: str, name: str, snapshot: Snapshot) -> list[Row]:
    rows = ((node, node.row(topic, name)) for node in snapshot.nodes.values())
    return [
        row_of(here.link, _NODES, OnNode(node, topic, row), stale=bool(node.stale_s))
        for node, row in rows if row is not None
    ]  # fmt: skip


def _near(one: OnNode) -> int | None:
    """The official nsqd does not tell."""
    found: int | None = one.row.get("zone_local_msg_count")
    return 0 if found is None and "oldest_age_seconds" in one.row else found


def _latency(one: OnNode) -> str:
    percentiles = (one.row.get("e2e_processing_latency") or {}).get("percentiles") or ()
    return ", ".join(
        f"{each['quantile'] * 100:g} %: {words.span(each['value'] / 1e9)}" for each in percentiles
    )
