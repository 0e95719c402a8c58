"""The tables of partitions and replicas on the pages of a topic, a channel and a node: which
partition lags; who leads each in which epoch, and which nodes are in sync. The first are there
where a topic has several partitions, the second where there is a cluster.
"""

from collections.abc import Callable, Sequence

from penstock.nsqadmin import words
from penstock.nsqadmin.pages import parts
from penstock.nsqadmin.pages.grid import Grid, Row, column, linked, numbers, row_of, stated, wide
from penstock.nsqadmin.pages.layout import Opened
from penstock.nsqadmin.replication import Copies, Replication
from penstock.nsqadmin.snapshot import ChannelPart, Snapshot, TopicPart, TopicState, lagging

Show = Callable[[Snapshot], None]

_OF_TOPIC = [
    numbers("partition", "Partition", minWidth=95),
    wide(700, linked("node", "Node", "link", flex=2, minWidth=130)),
    numbers("messages", "Messages", minWidth=95),
    wide(500, numbers("share", "Share", "percent", maxWidth=90,
                      headerTooltip="The share of all the topic's messages")),
    wide(500, numbers("in_rate", "In", "rate")),
    numbers("waits", "In channels", minWidth=105,
            headerTooltip="Messages that wait in the channels"),
    wide(600, column("behind", "Most in", flex=1, minWidth=110,
                     headerTooltip="The channel in which most of them wait")),
    wide(900, numbers("depth", "Depth", headerTooltip="Those that wait for the first channel")),
    wide(800, numbers("start", "From offset", minWidth=105)),
    wide(800, numbers("end", "To offset", minWidth=105)),
    wide(700, numbers("stored", "On disk", "bytes")),
    column("state", "State", width=125),
]  # fmt: skip
_OF_CHANNEL = [
    numbers("partition", "Partition", minWidth=95),
    wide(700, linked("node", "Node", "link", flex=2, minWidth=130)),
    numbers("depth", "Depth"),
    wide(500, numbers("share", "Share", "percent", maxWidth=90,
                      headerTooltip="The share of all that waits in this channel")),
    wide(450, numbers("oldest", "Oldest", "age", minWidth=95)),
    wide(600, numbers("in_rate", "In", "rate")),
    numbers("finish_rate", "Out", "rate"),
    wide(500, numbers("in_flight", "In flight")),
    wide(800, numbers("deferred", "Deferred")),
    wide(900, numbers("requeues", "Requeued", minWidth=95)),
    wide(900, numbers("timeouts", "Timed out", minWidth=95)),
    numbers("clients", "Clients"),
]  # fmt: skip
_REPLICAS = [
    numbers("partition", "Partition", minWidth=95),
    linked("leader", "Leader", "link", flex=2, minWidth=130),
    wide(600, numbers("epoch", "Epoch", headerTooltip="It rises with each election")),
    column("in_sync", "In sync", flex=1, minWidth=90,
           headerTooltip="Nodes that have everything that is acknowledged"),
    wide(700, column("preferred", "Wanted on", flex=1, minWidth=90,
                     headerTooltip="Nodes that are to have it, the preferred leader first")),
    stated("state", "State", width=215),
]  # fmt: skip
_REPLICAS_OF_NODE = [linked("topic", "Topic", "topic_link", flex=2, minWidth=130), *_REPLICAS]


def of_topic(here: Opened, name: str) -> Show:
    """Returns what shows them."""
    return _panel("Partitions", _OF_TOPIC, "One partition.", "", lambda snapshot: topic_rows(
        here, snapshot.topics.get(name)))  # fmt: skip


def of_channel(here: Opened, topic: str, name: str) -> Show:
    def rows(snapshot: Snapshot) -> list[Row]:
        found = snapshot.channel(topic, name)
        return channel_rows(here, found.partitions if found else [])

    return _panel("Partitions", _OF_CHANNEL, "One partition.", "", rows)


def replicas_of_topic(here: Opened, name: str) -> Show:
    return _replicas(here, _REPLICAS, lambda cluster: cluster.of_topic(name))


def replicas_of_node(here: Opened, address: str) -> Show:
    return _replicas(here, _REPLICAS_OF_NODE, lambda cluster: cluster.of_node(address))


def _replicas(
    here: Opened, columns: list[Row], of: Callable[[Replication], list[Copies]]
) -> Show:  # fmt: skip
    return _panel("Replicas", columns, "None.", "24rem", lambda snapshot: [
        replica_row(here, snapshot.cluster, one) for one in of(snapshot.cluster)
    ])  # fmt: skip


def _panel(
    label: str, columns: list[Row], empty: str, height: str,
    rows: Callable[[Snapshot], list[Row]],
) -> Show:  # fmt: skip
    with parts.section(label) as section:
        grid = Grid(columns, [], "key", empty, label, height)
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
    return row_of(
        _OF_TOPIC, one, **_named(here, one), share=_share(one.messages, topic.messages),
        waits=sum(depth for _, depth in waits), behind=f"{name}: {most:,}" if most else "",
        start=one.start_offset, end=one.end_offset, stored=one.stored_bytes,
        state="refuses" if one.refusal else "damaged" if one.damaged else "",
    )  # fmt: skip


def channel_rows(here: Opened, parts: Sequence[ChannelPart]) -> list[Row]:
    waits = sum(one.depth for one in parts)
    return [
        row_of(
            _OF_CHANNEL, one, **_named(here, one), share=_share(one.depth, waits),
            oldest=round(one.oldest_s), finish_rate=round(one.finish_rate, 1),
        )
        for one in parts
    ]  # fmt: skip


def _named(here: Opened, one: TopicPart | ChannelPart) -> Row:
    return {
        "key": f"{one.node} {one.partition}",
        "link": here.link("nodes", one.node),
        "in_rate": round(one.in_rate, 1),
    }


def _share(part: int, whole: int) -> int:
    """In percent."""
    return round(100 * part / whole) if whole else 0


def said(parts: Sequence[ChannelPart]) -> str:
    """A sentence on the one that lags; none where it is no different from the others."""
    worst = lagging(parts)
    if worst is None:
        return ""
    waits = sum(one.depth for one in parts)
    return f"Partition {worst.partition} has {worst.depth:,} of the {waits:,} that wait."


def replica_row(here: Opened, cluster: Replication, one: Copies) -> Row:
    address = cluster.addresses.get(one.leader, "") if one.leader is not None else ""
    state, level = "in sync", "good"
    if one.under_replicated:
        state, level = f"under-replicated, {words.span(one.since_s)}", "warn"
    if one.offline:
        state, level = f"no leader, {words.span(one.since_s)}", "bad"
    return row_of(
        _REPLICAS_OF_NODE, one, key=f"{one.topic} {one.partition}",
        topic_link=here.link("topics", one.topic),
        leader=cluster.named(one.leader) if one.leader is not None else "none",
        link=here.link("nodes", address) if address else here.link("nodes"),
        in_sync=", ".join(map(str, one.in_sync)), preferred=", ".join(map(str, one.preferred)),
        state=state, level=level,
    )  # fmt: skip
