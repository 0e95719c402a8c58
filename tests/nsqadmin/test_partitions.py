"""Topics with several partitions: what is made of the nodes' rows, and pages of their messages."""

import asyncio
from typing import Any

import pytest

from cases import each
from penstock.nsqadmin import aggregate
from penstock.nsqadmin.attention import findings
from penstock.nsqadmin.channel_messages import ChannelMessages, Move
from penstock.nsqadmin.messages import LogAddress
from penstock.nsqadmin.noderecords import holding, words_about, words_of
from penstock.nsqadmin.pages.channel_messages import described
from penstock.nsqadmin.pages.lookup import idle_topics
from penstock.nsqadmin.pages.nodes import all_rows
from penstock.nsqadmin.pages.partitions import (
    REPLICAS,
    channel_rows,
    part_note,
    replica_row,
    topic_rows,
)
from penstock.nsqadmin.replication import Replication, read
from penstock.nsqadmin.snapshot import NodeState, Snapshot, lean, make
from penstock.nsqadmin.upstream import NsqdAddress

from .saying import nodes
from .test_browse import FakeLog, search, seen, topic_logs

NODE = "127.0.0.1:2"
COUNTS = (2, 36, 2)  # nine of ten messages in one of them


def document(lag: int, messages: tuple[int, ...] = COUNTS) -> dict[str, Any]:
    """Of /stats: channel `slow` waits in partition 1 only."""
    channel = {
        "channel_name": "slow",
        "depth": lag,
        "message_count": sum(messages),
        "partitions": [
            {"partition": 0, "depth": 0, "message_count": messages[0]},
            {"partition": 1, "depth": lag, "message_count": messages[1], "oldest_age_seconds": 7.5},
            {"partition": 2, "depth": 0, "message_count": messages[2]},
        ],
    }
    topic = {
        "topic_name": "t",
        "message_count": sum(messages),
        "channels": [channel],
        "partitions": [
            {"partition": n, "message_count": count, "start_offset": 0, "committed_end": count}
            for n, count in enumerate(messages)
        ],
    }
    return {"start_time": 1, "health": "OK", "topics": [topic]}


def snapshot(*documents: dict[str, Any]) -> Snapshot:
    """Of one node that answers every two seconds."""
    found = Snapshot()
    for number, document in enumerate(documents):
        answered_s = 10.0 + 2 * number
        node = NodeState(NODE, NsqdAddress("h", "127.0.0.1", 1, 2, "1"), document, answered_s)
        found = make(answered_s, {NODE: node}, (), (), found)
    return found


def link(*names: str) -> str:
    return "/".join(names)


def replicated(at: str, role: str, epoch: int, **more: Any) -> NodeState:
    """A node with a replica of topic t."""
    replica = {"partition": 0, "role": role, "epoch": epoch, "lag": more.pop("lag", 0)}
    topic = {"topic_name": "t", "depth": more.pop("depth", 0), "replicas": [replica]}
    reply = lean({"topics": [topic]})
    return NodeState(at, NsqdAddress("", at, 0, 0, ""), reply, answered_s=1.0, seen_s=1.0, **more)


def cluster_of(leader: int, epoch: int) -> Replication:
    members = [
        {"node": number, "state": state, "alive": True, "host": host, "http_port": 1}
        for number, (host, state) in enumerate(
            (("a", "draining"), ("b", "active"), ("::1", "active"))
        )
    ]
    copies = {"topic": "t", "partition": 0, "leader": leader, "epoch": epoch, "in_sync": [1, 0],
              "preferred": [1, 0, 2], "replicas": 3, "under_replicated": True, "offline": False,
              "since_seconds": 0.0}  # fmt: skip
    return read({"cluster": {"name": "c"}, "nodes": members, "partitions": [copies]})


def seen_in_a_cluster(cluster: Replication, *states: NodeState) -> Snapshot:
    return make(1.0, {one.address: one for one in states}, (), (), Snapshot(), cluster)


