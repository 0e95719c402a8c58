"""Rows of /stats for one partition: what the row of the topic, or of the channel, adds up.

They are there for topics with several partitions. One that falls behind hides in a sum: with these
it is seen which one, and on which channel.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.broker.channels.channel import Channel, backend_depth_of
from penstock.broker.partition.leader import Leader

if TYPE_CHECKING:
    from penstock.broker.replicas.replicated_partition import ReplicatedPartition
    from penstock.broker.topics.topic import Topic

Row = dict[str, Any]


def topic_rows(topic: Topic) -> list[Row]:
    """Those that are led here, if only one is: the others are on other nodes."""
    return [topic_row(one) for one in topic.leaders] if topic.partition_count > 1 else []


def channel_rows(channel: Channel) -> list[Row]:
    several = channel.topic.partition_count > 1
    return [channel_row(channel, number) for number in channel.windows] if several else []


def topic_row(leader: Leader) -> Row:
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


def channel_row(channel: Channel, partition: int) -> Row:
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
        "oldest_age_seconds": channel.oldest.of(partition).age_s(channel.topic.wall_ns),
        "low": window.low,
        "next": window.next,
    }


def replica_rows(topic: Topic) -> list[Row]:
    """Of a cluster's topic, what this node has, whether it leads or follows. A follower does not
    know how far it is behind: its leader does. It knows what its channels would begin with."""
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
        "role": type(assignment.role).__name__.lower() if leadership is None else "leader",
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
