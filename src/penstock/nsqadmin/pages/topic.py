"""One topic: how it does, its channels, who reads and writes, its nodes, its history, and what can
be done to it.
"""

from nicegui import ui

from penstock.nsqadmin import words
from penstock.nsqadmin.pages import chart, layout, partitions, parts, resource, settings, states
from penstock.nsqadmin.pages import connections as clients
from penstock.nsqadmin.pages.grid import (
    FLASH,
    Grid,
    Row,
    column,
    linked,
    numbers,
    row_of,
    stated,
    wide,
)
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.snapshot import Snapshot, TopicState

_WAITS = "Messages that wait in the channels"
_DEPTH = "Those that wait for the first channel"


def draw(here: Opened, topic: str) -> None:
    latest, none = here.deps.watch.latest, TopicState(topic)
    trail = (("Topics", here.link("topics")),)
    head = resource.Head(
        topic, trail, "topic", tabs_of(here, topic), lambda: resource.StateButtons(here, topic)
    )
    gone = _gone(here)
    body = resource.Body(figures_of(none))
    with body.place:
        with parts.section("Channels"):
            empty = "No channel: what is published waits for the first one."
            rows = channel_rows(here, topic, latest)
            channels = Grid(_CHANNELS, rows, "name", empty, "Channels")
        show_partitions = partitions.of_topic(here, topic)
        show_replicas = partitions.replicas_of_topic(here, topic)
        clients.panel(here, topic)
        with parts.section("Nodes"):
            rows = node_rows(here, topic, latest)
            nodes = Grid(_NODES, rows, "node", "On no node that is known.", "Nodes")
        chart.pair(here, topic)
        settings.panel(here, topic)

    def show(snapshot: Snapshot) -> None:
        known = snapshot.topics.get(topic)
        found = states.by_topic(states.found(here, snapshot))
        paused, (word, level) = states.paused(known), (
            states.topic_badge(known, found) if known else ("", "")
        )  # fmt: skip
        head.show(snapshot, (paused, "warn"), ("" if word == paused else word, level))
        gone.set_visibility(known is None)
        saying = states.topic_saying(known, states.lags(here, known)) if known else ""
        body.show(known is not None, known.stale_s if known else 0, saying,
                  figures_of(known or none))  # fmt: skip
        channels.show(channel_rows(here, topic, snapshot))
        show_partitions(snapshot)
        show_replicas(snapshot)
        nodes.show(node_rows(here, topic, snapshot))

    layout.follow(here, show)


def _gone(here: Opened) -> ui.element:
    with ui.element("div").classes("panel empty") as gone:
        ui.label("No nsqd and no nsqlookupd that answers knows this topic.")
        with ui.element("div"):
            parts.written("span", "It is made by the first message that is published to it, or ")
            ui.link("under Lookup", here.link("lookup"))
            parts.written("span", ".")
    return gone


def tabs_of(here: Opened, name: str) -> list[tuple[str, str]]:
    return [
        ("Topic", here.link("topics", name)),
        ("Messages", here.link("messages", name)),
        ("Connections", here.link("connections", topic=name)),
    ]


def figures_of(topic: TopicState) -> resource.Figures:
    oldest = resource.oldest_in(list(topic.channels.values()))
    return {
        **resource.plain({
            "In": (words.rate(topic.in_rate), f"{words.size(topic.byte_rate)}/s"),
            "Out": (words.rate(topic.finish_rate), "finished"),
            "Depth": (words.number(topic.backlog), "messages wait"),
            "In flight": (words.number(topic.in_flight), "at consumers"),
            "Deferred": (words.number(topic.deferred), "not due yet"),
            "Messages": (words.number(topic.messages), words.size(topic.message_bytes)),
            "On disk": (
                words.size(topic.stored_bytes),
                f"{words.size(topic.unsynced_bytes)} not synced" if not topic.without_disk
                else f"without {words.count(topic.without_disk, 'node')} that do not tell",
            ) if topic.tells_disk else words.UNKNOWN,
        }),
        "Oldest": resource.oldest_of(oldest, oldest.name if oldest else ""),
    }  # fmt: skip


# --- channels ---

_CHANNELS = [
    linked("name", "Channel", "link", flex=2, minWidth=110),
    numbers("depth", "Depth"),
    wide(700, numbers("share", "Share", "percent", maxWidth=90,
                      headerTooltip="The share of all that waits in this topic")),
    wide(450, numbers("oldest", "Oldest", "age", minWidth=95)),
    wide(600, column("empty", "Empty in", width=105,
                     headerTooltip="When none waits any more, if it goes on like this")),
    wide(500, numbers("in_rate", "In", "rate")),
    wide(500, numbers("finish_rate", "Out", "rate")),
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
    lags, found = states.lags(here, topic), states.found(here, snapshot)
    waits = sum(one.depth for one in topic.channels.values())
    rows = []
    for one in topic.channels.values():
        path = ("topics", name, one.name)
        state, level = states.channel_badge(found, path)
        rows.append(row_of(
            _CHANNELS, one,
            link=here.link(*path),
            share=round(100 * one.depth / waits) if waits else 0,
            oldest=round(one.oldest_s) if one.tells_age else None,
            empty=lags[one.name].until_empty,
            in_rate=round(one.in_rate, 1),
            finish_rate=round(one.finish_rate, 1),
            state=state, level=level, stale=bool(one.stale_s),
        ))  # fmt: skip
    return rows


# --- nodes ---

_NODES = [
    linked("node", "Node", "node_link", flex=2, minWidth=130),
    numbers("waits", "In channels", minWidth=105, headerTooltip=_WAITS),
    wide(500, numbers("depth", "Depth", headerTooltip=_DEPTH)),
    wide(700, numbers("memory", "In memory")),
    wide(700, numbers("disk", "Behind")),
    wide(500, numbers("messages", "Messages", minWidth=95)),
    wide(500, numbers("stored", "On disk", "bytes")),
    wide(700, numbers("channels", "Channels")),
    wide(600, column("durability", "Durability", width=110)),
    column("state", "State", width=125),
]


def node_rows(here: Opened, name: str, snapshot: Snapshot) -> list[Row]:
    """The topic on each node that has it, or where it is tombstoned, or that may have it."""
    rows = []
    for node in snapshot.nodes.values():
        row, registered = node.row(name), dict(node.producer.topics)
        is_silent = name in registered and not node.document
        if row is not None or registered.get(name) or is_silent:
            rows.append(resource.topic_on(here, node, row or {"topic_name": name}))
    return rows
