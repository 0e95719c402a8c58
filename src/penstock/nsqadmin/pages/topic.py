"""One topic: its state, its channels, consumers and publishers, its nodes, its history, and the
actions on it. And one channel: the same, with its clients and messages."""

from operator import attrgetter

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
from penstock.nsqadmin.pages.grid import FLASH, Row, column, row_of, to_node
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.pages.resource import OnNode, count_column, memory
from penstock.nsqadmin.snapshot import ChannelState, Snapshot, TopicState


def draw(view: PageView, topic: str) -> None:
    none = TopicState(topic)
    frame = resource.Frame(view, figures_of(none), "topics", topic, gone=lambda: _gone(view))

    def show(snapshot: Snapshot) -> None:
        known = snapshot.topics.get(topic)
        found = states.by_topic(states.found(view, snapshot))
        paused = states.paused(known)
        word, level = states.topic_badge(known, found) if known else ("", "")
        badges = (paused, "warn"), ("" if word == paused else word, level)
        saying = states.topic_saying(known, states.lags(view, known)) if known else ""
        frame.show(snapshot, badges, saying, figures_of(known or none), known is not None,
                   known.stale_s if known else 0)  # fmt: skip

    layout.follow(view, show)
    with frame.body:
        empty = "No channel: what is published waits for the first one."
        resource.table(view, "Channels", _CHANNELS, "name", empty,
                       lambda snapshot: channel_rows(view, topic, snapshot))  # fmt: skip
        partitions.of_topic(view, topic)
        partitions.replicas(view, lambda cluster: cluster.of_topic(topic))
        clients.panel(view, topic)
        resource.table(view, "Nodes", _NODES, "node", "On no node that is known.",
                       lambda snapshot: node_rows(view, topic, snapshot))  # fmt: skip
        chart.pair(view, topic)
        settings.panel(view, topic)


def _gone(view: PageView) -> None:
    ui.label("No nsqd and no nsqlookupd that answers knows this topic.")
    with ui.element("div"):
        parts.written("span", "It is made by the first message that is published to it, or ")
        ui.link("under Lookup", view.link("lookup"))
        parts.written("span", ".")


def figures_of(topic: TopicState) -> resource.Figures:
    oldest = resource.oldest_in(list(topic.channels.values()))
    return {
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
        "Oldest": resource.oldest_of(oldest, oldest.name if oldest else ""),
    }  # fmt: skip


_CHANNELS = [
    column("name", "Channel", "link", to=lambda link, one: link("topics", one.topic, one.name),
           flex=2, minWidth=110),
    column("depth", "Depth", "count"),
    column("share", "Share", "percent", at=700, maxWidth=90,
           headerTooltip="The share of all that waits in this topic"),
    column("oldest", "Oldest", "age", at=450, minWidth=95,
           of=lambda one: one.oldest_s if one.tells_age else None),
    column("empty", "Empty in", at=600, width=105,
           headerTooltip="When none waits any more, if it goes on like this"),
    column("in_rate", "In", "rate", at=500),
    column("finish_rate", "Out", "rate", at=500),
    column("in_flight", "In flight", "count", at=700),
    column("deferred", "Deferred", "count", at=900),
    column("requeues", "Requeued", "count", at=1000, minWidth=95),
    column("timeouts", "Timed out", "count", at=1000, minWidth=95),
    column("clients", "Clients", "count", at=600, **FLASH),
    column("state", "State", "state", width=125, **FLASH),
]  # fmt: skip


def channel_rows(view: PageView, name: str, snapshot: Snapshot) -> list[Row]:
    topic = snapshot.topics.get(name)
    if topic is None:
        return []
    lags, found = states.lags(view, topic), states.found(view, snapshot)
    waits = sum(one.depth for one in topic.channels.values())
    rows = []
    for one in topic.channels.values():
        state, level = states.channel_badge(found, ("topics", name, one.name))
        rows.append(row_of(
            view.link, _CHANNELS, one, share=round(100 * one.depth / waits) if waits else 0,
            empty=lags[one.name].until_empty, state=state, state_level=level,
            stale=bool(one.stale_s),
        ))  # fmt: skip
    return rows


