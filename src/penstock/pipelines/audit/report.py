"""The findings of an audit: the report as values and as JSON.

`KINDS` says for each finding what it means and what to do about it, so the report can be read by
somebody who has never seen one.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from penstock.pipelines.times import moment


class FindingKind(NamedTuple):
    title: str
    meaning: str
    advice: str


KINDS: dict[str, FindingKind] = {
    "lost": FindingKind(
        "lost",
        "published, passed by the channel, and never delivered",
        "The messages are in the log. Look at one with `penstock topic peek`, and send them "
        "again with `penstock channel seek` to the lowest offset.",
    ),
    "corrupt": FindingKind(
        "lost, its bytes too",
        "never delivered, because its bytes in the log are corrupt: the channel stepped over it",
        "nsqd cannot send it again. `penstock log verify` says which file it is: look at the disk. "
        "What an archive has comes back with the pipeline `replay`; the publisher may have the "
        "rest.",
    ),
    "stuck": FindingKind(
        "stuck",
        "delivered long ago, and neither finished nor waiting for a time",
        "A consumer hangs, fails again and again, or nobody is connected. Look at the channel's "
        "consumers with `penstock stats`, and at one message with `penstock trace ID`.",
    ),
    "sent_again": FindingKind(
        "delivered twice",
        "delivered again although nobody had given it back",
        "Two consumers may have worked on it at once. Keep the trace of the message "
        "(`penstock trace ID`): this is a fault of the broker.",
    ),
    "sent_after_finish": FindingKind(
        "delivered after finish",
        "delivered again after a consumer had finished it",
        "Expected after a replay (`penstock channel seek`) and, for the last moments, after a "
        "power loss. Else a fault of the broker: keep the trace of the message.",
    ),
    "finished_twice": FindingKind(
        "finished twice",
        "finished again without having been delivered again",
        "A fault of the broker: keep the trace of the message.",
    ),
    "out_of_order": FindingKind(
        "out of order",
        "delivered for the first time after a message that stands behind it in the log",
        "Consumers that need the order may have applied an old state over a new one. Look at both "
        "with `penstock trace ID`.",
    ),
    "gap": FindingKind(
        "gap in the offsets",
        "offsets of the log are dense, and here some are missing",
        "In the archive: were messages deleted before they were archived? Then the archive said "
        "so when it met them. In the log itself: run `penstock log verify`.",
    ),
    "repeated_offset": FindingKind(
        "offset twice",
        "one offset has two rows",
        "With two ids the topic was deleted and made again, or two brokers wrote into one table: "
        "audit a span without that. With one id the row was stored twice.",
    ),
    "same_id": FindingKind(
        "id twice",
        "one message id stands at two offsets",
        "The message is in the log twice. Expected where a message was put back with its own id; "
        "else a fault of the broker.",
    ),
    "id_falls": FindingKind(
        "id falls",
        "a message has a lower id than the one before it in the log",
        "Expected in what was taken over from another log, which kept its ids. Else a fault of "
        "the broker: run `penstock log verify`.",
    ),
    "time_falls": FindingKind(
        "time falls",
        "a message was published before the one before it in the log",
        "Times rise along a log even when the clock steps back: a fault of the broker.",
    ),
    "trace_hole": FindingKind(
        "hole in the trace",
        "parts of the topic _trace are not in the trace table",
        "What is said about deliveries is not to be trusted here. Was _trace deleted by retention "
        "before the trace pipeline read it? Audit a span without the hole.",
    ),
    "trace_doubled": FindingKind(
        "trace twice",
        "events are in the trace table twice",
        "Two trace pipelines with different checkpoints write into this table. Make the table "
        "again with one of them.",
    ),
}
# Which part of the data a finding is about, when it is no channel.
TRACE, ARCHIVE, LOG = "the trace", "the archive", "the log"


@dataclass(frozen=True)
class Example:
    partition: int
    offset: int
    message_id: str | None
    time: datetime | None
    note: str  # what is wrong with this one


@dataclass(frozen=True)
class Finding:
    kind: str
    channel: str | None
    source: str  # the channel again, or TRACE, ARCHIVE, LOG
    count: int
    examples: tuple[Example, ...]
    partitions: dict[int, int]  # the count by partition

    @property
    def of_topic(self) -> bool:
        """Partitions and offsets are the topic's, and not those of `_trace`."""
        return self.kind not in ("trace_hole", "trace_doubled")


@dataclass(frozen=True)
class Waits:
    """Microseconds, percentiles by name."""

    percentiles: dict[str, float]
    most: float


@dataclass
class ChannelReport:
    name: str
    messages: int = 0  # traced publishes of the span
    judged: int = 0
    fates: dict[str, int] = field(default_factory=dict)  # of all `messages`
    sends: int = 0
    lost: int = 0
    stuck: int = 0
    repeated: int = 0
    waits: dict[str, Waits] = field(default_factory=dict)


@dataclass(frozen=True)
class PartitionReport:
    """Messages of the span. None: not looked at."""

    partition: int
    traced: int | None
    archived: int | None
    logged: int | None


@dataclass(frozen=True)
class Coverage:
    """The share of the topic that is traced."""

    traced: int  # publishes of the span that are in the trace
    messages: int | None  # of the topic in the span; None: nobody knows
    basis: str  # how `messages` is known

    @property
    def share(self) -> float | None:
        return min(1.0, self.traced / self.messages) if self.messages else None


@dataclass(frozen=True)
class Report:
    topic: str
    since: datetime
    until: datetime
    as_of: datetime
    settle_s: float
    stuck_s: float
    coverage: Coverage
    partitions: tuple[PartitionReport, ...]
    channels: tuple[ChannelReport, ...]
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    events: int
    took_s: float

    @property
    def clean(self) -> bool:
        return not self.findings

    @property
    def several(self) -> bool:
        """Partitions, so that it matters which one."""
        return any(one.partition > 0 for one in self.partitions)

    def as_json(self) -> str:
        shown: dict[str, Any] = asdict(self)
        shown["clean"] = self.clean
        shown["coverage"]["share"] = self.coverage.share
        return json.dumps(shown, ensure_ascii=False, default=moment)


def in_order(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """The gravest first."""
    ranks = {kind: rank for rank, kind in enumerate(KINDS)}
    return tuple(sorted(findings, key=lambda one: (ranks[one.kind], one.channel or "", one.source)))
