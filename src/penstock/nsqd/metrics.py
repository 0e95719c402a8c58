"""`/metrics` for Prometheus: docs/metrics.md names every one.

The form is Prometheus' text format 0.0.4. Each metric is a row of a table: name, help, and how
its value is read off a topic, a channel or the daemon. Counters end in `_total` and start at 0 with
the process; all others are gauges, but for one histogram.

Metrics of partitions have names of their own, so that a sum over a topic's or a channel's metric
counts nothing twice. Each is a figure of a row of /stats (`broker/stats.py`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from penstock import __version__, limits
from penstock.broker.channels.channel import Channel
from penstock.broker.stats import channel_parts, topic_parts
from penstock.broker.topics.topic import Topic
from penstock.net.sync import SyncTimes
from penstock.nsqd.stats import Row, disk_row, resident_bytes

if TYPE_CHECKING:
    from penstock.nsqd.cluster_state import ClusterState
    from penstock.nsqd.http.deps import Deps

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
Value = int | float
Of = TypeVar("Of")


def escape(value: str) -> str:
    """A label's value."""
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _head(name: str, text: str, kind: str = "gauge") -> str:
    kind = "counter" if name.endswith("_total") else kind
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n"


def _sample(name: str, label: str, value: Value) -> str:
    return f"{name}{{{label}}} {value}\n" if label else f"{name} {value}\n"


def _plain(name: str, text: str, value: Value, label: str = "") -> str:
    return _head(name, text) + _sample(name, label, value)


class Metric(NamedTuple, Generic[Of]):
    name: str
    help: str
    read: Callable[[Of], Value]


TOPIC_METRICS: tuple[Metric[Topic], ...] = (
    Metric("topic_messages_total", "Messages published.", attrgetter("message_count")),
    Metric("topic_message_bytes_total", "Bytes published.", attrgetter("message_bytes")),
    Metric("topic_depth", "Messages that no channel has been given yet.", attrgetter("depth")),
    Metric("topic_backend_depth", "Waiting messages that are on disk only.",
           attrgetter("backend_depth")),
    Metric("topic_paused", "1 while the topic is paused.", lambda topic: int(topic.paused)),
    Metric("topic_refusing", "1 while publishes are refused.",
           lambda topic: int(bool(topic.trouble))),
    Metric("topic_corrupt_messages", "Stored messages that are known to be corrupt.",
           lambda topic: sum(end - start for leader in topic.leaders
                             for start, end, _ in leader.replica.damaged)),
    Metric("topic_stored_bytes", "Bytes of log on disk.",
           lambda topic: sum(leader.log.bytes_stored for leader in topic.leaders)),
    Metric("topic_unsynced_bytes", "Bytes written and not yet synced.",
           lambda topic: sum(leader.log.unsynced_bytes for leader in topic.leaders)),
    Metric("topic_index_failures_total", "Indexes of its log that could not be written.",
           lambda topic: sum(leader.log.index_failures for leader in topic.leaders)),
    Metric("topic_expired_total", "Messages that grew too old.",
           attrgetter("age_bound.expired_count")),
)  # fmt: skip
CHANNEL_METRICS: tuple[Metric[Channel], ...] = (
    Metric("channel_messages_total", "Messages given to the channel.", attrgetter("message_count")),
    Metric("channel_deliveries_total", "Messages sent to consumers.", attrgetter("delivery_count")),
    Metric("channel_finishes_total", "Messages finished.", attrgetter("finish_count")),
    Metric("channel_requeues_total", "Messages requeued.", attrgetter("requeue_count")),
    Metric("channel_timeouts_total", "Messages that timed out.", attrgetter("timeout_count")),
    Metric("channel_expired_total", "Messages that grew too old.", attrgetter("expired_count")),
    Metric("channel_depth", "Messages that wait for a consumer.", attrgetter("depth")),
    Metric("channel_backend_depth", "Waiting messages that are on disk only.",
           attrgetter("backend_depth")),
    Metric("channel_in_flight", "Messages sent and not yet answered.", attrgetter("in_flight")),
    Metric("channel_deferred", "Messages whose delay has not ended.", attrgetter("delayed")),
    Metric("channel_clients", "Consumers.", lambda channel: len(channel.consumers)),
    Metric("channel_paused", "1 while the channel is paused.", lambda channel: int(channel.paused)),
    Metric("channel_skipped", "1 while the whole channel is skipped.",
           lambda channel: int(channel.skips.state.whole)),
    Metric("channel_oldest_age_seconds", "Oldest unfinished message.",
           lambda channel: channel.oldest_age_s or 0),
)  # fmt: skip
AUTO_ACKS = "nsqd_channel_auto_acks_total"
AUTO_ACK_REASONS: tuple[tuple[str, Callable[[Channel], Value]], ...] = (
    ("skipped", attrgetter("skips.count")),
    ("retried", attrgetter("auto_ack_count")),
)
LATENCY = "nsqd_channel_e2e_latency_seconds"  # over a sliding window


