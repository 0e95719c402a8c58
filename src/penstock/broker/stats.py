"""Rows of /stats, with exactly NSQ's keys in NSQ's order, and our own behind them.

The daemon puts the lists in: `channels` of a topic, `clients` of a channel, and `partitions` of
both where the topic has several. Figures are sums over the partitions then, offsets too: their
differences are numbers of messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.channels.channel import Channel, backend_depth_of
from penstock.broker.channels.latency import topic_latency_row
from penstock.broker.partition.leader import Leader
from penstock.broker.topics.topic import Topic
from penstock.kernel import Locality

if TYPE_CHECKING:
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition

Row = dict[str, Any]

# NSQ leaves them out while they are 0.
LOCALITY_KEYS = {
    int(Locality.ZONE): "zone_local_msg_count",
    int(Locality.REGION): "region_local_msg_count",
    int(Locality.GLOBAL): "global_msg_count",
}


def topic_row(topic: Topic, channels: list[Row]) -> Row:
    leaders = topic.leaders
    replicas = replica_rows(topic)
    return {
        "topic_name": topic.name,
        "channels": channels,
        "depth": topic.depth,
        "backend_depth": topic.backend_depth,
        "message_count": topic.message_count,
        "message_bytes": topic.message_bytes,
        "paused": topic.paused,
        "e2e_processing_latency": topic_latency_row(topic),
        "durability": topic.durability,
        "start_offset": sum(leader.log.start_offset for leader in leaders),
        "committed_end": sum(leader.tail.committed_end for leader in leaders),
        "stored_bytes": sum(leader.log.bytes_stored for leader in leaders),
        "unsynced_bytes": sum(leader.log.unsynced_bytes for leader in leaders),
        "refusal": topic.trouble,
        "expired_count": topic.age_bound.expired_count,
        "trace_rate": topic.trace_rate,
        "damaged": _damaged(topic, leaders),
        **({"replicas": replicas} if replicas else {}),
    }


def _damaged(topic: Topic, leaders: list[Leader]) -> list[Row]:
    """Ranges of offsets; with their partition where there are several."""
    if topic.partition_count == 1:
        return [row for leader in leaders for row in damaged_rows(leader)]
    return [
        {"partition": leader.number, **row} for leader in leaders for row in damaged_rows(leader)
    ]


def _delivered(channel: Channel) -> Row:
    windows = channel.windows.values()
    counts = (
        sum(window.zone_local_count for window in windows),
        sum(window.region_local_count for window in windows),
        sum(window.global_count for window in windows),
    )
    return {key: count for key, count in zip(LOCALITY_KEYS.values(), counts, strict=True) if count}


def _skipped(channel: Channel) -> Row:
    """Only of skipped channels: most are not."""
    state = channel.skips.state
    row: Row = {"skipped": True} if state.whole else {}
    if state.chosen:
        row["skipped_partitions"] = sorted(state.chosen)
    return row | ({"zan_test_skipped": True} if state.tests else {})


def _dead_letter_topic(channel: Channel) -> Row:
    """Only of channels that have one: most have not."""
    settings = channel.settings
    has = settings.max_attempts or settings.dead_letter_topic
    return {"dead_letter_topic": channel.dead_letter_topic} if has else {}


def channel_row(channel: Channel, clients: list[Row] | None) -> Row:
    windows = channel.windows.values()
    return {
        "channel_name": channel.name,
        "depth": channel.depth,
        "backend_depth": channel.backend_depth,
        "in_flight_count": channel.in_flight,
        "deferred_count": channel.delayed,
        "message_count": channel.message_count,
        **_delivered(channel),
        "requeue_count": channel.requeue_count,
        "timeout_count": channel.timeout_count,
        "client_count": len(channel.consumers),
        "clients": clients,
        "paused": channel.paused,
        **_skipped(channel),
        "e2e_processing_latency": channel.latency.row(),
        "expired_count": channel.expired_count,
        "max_attempts": channel.settings.max_attempts,
        "dead_letter_count": channel.dead_letter_count,
        **_dead_letter_topic(channel),
        "oldest_age_seconds": channel.oldest_age_s,
        "trace_rate": channel.trace_rate,
        "low": sum(window.low for window in windows),
        "next": sum(window.next for window in windows),
    }


def split_topic(row: Row, topic: Topic, partition: int | None) -> Row:
    """The topic's row with the rows of its partitions below it, or with the figures of one."""
    if partition is not None:
        return row | topic_part(topic.leader(partition))
    parts = topic_parts(topic)
    return row | {"partitions": parts} if parts else row


