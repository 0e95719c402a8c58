"""`/metrics` for Prometheus: docs/metrics.md names every one.

The form is Prometheus' text format 0.0.4. Each metric is a row of a table: name, kind, help, and
how its value is read off a topic, a channel or the daemon. Counters end in `_total` and start at 0
with the process.

Metrics of partitions have names of their own, so that a sum over a topic's or a channel's metric
counts nothing twice. Each is a figure of a row of /stats (`broker/partition_stats.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock import __version__, limits
from penstock.broker import partition_stats as partitionrows
from penstock.broker.broker import Broker
from penstock.broker.channels.channel import Channel
from penstock.broker.topics.topic import Topic
from penstock.net.sync import SyncTimes
from penstock.nsqd.stats import Row, resident_bytes

if TYPE_CHECKING:
    from penstock.nsqd.cluster_state import ClusterState
    from penstock.nsqd.protocol import Protocol

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Value = int | float
Of = TypeVar("Of")


def escape(value: str) -> str:
    """A label's value."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def head(name: str, kind: str, text: str) -> bytes:
    return f"# HELP nsqd_{name} {text}\n# TYPE nsqd_{name} {kind}\n".encode()


def sample(name: str, label: str, value: Value) -> bytes:
    return f"nsqd_{name}{{{label}}} {value}\n".encode()


class Figures(NamedTuple):
    """What the daemon tells beside topics and channels."""

    broker: Broker
    protocol: Protocol
    sync_times: SyncTimes
    disk: Row  # `disk_row`
    start_time: int
    http_connections: int
    cluster: ClusterState | None = None


class Metric(NamedTuple, Generic[Of]):
    name: str
    kind: str
    help: str
    read: Callable[[Of], Value]


TOPIC_METRICS: tuple[Metric[Topic], ...] = (
    Metric("topic_messages_total", "counter", "Messages published.",
           lambda topic: topic.message_count),
    Metric("topic_message_bytes_total", "counter", "Bytes of their bodies.",
           lambda topic: topic.message_bytes),
    Metric("topic_depth", "gauge", "Messages that no channel has been given yet.",
           lambda topic: topic.depth),
    Metric("topic_backend_depth", "gauge", "Those of them that are on disk only.",
           lambda topic: topic.backend_depth),
    Metric("topic_paused", "gauge", "1 while the topic is paused.",
           lambda topic: int(topic.paused)),
    Metric("topic_refusing", "gauge", "1 while publishes are refused.",
           lambda topic: int(bool(topic.trouble))),
    Metric("topic_corrupt_messages", "gauge", "Stored messages that are known to be corrupt.",
           lambda topic: sum(end - start for leader in topic.leaders
                             for start, end, _ in leader.replica.damaged)),
    Metric("topic_stored_bytes", "gauge", "Bytes of log on disk.",
           lambda topic: sum(leader.log.bytes_stored for leader in topic.leaders)),
    Metric("topic_unsynced_bytes", "gauge", "Bytes written and not yet synced.",
           lambda topic: sum(leader.log.unsynced_bytes for leader in topic.leaders)),
    Metric("topic_index_failures_total", "counter",
           "Indexes of its log that could not be written or synced.",
           lambda topic: sum(leader.log.index_failures for leader in topic.leaders)),
    Metric("topic_expired_total", "counter", "Messages that grew too old.",
           lambda topic: topic.age_bound.expired_count),
)  # fmt: skip
CHANNEL_METRICS: tuple[Metric[Channel], ...] = (
    Metric("channel_messages_total", "counter", "Messages given to the channel.",
           lambda channel: channel.message_count),
    Metric("channel_deliveries_total", "counter", "Messages sent to consumers.",
           lambda channel: channel.delivery_count),
    Metric("channel_finishes_total", "counter", "Messages finished.",
           lambda channel: channel.finish_count),
    Metric("channel_requeues_total", "counter", "Messages requeued.",
           lambda channel: channel.requeue_count),
    Metric("channel_timeouts_total", "counter", "Messages that timed out.",
           lambda channel: channel.timeout_count),
    Metric("channel_expired_total", "counter", "Messages that grew too old.",
           lambda channel: channel.expired_count),
    Metric("channel_depth", "gauge", "Messages that wait for a consumer.",
           lambda channel: channel.depth),
    Metric("channel_backend_depth", "gauge", "Those of them that are on disk only.",
           lambda channel: channel.backend_depth),
    Metric("channel_in_flight", "gauge", "Messages sent and not yet answered.",
           lambda channel: channel.in_flight),
    Metric("channel_deferred", "gauge", "Messages that wait for their time.",
           lambda channel: channel.delayed),
    Metric("channel_clients", "gauge", "Consumers.",
           lambda channel: len(channel.consumers)),
    Metric("channel_paused", "gauge", "1 while the channel is paused.",
           lambda channel: int(channel.paused)),
    Metric("channel_skipped", "gauge", "1 while the whole channel is skipped.",
           lambda channel: int(channel.skips.on)),
    Metric("channel_oldest_age_seconds", "gauge", "Of its oldest unfinished message.",
           lambda channel: channel.oldest.age_s(channel.topic.wall_ns) or 0),
)  # fmt: skip
AUTO_ACKS = "channel_auto_acks_total"
AUTO_ACK_REASONS: tuple[tuple[str, Callable[[Channel], Value]], ...] = (
    ("skipped", lambda channel: channel.skips.count),
    ("retried", lambda channel: channel.auto_ack_count),
)
LATENCY = "channel_e2e_latency_seconds"  # over a sliding window


