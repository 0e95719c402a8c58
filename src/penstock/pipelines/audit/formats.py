"""The parts of the report: one outline for the terminal and for the page.

The page needs nothing else: no script, no font, no picture from elsewhere. Everything that comes
from data (topic, channel and client names are up to their users) is escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import NamedTuple

from penstock.command.terminal import BOLD, GREEN, RED, YELLOW, painted, short, table
from penstock.pipelines.audit.report import KINDS, ChannelReport, Coverage, Example, Finding, Report
from penstock.pipelines.lifecycles.lives import WAITS
from penstock.pipelines.times import duration, moment


class Part(NamedTuple):
    """`kind` is the form. Chapters are for the page."""

    kind: str  # title, verdict, fact, note, table, finding, chapter, end
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
_WAIT_HEADS = ("", "p50", "p90", "p99", "p99.9", "slowest")
_WAIT_NAMES = ("publish to first delivery", "first delivery to finish", "publish to finish")


def outline(report: Report) -> Iterator[Part]:
    yield Part("title", f"Audit of topic {report.topic}")
    yield Part("verdict", verdict(report))
    yield Part("fact", f"{moment(report.since)} to {moment(report.until)}", "published")
    yield Part("fact", f"up to {moment(report.as_of)}", "known")
    settle, stuck = duration(report.settle_s * 1e6), duration(report.stuck_s * 1e6)
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
    yield from map(_chapter, report.channels)
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
        return f"{coverage.traced:,} publishes are in the trace; nobody knows of how many"
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
    shown = [duration(time) for time in times] or [""] * 3
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


# --- a channel, on the page ---


def _chapter(channel: ChannelReport) -> Part:
    known = zip(_WAIT_NAMES, (channel.waits.get(name) for name in WAITS), strict=True)
    rows = [
        [words, *map(duration, waits.percentiles.values()), duration(waits.most)]
        for words, waits in known
        if waits is not None
    ]
    return Part("chapter", f"Channel {channel.name}", heads=_WAIT_HEADS, rows=rows)


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
    elif part.kind in ("table", "chapter"):
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
