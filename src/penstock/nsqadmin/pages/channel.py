"""One channel: how it does, its clients, the messages inside, its nodes, its history, and what can
be done to it.
"""

from __future__ import annotations

from typing import Any

from nicegui import ui

from penstock.nsqadmin import aggregate, words
from penstock.nsqadmin.api import node_stats
from penstock.nsqadmin.pages import (
    channel_messages,
    chart,
    layout,
    partitions,
    parts,
    replay,
    resource,
    settings,
    states,
)
from penstock.nsqadmin.pages.grid import Grid, Row, column, linked, numbers, since, wide
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
        with parts.section("Clients"):
            empty = "Nobody is known to be connected: start its consumers."
            clients = Grid(_CLIENTS, [], "key", empty, "Clients")
            clients.follow(here, lambda: _client_rows(here, topic, channel))
        channel_messages.panel(here, topic, channel)
        with parts.section("Nodes"):
            rows = node_rows(here, topic, channel, latest)
            nodes = Grid(_NODES, rows, "node", "On no node that is known.", "Nodes")
        replay.panel(here, topic, channel)
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


_CLIENTS = [
    column("client", "Client", flex=2, minWidth=150),
    wide(700, column("agent", "User agent", flex=1, minWidth=120)),
    wide(900, column("attributes", "Attributes", flex=1, minWidth=100)),
    wide(500, linked("node", "Node", "link", flex=1, minWidth=125)),
    numbers("in_flight", "In flight"),
    wide(500, numbers("ready", "Ready")),
    numbers("finished", "Finished"),
    wide(700, numbers("requeued", "Requeued")),
    wide(1100, numbers("messages", "Messages")),
    wide(700, since("connected", "Connected", minWidth=110)),
]


async def _client_rows(here: Opened, topic: str, name: str) -> list[Row]:
    """Asked for only while somebody looks."""
    latest = here.deps.watch.latest
    having = latest.channel(topic, name)
    nodes = [latest.nodes[at].producer for at in having.nodes] if having else []
    if not nodes:
        return []
    # A failure leaves the rows as they were: of who is silent, what it said last.
    asked = await here.deps.upstream.stats(nodes, topic, name, clients=True)
    found = aggregate.channel(topic, name, node_stats(nodes, asked.answers))
    return [_client_row(here, one) for one in (found or {}).get("clients") or ()]


def _client_row(here: Opened, one: dict[str, Any]) -> Row:
    attributes = []
    if one["tls"]:
        attributes.append(f"{one['tls_version']} {one['tls_cipher_suite']}".strip() or "TLS")
    attributes += [key for key in ("snappy", "deflate") if one[key]]
    if one["sample_rate"]:
        attributes.append(f"{one['sample_rate']} % sampled")
    if one["authed"]:
        attributes.append(f"authed {one['auth_identity']}".strip())
    attributes += [str(one[key]) for key in ("topology_region", "topology_zone") if key in one]
    return {
        "key": f"{one['node']} {one['remote_address']}",
        "client": f"{one['hostname'] or one['client_id']} ({one['remote_address']})",
        "agent": one["user_agent"],
        "attributes": ", ".join(attributes),
        "node": one["node"],
        "link": here.link("nodes", one["node"]),
        "in_flight": one["in_flight_count"],
        "ready": one["ready_count"],
        "finished": one["finish_count"],
        "requeued": one["requeue_count"],
        "messages": one["message_count"],
        "connected": one["connect_ts"],
    }


_NODES = [
    linked("node", "Node", "link", flex=2, minWidth=125),
    numbers("depth", "Depth"),
    wide(1300, numbers("memory", "In memory", minWidth=105)),
    wide(900, numbers("disk", "Behind")),
    wide(500, numbers("in_flight", "In flight")),
    wide(700, numbers("deferred", "Deferred")),
    wide(700, numbers("requeued", "Requeued", minWidth=98)),
    wide(700, numbers("timed_out", "Timed out", minWidth=98)),
    wide(900, numbers("messages", "Messages", minWidth=98)),
    numbers("clients", "Clients"),
    wide(1300, numbers("near", "Same zone", minWidth=105)),
    wide(1000, column("latency", "End to end", flex=1, minWidth=110)),
    column("state", "State", width=100),
]


def node_rows(here: Opened, topic: str, name: str, snapshot: Snapshot) -> list[Row]:
    rows = []
    for node in snapshot.nodes.values():
        for above in aggregate.topic_rows(node.document, topic):
            for row in above.get("channels") or ():
                if row.get("channel_name") == name:
                    rows.append(_node_row(here, node, row))
    return rows


def _node_row(here: Opened, node: NodeState, row: dict[str, Any]) -> Row:
    depth, backend = row.get("depth", 0), row.get("backend_depth", 0)
    percentiles = (row.get("e2e_processing_latency") or {}).get("percentiles") or ()
    latency = [f"{one['quantile'] * 100:g} %: {words.span(one['value'] / 1e9)}"
               for one in percentiles]  # fmt: skip
    return {
        "node": node.address,
        "link": here.link("nodes", node.address),
        "depth": depth,
        "memory": depth - backend,
        "disk": backend,
        "in_flight": row.get("in_flight_count", 0),
        "deferred": row.get("deferred_count", 0),
        "requeued": row.get("requeue_count", 0),
        "timed_out": row.get("timeout_count", 0),
        "messages": row.get("message_count", 0),
        "clients": row.get("client_count", 0),
        "near": row.get("zone_local_msg_count", 0 if "oldest_age_seconds" in row else None),
        "latency": ", ".join(latency),
        "state": states.silent(node) or ("paused" if row.get("paused") else ""),
        "stale": bool(node.stale_s),
    }