def _figure(name: str, kind: str, help: str, key: str) -> Metric[Row]:
    """None is told as 0."""
    return Metric(name, kind, help, lambda row: row[key] or 0)


TOPIC_PARTITION_METRICS: tuple[Metric[Row], ...] = (
    _figure("topic_partition_messages_total", "counter", "Messages published to the partition.",
            "message_count"),
    _figure("topic_partition_message_bytes_total", "counter", "Bytes of their bodies.",
            "message_bytes"),
    _figure("topic_partition_depth", "gauge", "Messages that no channel has been given yet.",
            "depth"),
    _figure("topic_partition_start_offset", "gauge", "The earliest offset that is stored.",
            "start_offset"),
    _figure("topic_partition_end_offset", "gauge", "The offset after the newest message.",
            "committed_end"),
    _figure("topic_partition_stored_bytes", "gauge", "Bytes of log on disk.", "stored_bytes"),
    Metric("topic_partition_refusing", "gauge", "1 while the partition takes no publish.",
           lambda row: int(bool(row["refusal"]))),
    Metric("topic_partition_corrupt_messages", "gauge",
           "Stored messages that are known to be corrupt.",
           lambda row: sum(one["to"] - one["from"] for one in row["damaged"])),
)  # fmt: skip
CHANNEL_PARTITION_METRICS: tuple[Metric[Row], ...] = (
    _figure("channel_partition_messages_total", "counter", "Messages given to the channel.",
            "message_count"),
    _figure("channel_partition_requeues_total", "counter", "Messages requeued.", "requeue_count"),
    _figure("channel_partition_timeouts_total", "counter", "Messages that timed out.",
            "timeout_count"),
    _figure("channel_partition_depth", "gauge", "Messages that wait for a consumer.", "depth"),
    _figure("channel_partition_in_flight", "gauge", "Messages sent and not yet answered.",
            "in_flight_count"),
    _figure("channel_partition_deferred", "gauge", "Messages that wait for their time.",
            "deferred_count"),
    _figure("channel_partition_clients", "gauge", "Consumers that read it.", "client_count"),
    _figure("channel_partition_oldest_age_seconds", "gauge", "Of its oldest unfinished message.",
            "oldest_age_seconds"),
)  # fmt: skip

Labelled = list[tuple[str, Row]]


def metric_parts(figures: Figures) -> Iterator[bytes]:
    yield from _encoded(_process(figures))
    if figures.cluster is not None:
        yield from _encoded(cluster_lines(figures.cluster))
    yield from _encoded(_syncs(figures.sync_times))
    topics = [figures.broker.topics[name] for name in sorted(figures.broker.topics)]
    labels = [f'topic="{escape(topic.name)}"' for topic in topics]
    for topic_metric in TOPIC_METRICS:
        yield head(topic_metric.name, topic_metric.kind, topic_metric.help)
        for label, topic in zip(labels, topics, strict=True):
            yield sample(topic_metric.name, label, topic_metric.read(topic))
    channels = [
        (f'{label},channel="{escape(name)}"', topic.channels[name])
        for label, topic in zip(labels, topics, strict=True)
        for name in sorted(topic.channels)
    ]
    for metric in CHANNEL_METRICS:
        yield head(metric.name, metric.kind, metric.help)
        for label, channel in channels:
            yield sample(metric.name, label, metric.read(channel))
    yield head(AUTO_ACKS, "counter", "Messages that nsqd finished by itself, by reason.")
    for label, channel in channels:
        for reason, count in AUTO_ACK_REASONS:
            yield sample(AUTO_ACKS, f'{label},reason="{reason}"', count(channel))
    yield head(LATENCY, "gauge", "From publish to FIN, at --e2e-processing-latency-percentile.")
    for label, channel in channels:
        for percentile in channel.latency.row()["percentiles"] or ():
            seconds = percentile["value"] / limits.SECOND
            yield sample(LATENCY, f'{label},quantile="{percentile["quantile"]:g}"', seconds)
    yield from partition_parts(topics)


def _encoded(lines: Iterator[str]) -> Iterator[bytes]:
    for line in lines:
        yield (line + "\n").encode("utf-8", "replace")


