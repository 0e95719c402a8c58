"""`/stats` as text for people, in NSQ's columns, line by line."""

from __future__ import annotations

import time
from collections.abc import Iterator

from penstock import limits
from penstock.broker import stats as broker_stats
from penstock.durations import format_duration
from penstock.nsqd.stats import Row, View, memory_row, producers, walk


def text_parts(view: View, version_line: str, uptime_ns: int) -> Iterator[bytes]:
    for line in _lines(view, version_line, uptime_ns):
        yield (line + "\n").encode("utf-8", "replace")


def _lines(view: View, version_line: str, uptime_ns: int) -> Iterator[str]:
    broker = view.broker
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(view.start_time))
    yield from (version_line, f"start_time {started}", f"uptime {format_duration(uptime_ns)}", "")
    yield f"Health: {broker.health}"
    if broker.draining:
        yield "Draining: no publishes are taken, deliveries go on until nothing is left"
    if view.query.include_memory:
        yield from ("", "Memory:")
        for name, value in memory_row().items():
            yield f"   {name:<25}\t{value}"
    yield ""
    now_s = int(time.time())
    yield from _topics(view, now_s)
    yield ""
    yield from _producers(view, now_s)


def _topics(view: View, now_s: int) -> Iterator[str]:
    names = broker_stats.chosen_names(view.broker.topics, view.query.topic) or []
    heading = "Topics:"
    for topic, channels in walk(view, names):
        yield heading
        heading = ""  # between two topics
        yield _topic_line(topic)
        for part in topic.get("partitions", ()):
            yield _partition_line(part)
        for replica in topic.get("replicas", ()):
            yield _replica_line(replica)
        for channel, clients in channels:
            yield _channel_line(channel)
            for part in channel.get("partitions", ()):
                yield _channel_partition_line(part)
            for rows in clients:
                for row in rows:
                    yield _client_line(row, now_s)
    if heading:
        yield "Topics: None"


def _producers(view: View, now_s: int) -> Iterator[str]:
    heading = "Producers:"
    for rows in producers(view):
        if heading:
            yield heading
            heading = ""
        for row in rows:
            yield _producer_line(row, now_s)
    if heading:
        yield "Producers: None"


def _topic_line(topic: Row) -> str:
    mark = "*P " if topic["paused"] else "   "
    return (
        f"{mark}[{topic['topic_name']:<15}] depth: {topic['depth']:<5d} "
        f"be-depth: {topic['backend_depth']:<5d} msgs: {topic['message_count']:<8d} "
        f"e2e%: {_latencies(topic)}"
    )


def _channel_line(channel: Row) -> str:
    mark = "   *P " if channel["paused"] else "      "
    return (
        f"{mark}[{channel['channel_name']:<25}] depth: {channel['depth']:<5d} "
        f"be-depth: {channel['backend_depth']:<5d} inflt: {channel['in_flight_count']:<4d} "
        f"def: {channel['deferred_count']:<4d} re-q: {channel['requeue_count']:<5d} "
        f"timeout: {channel['timeout_count']:<5d} msgs: {channel['message_count']:<8d} "
        f"e2e%: {_latencies(channel)}"
    )


def _partition_line(part: Row) -> str:
    return (
        f"      partition {part['partition']:<3d} depth: {part['depth']:<5d} "
        f"be-depth: {part['backend_depth']:<5d} msgs: {part['message_count']:<8d} "
        f"offsets: {part['start_offset']}-{part['committed_end']}"
    )


def _replica_line(replica: Row) -> str:
    leader = "none" if replica["leader"] is None else replica["leader"]
    in_sync = " ".join(map(str, replica["in_sync"])) or "none"
    lag = f" lag: {replica['lag']}" if "lag" in replica else ""
    return (
        f"      replica {replica['partition']:<5d} {replica['role']:<9} leader: {leader} "
        f"epoch: {replica['epoch']} in sync: {in_sync} end: {replica['end_offset']}{lag}"
    )


def _channel_partition_line(part: Row) -> str:
    return (
        f"         partition {part['partition']:<3d} depth: {part['depth']:<5d} "
        f"be-depth: {part['backend_depth']:<5d} inflt: {part['in_flight_count']:<4d} "
        f"def: {part['deferred_count']:<4d} re-q: {part['requeue_count']:<5d} "
        f"timeout: {part['timeout_count']:<5d} msgs: {part['message_count']:<8d}"
    ).rstrip()


def _latencies(row: Row) -> str:
    percentiles = row["e2e_processing_latency"]["percentiles"] or ()
    return ", ".join(short_duration(percentile["value"]) for percentile in percentiles)


def short_duration(duration_ns: float) -> str:
    """One number and its unit: `2.8ms`, `0.0ns`."""
    for unit, unit_ns in (("s", limits.SECOND), ("ms", limits.MS), ("us", 1_000)):
        if duration_ns > unit_ns:
            return f"{duration_ns / unit_ns:.1f}{unit}"
    return f"{duration_ns:.1f}ns"


def _client_name(client: Row) -> str:
    port = client["remote_address"].rpartition(":")[2]
    name = f"{client['hostname']}:{port} {client['user_agent']}"
    return f"[V2 {name:<21}]"


def _connected(client: Row, now_s: int) -> str:
    return format_duration(max(0, now_s - client["connect_ts"]) * limits.SECOND)


def _client_line(client: Row, now_s: int) -> str:
    return (
        f"        {_client_name(client)} state: {client['state']} "
        f"inflt: {client['in_flight_count']:<4d} rdy: {client['ready_count']:<4d} "
        f"fin: {client['finish_count']:<8d} re-q: {client['requeue_count']:<8d} "
        f"msgs: {client['message_count']:<8d} connected: {_connected(client, now_s)}"
    )


def _producer_line(client: Row, now_s: int) -> str:
    counts = client.get("pub_counts", ())
    topics = " ".join(f"{row['topic']}={row['count']}" for row in counts)
    total = sum(row["count"] for row in counts)
    return (
        f"   {_client_name(client)} msgs: {total:<8d} topics: {topics} "
        f"connected: {_connected(client, now_s)}"
    )