_NODES = [to_node(attrgetter("node.address")), *resource.TOPIC_ON_NODE]


def node_rows(view: PageView, name: str, snapshot: Snapshot) -> list[Row]:
    """The topic on each node that has it, or where it is tombstoned, or that may have it."""
    rows = []
    for node in snapshot.nodes.values():
        row, registered = node.row(name), dict(node.producer.topics)
        is_silent = name in registered and not node.document
        if row is not None or registered.get(name) or is_silent:
            one = OnNode(node, name, row or {})
            rows.append(row_of(view.link, _NODES, one, stale=bool(node.stale_s)))
    return rows


# --- one channel ---


def draw_channel(view: PageView, topic: str, channel: str) -> None:
    none = ChannelState(topic, channel)
    gone = "No nsqd that answers has this channel: its first consumer makes it."
    frame = resource.Frame(
        view, channel_figures(none), "topics", topic, channel, gone=lambda: ui.label(gone)
    )

    def show(snapshot: Snapshot) -> None:
        known = snapshot.channel(topic, channel)
        found = states.found(view, snapshot) if known else ()
        word, level = states.channel_badge(found, ("topics", topic, channel))
        badges = (states.paused(known), "warn"), ("" if word == states.PAUSED else word, level)
        saying = _channel_saying(view, known) if known else ""
        frame.show(snapshot, badges, saying, channel_figures(known or none), known is not None,
                   known.stale_s if known else 0)  # fmt: skip

    layout.follow(view, show)
    with frame.body:
        partitions.of_channel(view, topic, channel)
        clients.panel(view, topic, channel)
        channel_messages.panel(view, topic, channel)
        resource.table(view, "Nodes", _ON_NODES, "node", "On no node that is known.",
                       lambda snapshot: on_nodes(view, topic, channel, snapshot))  # fmt: skip
        channel_messages.replay_panel(view, topic, channel)
        chart.pair(view, f"{topic}/{channel}")
        settings.panel(view, topic, channel)


def _channel_saying(view: PageView, found: ChannelState) -> str:
    recent = view.deps.history.window(f"{found.topic}/{found.name}")
    text = states.channel_saying(found, states.lag_of(found, recent))
    return f"{text} {partitions.part_note(found.partitions)}".strip()


def channel_figures(channel: ChannelState) -> resource.Figures:
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


_ON_NODES = [
    to_node(attrgetter("node.address"), minWidth=125),
    count_column("depth", "Depth"),
    memory(at=1300),
    count_column("backend_depth", "Behind", at=900),
    count_column("in_flight_count", "In flight", at=500),
    count_column("deferred_count", "Deferred", at=700),
    count_column("requeue_count", "Requeued", at=700, minWidth=98),
    count_column("timeout_count", "Timed out", at=700, minWidth=98),
    count_column("message_count", "Messages", at=900, minWidth=98),
    count_column("client_count", "Clients"),
    column("near", "Same zone", "count", at=1300, of=lambda one: _near(one), minWidth=105),
    column("latency", "End to end", at=1000, of=lambda one: _latency(one), flex=1, minWidth=110),
    column("state", "State",
           of=lambda one: states.silent(one.node) or ("paused" if one.row.get("paused") else ""),
           width=100),
]  # fmt: skip


def on_nodes(view: PageView, topic: str, name: str, snapshot: Snapshot) -> list[Row]:
    rows = ((node, node.row(topic, name)) for node in snapshot.nodes.values())
    return [
        row_of(view.link, _ON_NODES, OnNode(node, topic, row), stale=bool(node.stale_s))
        for node, row in rows if row is not None
    ]  # fmt: skip


def _near(one: OnNode) -> int | None:
    """The official nsqd does not report it."""
    found: int | None = one.row.get("zone_local_msg_count")
    return 0 if found is None and "oldest_age_seconds" in one.row else found


def _latency(one: OnNode) -> str:
    percentiles = (one.row.get("e2e_processing_latency") or {}).get("percentiles") or ()
    return ", ".join(
        f"{each['quantile'] * 100:g} %: {words.span(each['value'] / 1e9)}" for each in percentiles
    )
