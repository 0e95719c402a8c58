"""The report of an audit: as values, as JSON, as words for the terminal and as a page.

`KINDS` says for each finding what it means and what to do about it, so the report can be read by
somebody who has never seen one.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

from penstock.command.terminal import BOLD, GREEN, RED, YELLOW, painted, short, table
from penstock.durations import rounded
from penstock.times import moment


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
    ranks = {kind: rank for rank, kind in enumerate(KINDS)}
    return tuple(sorted(findings, key=lambda one: (ranks[one.kind], one.channel or "", one.source)))


# --- one outline for the terminal and for the page ---


class Part(NamedTuple):
    kind: str  # title, verdict, fact, note, table, finding, end
    text: str
    label: str = ""
    lines: Sequence[str] = ()
    heads: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


_CHANNEL_HEADS = (
    "channel", "traced", "judged", "finished", "ended", "waiting", "out", "lost", "stuck",
    "p50", "p99", "slowest",
)  # fmt: skip
_PARTITION_HEADS = ("partition", "traced", "in the archive", "in the log", "findings")


def outline(report: Report) -> Iterator[Part]:
    yield Part("title", f"Audit of topic {report.topic}")
    yield Part("verdict", verdict(report))
    yield Part("fact", f"{moment(report.since)} to {moment(report.until)}", "published")
    yield Part("fact", f"up to {moment(report.as_of)}", "known")
    settle, stuck = rounded(report.settle_s * 1e6), rounded(report.stuck_s * 1e6)
    yield Part("fact", f"what is older than {settle} then", "lost")
    yield Part("fact", f"what was delivered more than {stuck} before", "stuck")
    yield Part("fact", _coverage(report.coverage), "coverage")
    yield from (Part("note", note, "note") for note in report.notes)
    if report.several:
        rows = _partition_rows(report)
        yield Part("table", "Partitions", heads=_PARTITION_HEADS, rows=rows)
    if report.channels:
        rows = [_channel_row(channel) for channel in report.channels]
        yield Part("table", "Channels", heads=_CHANNEL_HEADS, rows=rows)
    yield from (_finding(finding, report.several) for finding in report.findings)
    rate = short(report.events / report.took_s) if report.took_s else "-"
    took = f"({report.events:,} events in {report.took_s:.1f} s, {rate} events/s)"
    yield Part("end", took, verdict(report))


def verdict(report: Report) -> str:
    if report.clean:
        return "clean"
    total = sum(finding.count for finding in report.findings)
    return f"{total:,} findings of {len(report.findings)} kinds and sources"


def _coverage(coverage: Coverage) -> str:
    share = coverage.share
    if share is None:
        return f"{coverage.traced:,} publishes are in the trace, of an unknown number"
    return (
        f"{coverage.traced:,} of {coverage.messages:,} messages are in the trace "
        f"({share:.1%}; {coverage.basis}); only these are judged"
    )


def _channel_row(channel: ChannelReport) -> list[str]:
    total, fates = channel.waits.get("total"), channel.fates
    waiting = fates.get("unsent", 0) + fates.get("back", 0) + fates.get("delayed", 0)
    counts = (
        channel.messages, channel.judged, fates.get("finished", 0), fates.get("ended", 0),
        waiting, fates.get("out", 0), channel.lost, channel.stuck,
    )  # fmt: skip
    times = (total.percentiles["p50"], total.percentiles["p99"], total.most) if total else ()
    shown = [rounded(time) for time in times] or [""] * 3
    return [channel.name, *(f"{count:,}" for count in counts), *shown]


def _partition_rows(report: Report) -> list[list[str]]:
    about_topic = [finding for finding in report.findings if finding.of_topic]
    rows = []
    for one in report.partitions:
        count = sum(finding.partitions.get(one.partition, 0) for finding in about_topic)
        known = (one.traced, one.archived, one.logged)
        cells = ["-" if number is None else f"{number:,}" for number in known]
        rows.append([str(one.partition), *cells, f"{count:,}"])
    return rows


def _finding(finding: Finding, several: bool) -> Part:
    kind = KINDS[finding.kind]
    where = f"channel {finding.channel}" if finding.channel else finding.source
    if several and finding.of_topic:
        named = (f"{number} ({count:,})" for number, count in finding.partitions.items())
        where = f"{where}, partition {', '.join(named)}"
    lines = [_example(one, several and finding.of_topic) for one in finding.examples]
    more = finding.count - len(lines)
    if more > 0 and lines:
        lines.append(f"and {more:,} more")
    head = f"{finding.count:,} {kind.title}, {where}"
    return Part("finding", head, kind.meaning, [*lines, kind.advice])


def _example(example: Example, several: bool) -> str:
    name = f" {example.message_id}" if example.message_id else ""
    time = f" at {moment(example.time)}" if example.time else ""
    log = f"partition {example.partition}, " if several else ""
    return f"{log}offset {example.offset}{name}{time}: {example.note}"


# --- for a terminal ---


def lines(report: Report) -> Iterator[str]:
    for part in outline(report):
        if part.kind in ("table", "finding", "end"):
            yield ""
        if part.kind == "title":
            yield painted(part.text, BOLD)
        elif part.kind in ("fact", "note"):
            shown = f"{part.label:<11}{part.text}"
            yield painted(shown, YELLOW) if part.kind == "note" else shown
        elif part.kind == "table":
            yield from table(part.heads, part.rows)
        elif part.kind == "finding":
            yield f"{painted(part.text, RED)}: {part.label}"
            yield from (f"  {line}" for line in part.lines)
        elif part.kind == "end":
            yield f"{painted(part.label, GREEN if report.clean else RED)} {part.text}"


# --- as a page ---
#
# It needs nothing else: no script, no font, no picture from elsewhere. Everything that comes from
# data (topic, channel and client names are up to their users) is escaped.

_STYLE = Path(__file__).with_name("report.css")


def page(report: Report) -> str:
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(f'Audit of {report.topic}')}</title>",
        f"<style>{_STYLE.read_text('utf-8')}</style></head><body>",
        *(line for part in outline(report) for line in _shown(part, report.clean)),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _shown(part: Part, clean: bool) -> Iterator[str]:
    text, label = escape(part.text), escape(part.label)
    if part.kind == "title":
        yield f"<h1>{text}</h1>"
    elif part.kind == "verdict":
        yield f'<p class="verdict{" clean" if clean else ""}">{text}</p>'
    elif part.kind in ("fact", "note"):
        yield f'<p class="{part.kind}"><b>{label}</b> {text}</p>'
    elif part.kind == "table":
        yield f"<h2>{text}</h2>"
        rows = [_row("th", part.heads), *(_row("td", row) for row in part.rows)]
        yield f'<div class="scroll"><table>{"".join(rows)}</table></div>' if part.rows else ""
    elif part.kind == "finding":
        shown = "".join(f"<p>{escape(line)}</p>" for line in part.lines)
        yield f'<div class="finding"><h3>{text}</h3><p>{label}.</p>{shown}</div>'
    else:
        yield f'<p class="faint">{label} {text}</p>'


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
