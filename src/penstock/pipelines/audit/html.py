"""The audit as one page that needs nothing else: no script, no font, no picture from elsewhere.

It follows the reader's choice of light or dark. Everything that comes from data (topic, channel and
client names are up to their users) is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from html import escape

from penstock.pipelines.audit import charts
from penstock.pipelines.audit.report import (
    CHANNEL_HEADS,
    KINDS,
    PARTITION_HEADS,
    ChannelReport,
    Finding,
    Report,
    channel_row,
    coverage_line,
    partition_rows,
    verdict,
    where,
)
from penstock.pipelines.audit.rules import SLOTS
from penstock.pipelines.moments import duration, moment

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --ink: #1b1f24; --faint: #6a737d; --rule: #d8dee4;
  --panel: #f6f8fa; --good: #1a7f37; --bad: #cf222e; --warn: #9a6700; --main: #2f6feb;
  --soft: #8db4f8; --wait: #b8bec6; --hold: #d4a72c; }
@media (prefers-color-scheme: dark) { :root { --back: #0d1117; --ink: #e6edf3; --faint: #8b949e;
  --rule: #30363d; --panel: #161b22; --good: #3fb950; --bad: #f85149; --warn: #d29922;
  --main: #4c8dff; --soft: #2c4f8f; --wait: #4a525b; --hold: #9e7a1a; } }
* { box-sizing: border-box }
body { margin: 0 auto; max-width: 60rem; padding: 1.5rem; background: var(--back);
  color: var(--ink); font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.5rem; margin: 0 } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
h3 { font-size: 1rem; margin: 1.2rem 0 .3rem }
p { margin: .3rem 0 } .faint { color: var(--faint) } code { font: 13px ui-monospace, monospace }
.verdict { display: inline-block; margin: .8rem 0; padding: .3rem .8rem; border-radius: .4rem;
  color: #fff; background: var(--bad); font-weight: 600 }
.clean { background: var(--good) } .note { color: var(--warn) }
.scroll { overflow-x: auto }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--rule); text-align: right;
  white-space: nowrap }
th:first-child, td:first-child, .left td, .left th { text-align: left }
.finding { margin: .8rem 0; padding: .8rem 1rem; background: var(--panel);
  border-left: 4px solid var(--bad); border-radius: .3rem }
svg { width: 100%; height: auto; margin: .3rem 0 }
svg text { fill: var(--faint); font-size: 11px }
rect.finished { fill: var(--main) } rect.ended { fill: var(--soft) }
rect.delayed, rect.unsent { fill: var(--wait) } rect.out, rect.back { fill: var(--hold) }
rect.lost { fill: var(--bad) } rect.stuck { fill: var(--warn) }
line.grid { stroke: var(--rule) }
polyline { fill: none; stroke-width: 2 }
polyline.p50 { stroke: var(--main) } circle.p50 { fill: var(--main) }
polyline.p99 { stroke: var(--warn) } circle.p99 { fill: var(--warn) }
"""


def page(report: Report) -> str:
    topic = escape(report.topic)
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Audit of {topic}</title><style>{_STYLE}</style></head><body>",
        f"<h1>Audit of topic {topic}</h1>",
        f'<p class="verdict{" clean" if report.clean else ""}">{escape(verdict(report))}</p>',
        *_facts(report),
        *_partitions(report),
        *_findings(report.findings, report.several),
        *_channels(report),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _facts(report: Report) -> Iterable[str]:
    yield f"<p>Published {moment(report.since)} to {moment(report.until)}.</p>"
    yield (
        f"<p>Known up to {moment(report.as_of)}. Lost is what is older than "
        f"{duration(report.settle_s * 1e6)} then; stuck what was delivered more than "
        f"{duration(report.stuck_s * 1e6)} before.</p>"
    )
    yield f"<p>{escape(coverage_line(report.coverage))}.</p>"
    yield from (f'<p class="note">{escape(note)}.</p>' for note in report.notes)
    yield f'<p class="faint">{report.events:,} events read in {report.took_s:.1f} s.</p>'


def _partitions(report: Report) -> Iterable[str]:
    if report.several:
        yield "<h2>Partitions</h2>"
        yield from _table(PARTITION_HEADS, partition_rows(report))


def _findings(findings: Sequence[Finding], several: bool) -> Iterable[str]:
    yield "<h2>Findings</h2>"
    if not findings:
        yield "<p>None.</p>"
    for finding in findings:
        kind = KINDS[finding.kind]
        place = where(finding, several)
        yield '<div class="finding">'
        yield f"<h3>{finding.count:,} {kind.title}, {escape(place)}</h3>"
        yield f"<p>{escape(kind.meaning)}.</p><p>{escape(kind.advice)}</p>"
        yield from _examples(finding)
        yield "</div>"


def _examples(finding: Finding) -> Iterable[str]:
    rows = [
        [
            f"<code>{example.partition}</code>",
            f"<code>{example.offset}</code>",
            f"<code>{escape(example.message_id or '')}</code>",
            moment(example.time),
            escape(example.note),
        ]
        for example in finding.examples
    ]
    yield from _table(("partition", "offset", "message id", "time", "what"), rows, "left")
    more = finding.count - len(rows)
    if more > 0:
        yield f'<p class="faint">and {more:,} more</p>'


def _channels(report: Report) -> Iterable[str]:
    if not report.channels:
        return
    yield "<h2>Channels</h2>"
    yield charts.fates(report.channels)
    rows = [[escape(cell) for cell in channel_row(channel)] for channel in report.channels]
    yield from _table(CHANNEL_HEADS, rows)
    names = slot_names(report)
    for channel in report.channels:
        yield f"<h2>Channel {escape(channel.name)}</h2>"
        yield from _latencies(channel)
        yield "<h3>Published over time; lost (red) and stuck (yellow) above</h3>"
        yield charts.over_time(channel, names)
        if channel.histogram:
            yield "<h3>From publish to finish</h3>"
            yield charts.histogram(channel)
            yield "<h3>The same over time: half of the messages (blue), 99 of 100 (yellow)</h3>"
            yield charts.latency_over_time(channel, names)


_WAIT_NAMES = {
    "first_sent": "publish to first delivery",
    "handling": "first delivery to finish",
    "total": "publish to finish",
}


def _latencies(channel: ChannelReport) -> Iterable[str]:
    rows = []
    for name, words in _WAIT_NAMES.items():
        waits = channel.waits.get(name)
        if waits is not None:
            cells = [duration(us) for us in waits.percentiles.values()]
            rows.append([words, *cells, duration(waits.most)])
    if rows:
        yield from _table(("", "p50", "p90", "p99", "p99.9", "slowest"), rows)


def slot_names(report: Report) -> list[str]:
    step = (report.until - report.since) / SLOTS
    fine = step < timedelta(minutes=1)
    pattern = "%H:%M:%S.%f" if fine else "%m-%d %H:%M"
    return [
        (report.since + place * step).strftime(pattern)[: -4 if fine else None]
        for place in range(SLOTS)
    ]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], kind: str = "") -> Iterable[str]:
    """Cells are HTML already."""
    yield f'<div class="scroll"><table class="{kind}"><tr>'
    yield "".join(f"<th>{escape(head)}</th>" for head in heads) + "</tr>"
    yield from (f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    yield "</table></div>"
