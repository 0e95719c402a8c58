"""What an operator may choose about the broker. `nsqd/options.py` fills it from flags, whose bounds
keep senseless values out."""

from dataclasses import dataclass
from typing import Literal

from penstock import limits

Durability = Literal["disk", "os"]
DURABILITIES: tuple[Durability, ...] = ("disk", "os")


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    node_id: int = 0
    durability: Durability = "disk"  # topics may choose otherwise
    tail_memory_bytes_max: int = limits.TAIL_MEMORY_BYTES_MAX
    segment_bytes_max: int = limits.SEGMENT_BYTES_MAX
    segment_age_max_ns: int = limits.SEGMENT_AGE_MAX_NS
    retain_age_ns: int = limits.RETAIN_AGE_NS
    retain_bytes: int = limits.RETAIN_BYTES
    default_partitions: int = 1  # of topics that are made without a number
    trace_rate: float = 0.0  # of messages whose life is traced; topics and channels may choose
    max_depth: int = 0  # messages that a topic may hold; 0: no bound
    max_age_ns: int = 0  # how old an unfinished message may get; 0: no bound
    auto_ack_attempts: int = 0  # what was sent more often, and is older, is done; 0: off
    auto_ack_age_ns: int = 0  # 0: off
    waiting_bytes_max: int = limits.WAITING_BYTES_MAX  # of publishes, in a partition; 0: no bound
    idle_topic_delete_ns: int = 0  # without publishes and consumers; 0: never
    idle_channel_delete_ns: int = 0  # without consumers; 0: never
    idle_delete_backlog: bool = False  # also those that hold messages
    sync_every_count: int = limits.SYNC_EVERY_COUNT
    sync_timeout_ns: int = limits.SYNC_TIMEOUT_NS
    disk_free_bytes_min: int = limits.DISK_FREE_BYTES_MIN
    mem_queue_size: int = limits.EPHEMERAL_DEPTH_MAX
    latency_quantiles: tuple[float, ...] = ()  # none: latency is not measured
    latency_window_ns: int = limits.LATENCY_WINDOW_NS
    message_timeout_max_ns: int = limits.MESSAGE_TIMEOUT_MAX_NS  # TOUCH goes no further
    journal_bytes_max: int = limits.JOURNAL_BYTES_MAX
