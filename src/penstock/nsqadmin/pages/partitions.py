"""The tables of partitions and replicas on the pages of a topic, a channel and a node: the lagging
partition; the leader of each, its epoch, and the nodes in sync. The first are shown for topics of
several partitions, the second in a cluster."""

from collections.abc import Callable, Sequence

from penstock.nsqadmin import words
from penstock.nsqadmin.pages import resource
from penstock.nsqadmin.pages.grid import Column, Link, Row, column, row_of, to_node
from penstock.nsqadmin.pages.layout import PageView
from penstock.nsqadmin.pages.resource import count_column
from penstock.nsqadmin.pages.states import Badge
from penstock.nsqadmin.replication import Copies, Replication
from penstock.nsqadmin.snapshot import Part, Snapshot, TopicState, lagging

_NUMBER = column("partition", "Partition", "count", minWidth=95)
_NODE = to_node(at=700)
_STATES = ("refuses", "refusal"), ("damaged", "damaged")
_OF_TOPIC = [
    _NUMBER,
    _NODE,
    count_column("message_count", "Messages", minWidth=95),
    column("share", "Share", "percent", at=500, maxWidth=90,
           headerTooltip="The share of all the topic's messages"),
    column("in_rate", "In", "rate", at=500),
    column("waits", "In channels", "count", minWidth=105,
           headerTooltip="Messages that wait in the channels"),
    column("behind", "Most in", at=600, flex=1, minWidth=110,
           headerTooltip="The channel in which most of them wait"),
    count_column("depth", "Depth", at=900,
                 headerTooltip="Those that wait for the first channel"),
    count_column("start_offset", "From offset", at=800, minWidth=105),
    count_column("committed_end", "To offset", at=800, minWidth=105),
    count_column("stored_bytes", "On disk", "bytes", at=700),
    column("state", "State",
           of=lambda one: next((word for word, key in _STATES if one.row.get(key)), ""),
           width=125),
]  # fmt: skip
_OF_CHANNEL = [
    _NUMBER,
    _NODE,
    count_column("depth", "Depth"),
    column("share", "Share", "percent", at=500, maxWidth=90,
           headerTooltip="The share of all that waits in this channel"),
    column("oldest_s", "Oldest", "age", at=450, minWidth=95),
    column("in_rate", "In", "rate", at=600),
    column("finish_rate", "Out", "rate"),
    count_column("in_flight_count", "In flight", at=500),
    count_column("deferred_count", "Deferred", at=800),
    count_column("requeue_count", "Requeued", at=900, minWidth=95),
    count_column("timeout_count", "Timed out", at=900, minWidth=95),
    count_column("client_count", "Clients"),
]  # fmt: skip


def of_topic(view: PageView, name: str) -> None:
    _panel(view, "Partitions", _OF_TOPIC,
           lambda snapshot: topic_rows(view.link, snapshot.topics.get(name)))  # fmt: skip


def of_channel(view: PageView, topic: str, name: str) -> None:
    def rows(snapshot: Snapshot) -> list[Row]:
        found = snapshot.channel(topic, name)
        return channel_rows(view.link, found.partitions if found else [])

    _panel(view, "Partitions", _OF_CHANNEL, rows)


def _panel(
    view: PageView, label: str, columns: list[Column], rows: Callable[[Snapshot], list[Row]],
    height: str = "",
) -> None:  # fmt: skip
    resource.table(view, label, columns, "key", "None.", rows, height, is_always=False)


def topic_rows(link: Link, topic: TopicState | None) -> list[Row]:
    if topic is None:
        return []
    below: dict[tuple[str, int], list[tuple[str, int]]] = {}
    for name, channel in topic.channels.items():
        for part in channel.partitions:
            below.setdefault((part.node, part.partition), []).append((name, part.depth))
    return [
        _topic_row(link, topic, one, below.get((one.node, one.partition), []))
        for one in topic.partitions
    ]


def _topic_row(link: Link, topic: TopicState, one: Part, waits: list[tuple[str, int]]) -> Row:
    name, most = max(waits, key=lambda pair: pair[1], default=("", 0))
    return row_of(
        link, _OF_TOPIC, one, key=f"{one.node} {one.partition}",
        share=_share(one.row.get("message_count", 0), topic.messages),
        waits=sum(depth for _, depth in waits), behind=f"{name}: {most:,}" if most else "",
    )  # fmt: skip


def channel_rows(link: Link, parts: Sequence[Part]) -> list[Row]:
    waits = sum(one.depth for one in parts)
    return [
        row_of(link, _OF_CHANNEL, one, key=f"{one.node} {one.partition}",
               share=_share(one.depth, waits))
        for one in parts
    ]  # fmt: skip


def _share(part: int, whole: int) -> int:
    """In percent."""
    return round(100 * part / whole) if whole else 0


def part_note(parts: Sequence[Part]) -> str:
    """A sentence about the lagging one; none where it differs little from the others."""
    worst = lagging(parts)
    if worst is None:
        return ""
    waits = sum(one.depth for one in parts)
    return f"Partition {worst.partition} has {worst.depth:,} of the {waits:,} that wait."


# --- replicas ---


def replicas(view: PageView, of: Callable[[Replication], list[Copies]], *more: Column) -> None:
    columns = [*more, *REPLICAS]
    _panel(view, "Replicas", columns, lambda snapshot: [
        replica_row(view.link, columns, snapshot, one) for one in of(snapshot.cluster)
    ], "24rem")  # fmt: skip


def replica_row(link: Link, columns: list[Column], snapshot: Snapshot, one: Copies) -> Row:
    cluster, leader = snapshot.cluster, one.leader
    epoch, lag = snapshot.lags.get((one.topic, one.partition), (0, 0))
    address = cluster.addresses.get(leader, "") if leader is not None else ""
    return row_of(
        link, columns, one, key=f"{one.topic} {one.partition}",
        leader=cluster.named(leader) if leader is not None else "none",
        leader_link=link("nodes", address) if address else link("nodes"),
        lag=lag if epoch == one.epoch else None,
    )  # fmt: skip


def _state_of(one: Copies) -> Badge:
    if not one.fault:
        return "in sync", "good"
    level = "bad" if one.offline or one.blocked else "warn"
    return f"{one.fault}, {words.span(one.since_s)}", level


REPLICAS = [
    _NUMBER,
    column("leader", "Leader", "link", to=lambda link, one: link("nodes"), flex=2, minWidth=130),
    column("epoch", "Epoch", "count", at=600, headerTooltip="It rises with each election"),
    column("in_sync", "In sync", of=lambda one: ", ".join(map(str, one.in_sync)), flex=1,
           minWidth=90, headerTooltip="Nodes that have everything that is acknowledged"),
    column("preferred", "Wanted on", at=700, of=lambda one: ", ".join(map(str, one.preferred)),
           flex=1, minWidth=90,
           headerTooltip="Nodes that are to have it, the preferred leader first"),
    column("lag", "Lag", "count", at=500,
           headerTooltip="Messages that the follower furthest behind lacks"),
    column("state", "State", "state", _state_of, width=215),
]  # fmt: skip
