"""`/metrics` by partition, of topics with several: docs/metrics.md.

These have names of their own, so that a sum over a topic's or a channel's metric counts nothing
twice. Each is a figure of a row of /stats (`broker/partitionrows.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.broker import partitionrows
from penstock.broker.topic import Topic
from penstock.nsqd.exposition import Value, escape, head, sample
from penstock.nsqd.stats import Row


class PartitionMetric(NamedTuple):
    name: str
    kind: str
    help: str
    read: Callable[[Row], Value]


def _figure(name: str, kind: str, help: str, key: str) -> PartitionMetric:
    """None is told as 0."""
    return PartitionMetric(name, kind, help, lambda row: row[key] or 0)


TOPIC_METRICS = (
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
    PartitionMetric("topic_partition_refusing", "gauge", "1 while the partition takes no publish.",
                    lambda row: int(bool(row["refusal"]))),
    PartitionMetric("topic_partition_corrupt_messages", "gauge",
                    "Stored messages that are known to be corrupt.",
                    lambda row: sum(one["to"] - one["from"] for one in row["damaged"])),
)  # fmt: skip
CHANNEL_METRICS = (
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

_Labelled = list[tuple[str, Row]]


def partition_parts(topics: list[Topic]) -> Iterator[bytes]:
    split = [(f'topic="{escape(one.name)}"', one) for one in topics if one.partition_count > 1]
    of_topics: _Labelled = []
    of_channels: _Labelled = []
    for label, topic in split:
        of_topics += _labelled(label, partitionrows.topic_rows(topic))
        yield b""  # a place to rest: so many rows take their time
        for name, channel in sorted(topic.channels.items()):
            label_too = f'{label},channel="{escape(name)}"'
            of_channels += _labelled(label_too, partitionrows.channel_rows(channel))
            yield b""
    yield from _samples(TOPIC_METRICS, of_topics)
    yield from _samples(CHANNEL_METRICS, of_channels)


def _labelled(label: str, rows: list[Row]) -> _Labelled:
    return [(f'{label},partition="{row["partition"]}"', row) for row in rows]


def _samples(metrics: tuple[PartitionMetric, ...], rows: _Labelled) -> Iterator[bytes]:
    for metric in metrics:
        yield head(metric.name, metric.kind, metric.help)
        for label, row in rows:
            yield sample(metric.name, label, metric.read(row))