def _figure(name: str, help: str, key: str) -> Metric[Row]:
    """None counts as 0."""
    return Metric(name, help, lambda row: row[key] or 0)


TOPIC_PARTITION_METRICS: tuple[Metric[Row], ...] = (
    _figure("topic_partition_messages_total", "Messages published to the partition.",
            "message_count"),
    _figure("topic_partition_message_bytes_total", "Bytes published.", "message_bytes"),
    _figure("topic_partition_depth", "Messages that no channel has been given yet.", "depth"),
    _figure("topic_partition_start_offset", "The earliest offset that is stored.", "start_offset"),
    _figure("topic_partition_end_offset", "The offset after the newest message.", "committed_end"),
    _figure("topic_partition_stored_bytes", "Bytes of log on disk.", "stored_bytes"),
    Metric("topic_partition_refusing", "1 while the partition takes no publish.",
           lambda row: int(bool(row["refusal"]))),
    Metric("topic_partition_corrupt_messages", "Stored messages that are known to be corrupt.",
           lambda row: sum(one["to"] - one["from"] for one in row["damaged"])),
)  # fmt: skip
CHANNEL_PARTITION_METRICS: tuple[Metric[Row], ...] = (
    _figure("channel_partition_messages_total", "Messages given to the channel.", "message_count"),
    _figure("channel_partition_requeues_total", "Messages requeued.", "requeue_count"),
    _figure("channel_partition_timeouts_total", "Messages that timed out.", "timeout_count"),
    _figure("channel_partition_depth", "Messages that wait for a consumer.", "depth"),
    _figure("channel_partition_in_flight", "Messages sent and not yet answered.",
            "in_flight_count"),
    _figure("channel_partition_deferred", "Messages whose delay has not ended.", "deferred_count"),
    _figure("channel_partition_clients", "Consumers that read it.", "client_count"),
    _figure("channel_partition_oldest_age_seconds", "Oldest unfinished message.",
            "oldest_age_seconds"),
)  # fmt: skip

Labelled = list[tuple[str, Row]]


def metric_parts(deps: Deps) -> Iterator[bytes]:
    for text in _texts(deps):
        yield text.encode("utf-8", "replace")


def _texts(deps: Deps) -> Iterator[str]:
    yield from _process(deps)
    if deps.member is not None:
        yield from cluster_lines(deps.member.state)
    yield from _syncs(deps.sync_times)
    topics = [deps.broker.topics[name] for name in sorted(deps.broker.topics)]
    labelled = [(f'topic="{escape(topic.name)}"', topic) for topic in topics]
    channels = [
        (f'{label},channel="{escape(name)}"', topic.channels[name])
        for label, topic in labelled
        for name in sorted(topic.channels)
    ]
    yield from _samples(TOPIC_METRICS, labelled)
    yield from _samples(CHANNEL_METRICS, channels)
    yield _head(AUTO_ACKS, "Messages that nsqd finished by itself, by reason.")
    for label, channel in channels:
        for reason, count in AUTO_ACK_REASONS:
            yield _sample(AUTO_ACKS, f'{label},reason="{reason}"', count(channel))
    yield _head(LATENCY, "From publish to FIN, at --e2e-processing-latency-percentile.")
    for label, channel in channels:
        for percentile in channel.latency.row()["percentiles"] or ():
            seconds = percentile["value"] / limits.SECOND
            yield _sample(LATENCY, f'{label},quantile="{percentile["quantile"]:g}"', seconds)
    yield from partition_parts(labelled)


def cluster_lines(state: ClusterState) -> Iterator[str]:
    singles = (
        ("nsqd_under_replicated_partitions",
         "Partitions of the cluster with fewer replicas in sync than their topic wants.",
         state.under_replicated),
        ("nsqd_offline_partitions", "Partitions of the cluster without a leader.", state.offline),
        ("nsqd_leader_changes_total", "Leaderships that began on this node.", state.leader_changes),
        ("nsqd_replica_lag_messages",
         "Messages that the slowest follower lacks, of the partitions led here.", state.lag),
        ("nsqd_replica_lag_bytes", "The same in bytes of log, about.", state.lag_bytes),
        ("nsqd_cluster_clock_ahead_seconds",
         "How far the clock is ahead of most other nodes' clocks; negative: behind.",
         state.clock_ahead_ns / limits.SECOND),
    )  # fmt: skip
    for single in singles:
        yield _plain(*single)


