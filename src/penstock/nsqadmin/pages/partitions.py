"""The tables of partitions on the pages of a topic and of a channel: which of them lags. They are
there where a topic has several."""

from __future__ import annotations

from collections.abc import Callable

from penstock.nsqadmin import snapshot
from penstock.nsqadmin.pages import layout
from penstock.nsqadmin.pages.grid import (
    BYTES,
    PERCENT,
    RATE,
    SPAN_OR_NONE,
    Grid,
    Row,
    column,
    linked,
    numbers,
    wide,
)
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import ChannelPart, Snapshot, TopicPart, TopicState

Show = Callable[[Snapshot], None]

_OF_TOPIC = [
    numbers("partition", "Partition", minWidth=95),
    wide(700, linked("node", "Node", "link", flex=2, minWidth=130)),
    numbers("messages", "Messages", minWidth=95),
    wide(500, numbers("share", "Share", PERCENT, maxWidth=90,
                      headerTooltip="The share of all the topic's messages")),
    wide(500, numbers("in_rate", "In", RATE)),
    numbers("waits", "In channels", minWidth=105,
            headerTooltip="Messages that wait in the channels"),
    wide(600, column("behind", "Most in", flex=1, minWidth=110,
                     headerTooltip="The channel in which most of them wait")),
    wide(900, numbers("depth", "Depth", headerTooltip="Those that wait for the first channel")),
    wide(800, numbers("start", "From offset", minWidth=105)),
    wide(800, numbers("end", "To offset", minWidth=105)),
    wide(700, numbers("stored", "On disk", BYTES)),
    column("state", "State", width=125),
]  # fmt: skip
_OF_CHANNEL = [
    numbers("partition", "Partition", minWidth=95),
    wide(700, linked("node", "Node", "link", flex=2, minWidth=130)),
    numbers("depth", "Depth"),
    wide(500, numbers("share", "Share", PERCENT, maxWidth=90,
                      headerTooltip="The share of all that waits in this channel")),
    wide(450, numbers("oldest", "Oldest", SPAN_OR_NONE, minWidth=95)),
    wide(600, numbers("in_rate", "In", RATE)),
    numbers("finish_rate", "Out", RATE),
    wide(500, numbers("in_flight", "In flight")),
    wide(800, numbers("deferred", "Deferred")),
    wide(900, numbers("requeues", "Requeued", minWidth=95)),
    wide(900, numbers("timeouts", "Timed out", minWidth=95)),
    numbers("clients", "Clients"),
]  # fmt: skip


def of_topic(here: Opened, name: str) -> Show:
    """Returns what shows them."""
    return _panel(_OF_TOPIC, lambda snapshot: topic_rows(here, snapshot.topics.get(name)))


def of_channel(here: Opened, topic: str, name: str) -> Show:
    def rows(snapshot: Snapshot) -> list[Row]:
        found = snapshot.channel(topic, name)
        return channel_rows(here, found.partitions if found else [])

    return _panel(_OF_CHANNEL, rows)


def _panel(columns: list[Row], rows: Callable[[Snapshot], list[Row]]) -> Show:
    with layout.section("Partitions") as section:
        grid = Grid(columns, [], "key", "One partition.", "Partitions")
    section.set_visibility(False)

    def show(snapshot: Snapshot) -> None:
        found = rows(snapshot)
        section.set_visibility(bool(found))
        if found:
            grid.show(found)

    return show


def topic_rows(here: Opened, topic: TopicState | None) -> list[Row]:
    if topic is None:
        return []
    below: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for name, channel in topic.channels.items():
        for part in channel.partitions:
            below.setdefault((part.node, part.partition), []).append((name, part.depth))
    return [
        _topic_row(here, topic, one, below.get((one.node, one.partition), []))
        for one in topic.partitions
    ]


def _topic_row(
    here: Opened, topic: TopicState, one: TopicPart, waits: list[tuple[str, int]]
) -> Row:
    name, most = max(waits, key=lambda pair: pair[1], default=("", 0))
    return {
        "key": f"{one.node} {one.partition}",
        "partition": one.partition,
        "node": one.node,
        "link": here.link("nodes", one.node),
        "messages": one.messages,
        "share": round(100 * one.messages / topic.messages) if topic.messages else 0,
        "in_rate": round(one.in_rate, 1),
        "waits": sum(depth for _, depth in waits),
        "behind": f"{name}: {most:,}" if most else "",
        "depth": one.depth,
        "start": one.start_offset,
        "end": one.end_offset,
        "stored": one.stored_bytes,
        "state": "refuses" if one.refusal else "damaged" if one.damaged else "",
    }


def channel_rows(here: Opened, parts: list[ChannelPart]) -> list[Row]:
    waits = sum(one.depth for one in parts)
    return [
        {
            "key": f"{one.node} {one.partition}",
            "partition": one.partition,
            "node": one.node,
            "link": here.link("nodes", one.node),
            "depth": one.depth,
            "share": round(100 * one.depth / waits) if waits else 0,
            "oldest": round(one.oldest_s),
            "in_rate": round(one.in_rate, 1),
            "finish_rate": round(one.finish_rate, 1),
            "in_flight": one.in_flight,
            "deferred": one.deferred,
            "requeues": one.requeues,
            "timeouts": one.timeouts,
            "clients": one.clients,
        }
        for one in parts
    ]


def said(parts: list[ChannelPart]) -> str:
    """A sentence on the one that lags; none where it is no different from the others."""
    worst = snapshot.lagging(parts)
    if worst is None:
        return ""
    waits = sum(one.depth for one in parts)
    return f"Partition {worst.partition} has {worst.depth:,} of the {waits:,} that wait."
