"""The audit as one page that needs nothing else: no script, no font, no picture from elsewhere.

It follows the reader's choice of light or dark. Everything that comes from data (topic, channel and
client names are up to their users) is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from penstock.pipelines.audit.outline import Part, outline
from penstock.pipelines.audit.report import Report

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
th:first-child, td:first-child { text-align: left }
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
    title = escape(f"Audit of {report.topic}")
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{title}</title><style>{_STYLE}</style></head><body>",
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
        yield from _table(part)
    elif part.kind == "finding":
        lines = "".join(f"<p>{escape(line)}</p>" for line in part.lines)
        yield f'<div class="finding"><h3>{text}</h3><p>{label}.</p>{lines}</div>'
    elif part.kind == "chart":
        yield f"<h3>{label}</h3>{part.text}" if label else part.text
    else:
        yield f'<p class="faint">{label} {text}</p>'


def _table(part: Part) -> Iterable[str]:
    if part.rows:
        yield '<div class="scroll"><table><tr>'
        yield "".join(f"<th>{escape(head)}</th>" for head in part.heads) + "</tr>"
        for row in part.rows:
            yield f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>"
        yield "</table></div>"