def _process(deps: Deps) -> Iterator[str]:
    broker, protocol = deps.broker, deps.protocol
    disk = disk_row(deps.options.data_path, deps.sync_times)
    label = f'version="{escape(__version__)}"'
    yield _plain("nsqd_info", "Build information.", 1, label)
    singles = (
        ("nsqd_healthy", "1 while /ping answers OK.", int(broker.healthy)),
        ("nsqd_clock_ahead_seconds", "How far the clock is known to be ahead; else 0.",
         broker.clock_leap.ahead_ns / limits.SECOND),
        ("nsqd_draining", "1 while the node is drained.", int(broker.context.draining)),
        ("nsqd_connections", "TCP connections that are open.", len(protocol.sessions)),
        ("nsqd_connections_total", "TCP connections accepted.", protocol.accepted_count),
        ("nsqd_http_connections", "HTTP clients.", deps.http_connections()),
        ("nsqd_publishes_refused_total", "Publishes that were refused or failed.",
         protocol.refused_count),
        ("nsqd_stages", "Staged blocks that wait for a commit.", broker.commits.stages.count),
        ("nsqd_staged_bytes", "Bytes of staged blocks.", broker.commits.stages.bytes),
        ("nsqd_commits_total", "Commits of staged blocks.", broker.commits.total),
        ("nsqd_commits_unfinished", "Commits that wait for the disk to be finished.",
         broker.commits.unfinished_count),
        ("nsqd_disk_free_bytes", "Free bytes on the data path's disk.", disk["free_bytes"] or 0),
        ("nsqd_disk_size_bytes", "Size of that disk.", disk["size_bytes"] or 0),
        ("nsqd_sync_slowest_seconds", "The slowest sync of the last minute.",
         disk["sync_slowest_seconds"]),
        ("process_start_time_seconds", "Unix time of the start.", deps.identity.start_time),
        ("process_cpu_seconds_total", "CPU time, user and system.", round(time.process_time(), 3)),
        ("process_resident_memory_bytes", "Resident memory.", resident_bytes()),
        ("process_open_fds", "Open descriptors.", _open_descriptors()),
    )  # fmt: skip
    for single in singles:
        yield _plain(*single)


def _open_descriptors() -> int:
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def _syncs(times: SyncTimes) -> Iterator[str]:
    """A histogram: its buckets count everything up to their bound."""
    name = "nsqd_sync_seconds"
    yield _head(name, "How long syncs of logs to the disk took.", "histogram")
    counts, total_ns = times.read()
    below = 0
    for bound_ns, count in zip((*limits.SYNC_BUCKETS_NS, None), counts, strict=True):
        below += count
        bound = "+Inf" if bound_ns is None else f"{bound_ns / limits.SECOND:g}"
        yield _sample(f"{name}_bucket", f'le="{bound}"', below)
    yield _sample(f"{name}_sum", "", total_ns / limits.SECOND)
    yield _sample(f"{name}_count", "", below)


def partition_parts(topics: list[tuple[str, Topic]]) -> Iterator[str]:
    split = [(label, topic) for label, topic in topics if topic.partition_count > 1]
    of_topics: Labelled = []
    of_channels: Labelled = []
    for label, topic in split:
        of_topics += _labelled(label, topic_parts(topic))
        yield ""  # a place to rest: so many rows take their time
        for name, channel in sorted(topic.channels.items()):
            label_too = f'{label},channel="{escape(name)}"'
            of_channels += _labelled(label_too, channel_parts(channel))
            yield ""
    yield from _samples(TOPIC_PARTITION_METRICS, of_topics)
    yield from _samples(CHANNEL_PARTITION_METRICS, of_channels)


def _labelled(label: str, rows: list[Row]) -> Labelled:
    return [(f'{label},partition="{row["partition"]}"', row) for row in rows]


def _samples(metrics: tuple[Metric[Of], ...], measured: list[tuple[str, Of]]) -> Iterator[str]:
    for metric in metrics:
        name = f"nsqd_{metric.name}"
        yield _head(name, metric.help)
        for label, one in measured:
            yield _sample(name, label, metric.read(one))
