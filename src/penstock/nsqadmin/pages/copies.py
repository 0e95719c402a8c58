"""The tables of a cluster's replicas, on the pages of a topic and of a node: who leads each
partition, in which epoch, and which nodes are in sync. They are there where there is a cluster."""

from __future__ import annotations

from collections.abc import Callable

from penstock.nsqadmin.pages import layout, words
from penstock.nsqadmin.pages.grid import Grid, Row, column, linked, numbers, stated, wide
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.replication import Copies, Replication
from penstock.nsqadmin.snapshot import Snapshot

Show = Callable[[Snapshot], None]

_COLUMNS = [
    numbers("partition", "Partition", minWidth=95),
    linked("leader", "Leader", "link", flex=2, minWidth=130),
    wide(600, numbers("epoch", "Epoch", headerTooltip="It rises with each election")),
    column("in_sync", "In sync", flex=1, minWidth=90,
           headerTooltip="Nodes that have everything that is acknowledged"),
    wide(700, column("preferred", "Wanted on", flex=1, minWidth=90,
                     headerTooltip="Nodes that are to have it, the preferred leader first")),
    stated("state", "State", width=215),
]  # fmt: skip
_OF_NODE = [linked("topic", "Topic", "topic_link", flex=2, minWidth=130), *_COLUMNS]


def of_topic(here: Opened, name: str) -> Show:
    """Returns what shows them."""
    return _panel(here, _COLUMNS, lambda cluster: cluster.of_topic(name))


def of_node(here: Opened, address: str) -> Show:
    return _panel(here, _OF_NODE, lambda cluster: cluster.of_node(address))


def _panel(here: Opened, columns: list[Row], of: Callable[[Replication], list[Copies]]) -> Show:
    with layout.section("Replicas") as section:
        grid = Grid(columns, [], "key", "None.", "Replicas", "24rem")
    section.set_visibility(False)

    def show(snapshot: Snapshot) -> None:
        found = of(snapshot.cluster)
        section.set_visibility(bool(found))
        if found:
            grid.show([row(here, snapshot.cluster, one) for one in found])

    return show


def row(here: Opened, cluster: Replication, one: Copies) -> Row:
    address = cluster.addresses.get(one.leader, "") if one.leader is not None else ""
    state, level = "in sync", "good"
    if one.under_replicated:
        state, level = f"under-replicated, {words.span(one.since_s)}", "warn"
    if one.offline:
        state, level = f"no leader, {words.span(one.since_s)}", "bad"
    return {
        "key": f"{one.topic} {one.partition}",
        "topic": one.topic,
        "topic_link": here.link("topics", one.topic),
        "partition": one.partition,
        "leader": cluster.named(one.leader) if one.leader is not None else "none",
        "link": here.link("nodes", address) if address else here.link("nodes"),
        "epoch": one.epoch,
        "in_sync": ", ".join(map(str, one.in_sync)),
        "preferred": ", ".join(map(str, one.preferred)),
        "state": state,
        "level": level,
    }