def test_a_cluster_shows_what_each_node_is_for_and_how_far_followers_are_behind() -> None:
    found = seen_in_a_cluster(
        cluster_of(leader=1, epoch=5),
        replicated("a:1", "follower", 5),
        replicated("b:1", "leader", 5, lag=7),
        replicated("[::1]:1", "leader", 4, lag=9),  # asked last when it still led
    )
    assert [(row["state"], row["leads"], row["in_sync"]) for row in all_rows(link, found)] == [
        ("draining", 0, 1), ("up", 1, 1), ("up", 0, 0),
    ]  # fmt: skip
    (copies,) = found.cluster.partitions
    row = replica_row(link, REPLICAS, found, copies)
    assert (row["leader"], row["epoch"], row["lag"]) == ("1 (b:1)", 5, 7)
    newer = copies._replace(epoch=6)  # its leader has not been asked since
    assert replica_row(link, REPLICAS, found, newer)["lag"] is None


def test_a_partition_counts_at_its_current_leader() -> None:
    dead = replicated("b:1", "leader", 4, depth=9, error="gone")
    follower = replicated("a:1", "follower", 4)
    topic = seen_in_a_cluster(cluster_of(leader=1, epoch=4), follower, dead).topics["t"]
    assert (topic.depth, topic.nodes) == (9, ["a:1", "b:1"])  # nobody has been elected yet
    next_leader = replicated("a:1", "leader", 5, depth=8)
    found = seen_in_a_cluster(cluster_of(leader=0, epoch=5), next_leader, dead)
    assert (found.topics["t"].depth, found.topics["t"].nodes) == (8, ["a:1"])
    assert words_of(holding(found, dead)) == "It had replicas of 1 topic of the cluster."
    assert words_about(found, "t") == ""
    deleted = seen_in_a_cluster(cluster_of(0, 5)._replace(partitions=()), dead)
    assert deleted.topics == {}


def test_a_topic_on_silent_nodes_is_not_unknown() -> None:
    found = make(1.0, {}, ("t", "nobodys"), (), Snapshot(), cluster_of(leader=1, epoch=5))
    assert idle_topics(found) == ["nobodys"]


def test_the_document_of_the_api_has_them() -> None:
    nodes = [NodeState(f"{host}:1", NsqdAddress(host, host, 0, 1, "1"), document(36))
             for host in ("a", "b")]  # fmt: skip
    found = aggregate.topic("t", nodes)
    rows = found["partitions"]
    assert [(one["node"], one["partition"], one["message_count"]) for one in rows] == [
        (node, number, count) for node in ("a:1", "b:1") for number, count in enumerate(COUNTS)
    ]
    (channel,) = found["channels"]
    whole = aggregate.channel("t", "slow", nodes)
    assert whole is not None
    assert channel["partitions"] == whole["partitions"]
    assert [one["depth"] for one in channel["partitions"]] == [0, 36, 0] * 2
    assert [len(one["partitions"]) for one in found["nodes"] + channel["nodes"]] == [3] * 4


def test_rates_are_by_partition() -> None:
    found = snapshot(document(36), document(16, (4, 56, 2)))
    rates = [one.in_rate for one in found.topics["t"].partitions]
    assert rates == pytest.approx([1, 10, 0])
    slow = found.topics["t"].channels["slow"].partitions[1]
    assert (slow.in_rate, slow.finish_rate) == pytest.approx((10, 20))


def test_the_lagging_partition_is_named() -> None:
    parts = snapshot(document(36)).topics["t"].channels["slow"].partitions
    assert part_note(parts) == "Partition 1 has 36 of the 36 that wait."


def test_rows_of_the_tables() -> None:
    topic = snapshot(lean(document(36))).topics["t"]
    rows = topic_rows(link, topic)
    assert [(row["key"], row["share"], row["waits"], row["behind"]) for row in rows] == [
        (f"{NODE} 0", 5, 0, ""), (f"{NODE} 1", 90, 36, "slow: 36"), (f"{NODE} 2", 5, 0, ""),
    ]  # fmt: skip
    assert [(row["committed_end"], row["node_link"]) for row in rows] == [
        (n, f"nodes/{NODE}") for n in COUNTS
    ]
    rows = channel_rows(link, topic.channels["slow"].partitions)
    assert [(row["depth"], row["share"], row["oldest_s"]) for row in rows] == [
        (0, 0, 0), (36, 100, 8), (0, 0, 0),
    ]  # fmt: skip