def cluster_lines(state: ClusterState) -> Iterator[str]:
    singles = (
        ("nsqd_under_replicated_partitions", "gauge",
         "Partitions of the cluster with fewer replicas in sync than their topic wants.",
         state.under_replicated),
        ("nsqd_offline_partitions", "gauge", "Partitions of the cluster without a leader.",
         state.offline),
        ("nsqd_leader_changes_total", "counter", "Leaderships that began on this node.",
         state.leader_changes),
        ("nsqd_replica_lag_messages", "gauge",
         "Messages that the follower most behind lacks, of the partitions led here.", state.lag),
        ("nsqd_cluster_clock_ahead_seconds", "gauge",
         "How far the clock is ahead of most other nodes' clocks; negative: behind.",
         state.clock_ahead_ns / limits.SECOND),
    )  # fmt: skip
    for single in singles:
        yield from _plain(*single)


def _process(figures: Figures) -> Iterator[str]:
    broker, protocol = figures.broker, figures.protocol
    label = f'version="{escape(__version__)}"'
    yield from _plain("nsqd_info", "gauge", "What runs here.", 1, label)
    singles = (
        ("nsqd_healthy", "gauge", "1 while /ping answers OK.", int(broker.healthy)),
        ("nsqd_clock_ahead_seconds", "gauge", "How far the clock is known to be ahead; else 0.",
         broker.clock_leap.ahead_ns / limits.SECOND),
        ("nsqd_draining", "gauge", "1 while the node is drained.", int(broker.draining)),
        ("nsqd_connections", "gauge", "TCP clients.", len(protocol.sessions)),
        ("nsqd_connections_total", "counter", "TCP clients so far.", protocol.accepted_count),
        ("nsqd_http_connections", "gauge", "HTTP clients.", figures.http_connections),
        ("nsqd_publishes_refused_total", "counter", "Publishes that were refused or failed.",
         protocol.refused_count),
        ("nsqd_stages", "gauge", "Staged blocks that wait for a commit.",
         broker.commits.stages.count),
        ("nsqd_staged_bytes", "gauge", "Bytes of them.", broker.commits.stages.bytes),
        ("nsqd_commits_total", "counter", "Commits of staged blocks.", broker.commits.total),
        ("nsqd_commits_unfinished", "gauge", "Commits that wait for the disk to be finished.",
         broker.commits.unfinished_count),
        ("nsqd_disk_free_bytes", "gauge", "Free on the disk of the data path.",
         figures.disk["free_bytes"] or 0),
        ("nsqd_disk_size_bytes", "gauge", "Size of that disk.", figures.disk["size_bytes"] or 0),
        ("nsqd_sync_slowest_seconds", "gauge", "The slowest sync of the last minute.",
         figures.disk["sync_slowest_seconds"]),
        ("process_start_time_seconds", "gauge", "Unix time of the start.", figures.start_time),
        ("process_cpu_seconds_total", "counter", "CPU time, user and system.",
         round(time.process_time(), 3)),
        ("process_resident_memory_bytes", "gauge", "Resident memory.", resident_bytes()),
        ("process_open_fds", "gauge", "Open descriptors.", _open_descriptors()),
    )  # fmt: skip
    for single in singles:
        yield from _plain(*single)


def _plain(name: str, kind: str, text: str, value: Value, label: str = "") -> Iterator[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    yield f"{name}{{{label}}} {value}" if label else f"{name} {value}"


def _open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _syncs(times: SyncTimes) -> Iterator[str]:
    """A histogram: its buckets count everything up to their bound."""
    name = "nsqd_sync_seconds"
    yield f"# HELP {name} How long syncs of logs to the disk took."
    yield f"# TYPE {name} histogram"
    counts, total_ns = times.read()
    below = 0
    for bound_ns, count in zip((*limits.SYNC_BUCKETS_NS, None), counts, strict=True):
        below += count
        bound = "+Inf" if bound_ns is None else f"{bound_ns / limits.SECOND:g}"
        yield f'{name}_bucket{{le="{bound}"}} {below}'
    yield f"{name}_sum {total_ns / limits.SECOND}"
    yield f"{name}_count {below}"


def partition_parts(topics: list[Topic]) -> Iterator[bytes]:
    split = [(f'topic="{escape(one.name)}"', one) for one in topics if one.partition_count > 1]
    of_topics: Labelled = []
    of_channels: Labelled = []
    for label, topic in split:
        of_topics += _labelled(label, partitionrows.topic_rows(topic))
        yield b""  # a place to rest: so many rows take their time
        for name, channel in sorted(topic.channels.items()):
            label_too = f'{label},channel="{escape(name)}"'
            of_channels += _labelled(label_too, partitionrows.channel_rows(channel))
            yield b""
    yield from _samples(TOPIC_PARTITION_METRICS, of_topics)
    yield from _samples(CHANNEL_PARTITION_METRICS, of_channels)


def _labelled(label: str, rows: list[Row]) -> Labelled:
    return [(f'{label},partition="{row["partition"]}"', row) for row in rows]


def _samples(metrics: tuple[Metric[Row], ...], rows: Labelled) -> Iterator[bytes]:
    for metric in metrics:
        yield head(metric.name, metric.kind, metric.help)
        for label, row in rows:
            yield sample(metric.name, label, metric.read(row))