def split_channel(row: Row, channel: Channel, partition: int | None) -> Row:
    """The same for a channel's."""
    if partition is not None:
        return row | channel_part(channel, partition)
    parts = channel_parts(channel)
    return row | {"partitions": parts} if parts else row


def chosen_names(topics: dict[str, Topic], topic_name: str = "") -> list[str] | None:
    """The topics that pass a filter, sorted; None for a topic that does not exist."""
    if not topic_name:
        return sorted(topics)
    return [topic_name] if topic_name in topics else None


def chosen_channels(topic: Topic, channel_name: str = "") -> list[Channel] | None:
    """The channels that pass a filter, sorted; None when the topic lacks the requested one, and
    then the topic is left out as a whole."""
    if not channel_name:
        return [topic.channels[name] for name in sorted(topic.channels)]
    return [topic.channels[channel_name]] if channel_name in topic.channels else None


# --- one partition: a part of the topic's or channel's row ---
#
# One that falls behind hides in a sum: with these it is seen which one, and on which channel.


def topic_parts(topic: Topic) -> list[Row]:
    """The partitions that this node leads, if it leads any: the others are on other nodes."""
    return [topic_part(one) for one in topic.leaders] if topic.partition_count > 1 else []


def channel_parts(channel: Channel) -> list[Row]:
    several = channel.topic.partition_count > 1
    return [channel_part(channel, number) for number in channel.windows] if several else []


def topic_part(leader: Leader) -> Row:
    tail, log = leader.tail, leader.log
    return {
        "partition": leader.number,
        "depth": leader.depth,
        "backend_depth": leader.backend_depth,
        "message_count": tail.message_count,
        "message_bytes": tail.message_bytes,
        "start_offset": log.start_offset,
        "committed_end": tail.committed_end,
        "stored_bytes": log.bytes_stored,
        "unsynced_bytes": log.unsynced_bytes,
        "refusal": leader.refusal,
        "damaged": damaged_rows(leader),
    }


def damaged_rows(leader: Leader) -> list[Row]:
    return [
        {"from": start, "to": end, "reason": reason}
        for start, end, reason in leader.replica.damaged
    ]


def channel_part(channel: Channel, partition: int) -> Row:
    window = channel.windows[partition]
    return {
        "partition": partition,
        "depth": window.depth + window.exhausted,
        "backend_depth": backend_depth_of(window),
        "in_flight_count": window.in_flight,
        "deferred_count": window.delayed,
        "message_count": window.message_count,
        "requeue_count": window.requeue_count,
        "timeout_count": window.timeout_count,
        "client_count": channel.consumer_count_of(partition),
        "expired_count": window.expired_count,
        "oldest_age_seconds": channel.oldest[partition].age_s(channel.topic.wall_ns),
        "low": window.low,
        "next": window.next,
    }


def replica_rows(topic: Topic) -> list[Row]:
    """This node's replicas of a cluster's topic, leaders or followers. A follower does not know its
    lag: its leader does. It knows the start of its channels."""
    return [
        _replica_row(replica.replicated)
        for _, replica in sorted(topic.replicas.items())
        if replica.replicated is not None
    ]


def _replica_row(replicated: ReplicatedPartition) -> Row:
    assignment = replicated.assignment
    record, leadership = assignment.record, assignment.leadership
    row: Row = {
        "partition": replicated.number,
        "role": assignment.role if leadership is None else "leader",
        "leader": record.leader.node if record is not None and record.leader is not None else None,
        "epoch": record.epoch if record is not None else 0,
        "in_sync": [member.node for member in record.members] if record is not None else [],
        "end_offset": replicated.replica.log.written_end,
        "committed_offset": assignment.committed,
    }
    if leadership is not None:
        end = leadership.machine.end
        row["followers"] = [
            {"node": node, "lag": end - max(peer.counted, 0)}
            for node, peer in sorted(leadership.machine.peers.items())
            if peer.replica
        ]
        row["lag"] = max((one["lag"] for one in row["followers"]), default=0)
    elif assignment.follower is not None:
        row["channels"] = _followed_channels(replicated)
    return row


def _followed_channels(replicated: ReplicatedPartition) -> list[Row]:
    known = replicated.channels.journal.folding.channels()
    start, committed = replicated.replica.log.start_offset, replicated.assignment.committed
    rows = []
    for channel in replicated.topic.channels.values():
        state = known.get(channel.number)
        low = max(state.low, start) if state is not None else start
        finished = sum(end - max(begin, low) for begin, end in state.finished) if state else 0
        depth = max(committed - low - finished, 0)
        rows.append({"channel_name": channel.name, "depth": depth})
    return rows