def lags(channel: dict[str, Any], *changes: dict[str, Any]) -> list[tuple[str, str]]:
    one = document(36)
    row = one["topics"][0]["channels"][0]
    row |= channel
    for part, change in zip(row["partitions"], changes, strict=True):
        part |= change
    found = findings(snapshot(one), lambda series: ())
    return [(each.what, each.state) for each in found]


def test_a_partition_that_nobody_reads_needs_attention() -> None:
    read, unread = {"client_count": 1}, {"client_count": 0}
    reply = [("nobody reads partition 1 of channel t/slow", "unread")]
    assert lags({"client_count": 1}, read, unread, read) == reply
    assert lags({"client_count": 1}, read, read, read) == []
    assert lags({"client_count": 0}, unread, unread, unread) == []  # that is another finding
    assert lags({"client_count": 1, "paused": True}, read, unread, read)[0][1] == "paused"


def test_a_partition_that_lags_for_long_needs_attention() -> None:
    read, behind = {"client_count": 1}, {"client_count": 1, "depth": 5000}
    old = {"oldest_age_seconds": 301.0}
    reply = [("partition 1 of channel t/slow lags", "one partition lags")]
    assert lags({"client_count": 1}, read, behind | old, read) == reply
    assert lags({"client_count": 1}, read, behind, read) == []  # it is young
    assert lags({"client_count": 1}, behind, behind | old, behind) == []  # as are the others


# --- messages ---


@each(
    ("text", "address"),
    [
        ("a:1", LogAddress("a:1")),
        ("a:1#3", LogAddress("a:1", 3)),
        ("/run/x#y", LogAddress("/run/x#y")),
        ("/run/x#1234", LogAddress("/run/x#1234")),
        ("#", LogAddress("#")),
    ],
)
def test_addresses_as_text(text: str, address: LogAddress) -> None:
    assert LogAddress.read(text) == address
    assert str(address) == text


HEAVY = FakeLog("a", list(range(0, 360, 10)), partition=1)
LIGHT = FakeLog("a", [55, 305], partition=2)


class Both(FakeLog):
    """Asked for one partition, the node tells of all."""

    async def extents(self) -> Any:
        return {**await HEAVY.extents(), **await LIGHT.extents()}


def both() -> Any:
    logs = [Both("a", one.times, partition=one.partition) for one in (HEAVY, LIGHT)]
    return topic_logs(*logs)


def test_pages_go_over_all_partitions_by_time() -> None:
    page = asyncio.run(both().page("newest", search(8)))
    assert seen(page) == [
        ("a#1", 29), ("a#1", 30), ("a#2", 1), *(("a#1", number) for number in range(31, 36)),
    ]  # fmt: skip
    ends = {at: span.first for at, span in page.spans.items()}
    before = asyncio.run(both().read(ends, search(100), is_back=True))
    assert len(before.lines) == 30
    assert before.is_end


# --- what is inside, and replay ---


def test_a_move_in_all_partitions_goes_to_the_offsets_of_its_preview() -> None:
    rows = [{"partition": number, "offset": 3 * number} for number in range(2)]
    answer = {"offset": None, "messages_again": 9, "messages_skipped": 0, "partitions": rows}
    upstream = nodes(a=answer)
    inside = ChannelMessages(upstream, "t", "c")
    (move,), _ = asyncio.run(inside.preview(["a"], "earliest"))
    assert move == Move("a", None, 9, 0, 0, ((0, 0), (1, 3)))
    assert described(move).startswith("From offset 0 of partition 0, 3 of partition 1: 9 mess")
    asyncio.run(inside.seek(move))
    asked = [(query["position"], query["partition"]) for _, _, query in upstream.posted[1:]]
    assert asked == [("offset:0", "0"), ("offset:3", "1")]
