"""Charts of the audit's page: inline SVG, coloured by the page's own classes.

Every bar has a `title`, which browsers show under the pointer. Texts are escaped here; nothing
comes from elsewhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from penstock.command.terminal import short
from penstock.pipelines.audit.report import ChannelReport
from penstock.pipelines.audit.rules import SLOTS, bar_us
from penstock.pipelines.moments import duration

_WIDTH, _LEFT, _RIGHT = 760, 60, 10
_INNER = _WIDTH - _LEFT - _RIGHT
_TICKS = 4

# What became of messages, in the order of the bars: (class, words).
PARTS = (
    ("finished", "finished"),
    ("ended", "ended: dead-lettered, skipped, filtered, emptied"),
    ("delayed", "waits for its time"),
    ("unsent", "not sent yet"),
    ("out", "with a consumer"),
    ("back", "given back, waits"),
    ("stuck", "stuck"),
    ("lost", "lost"),
)


def _svg(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {_WIDTH} {height:g}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str) -> str:
    return (
        f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" '
        f'height="{max(height, 0):.1f}"><title>{escape(title)}</title></rect>'
    )


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def parts_of(channel: ChannelReport) -> dict[str, int]:
    """Every message in one part: what is lost or stuck is taken out of its fate."""
    parts = dict(channel.fates)
    parts["unsent"] = parts.get("unsent", 0) - channel.lost
    stuck = channel.stuck
    for name in ("back", "out"):  # a stuck one is in one of these
        taken = min(stuck, parts.get(name, 0))
        parts[name] = parts.get(name, 0) - taken
        stuck -= taken
    return {**parts, "lost": channel.lost, "stuck": channel.stuck}


def fates(channels: Sequence[ChannelReport]) -> str:
    """One bar a channel: what became of its messages. A fault is drawn, however rare it is."""
    shown = []
    for row, channel in enumerate(channels):
        y = 12 + 44 * row
        shown.append(_text(0, y, f"{channel.name}: {channel.messages:,} traced messages"))
        shown += _stacked(parts_of(channel), y + 6)
    return _svg(44 * len(channels) + 4, "What became of the messages", shown)


def _stacked(parts: Mapping[str, int], y: float) -> list[str]:
    total = sum(parts.values()) or 1
    present = [(kind, words, parts.get(kind, 0)) for kind, words in PARTS if parts.get(kind, 0)]
    widths = [max(3.0, _WIDTH * count / total) for _, _, count in present]
    scale = _WIDTH / sum(widths) if widths else 1.0
    x, bars = 0.0, []
    for (kind, words, count), width in zip(present, widths, strict=True):
        bars.append(_rect(x, y, width * scale, 20, kind, f"{words}: {count:,}"))
        x += width * scale
    return bars


def over_time(channel: ChannelReport, slot_names: Sequence[str]) -> str:
    """Publishes by the time of day, with lost and stuck ones above them as marks."""
    most = max((slot["messages"] for slot in channel.slots.values()), default=0) or 1
    bottom, height, width = 130.0, 100.0, _INNER / SLOTS
    parts = _scale(["0", short(most)], bottom, height)
    for place, slot in sorted(channel.slots.items()):
        x = _LEFT + place * width
        tall = height * slot["messages"] / most
        when = slot_names[place]
        title = f"{when}: {slot['messages']:,} published, {slot['finished']:,} of them finished"
        parts.append(_rect(x, bottom - tall, width - 1, tall, "finished", title))
        for kind, y in (("lost", 8), ("stuck", 18)):
            if slot[kind]:
                parts.append(
                    _rect(x, y, max(width - 1, 3), 8, kind, f"{when}: {slot[kind]:,} {kind}")
                )
    parts.append(_text(_LEFT, bottom + 16, slot_names[0]))
    parts.append(_text(_WIDTH - _RIGHT, bottom + 16, slot_names[-1], "end"))
    return _svg(bottom + 22, f"Publishes over time, channel {channel.name}", parts)


def histogram(channel: ChannelReport) -> str:
    """How many messages took how long from publish to finish; each bar is a fifth slower."""
    bars = channel.histogram
    if not bars:
        return ""
    first, last = min(bars), max(bars)
    width, most = _INNER / (last - first + 1), max(bars.values())
    bottom, height = 110.0, 100.0
    parts = _scale(["0", short(most)], bottom, height)
    for bar, count in sorted(bars.items()):
        tall = height * count / most
        title = f"{duration(bar_us(bar))} to {duration(bar_us(bar + 1))}: {count:,}"
        x = _LEFT + (bar - first) * width
        parts.append(_rect(x, bottom - tall, max(width - 1, 1), tall, "finished", title))
    for share in range(_TICKS + 1):
        x = _LEFT + _INNER * share / _TICKS
        at = first + (last - first + 1) * share / _TICKS
        anchor = ("start", "middle", "end")[(share > 0) + (share == _TICKS)]
        parts.append(_text(x, bottom + 16, duration(bar_us(round(at))), anchor))
    return _svg(bottom + 22, f"From publish to finish, channel {channel.name}", parts)


def latency_over_time(channel: ChannelReport, slot_names: Sequence[str]) -> str:
    """p50 and p99 of the time from publish to finish, on a logarithmic scale."""
    lines = {"p50": 0.5, "p99": 0.99}
    points = {
        name: [(slot, _percentile(bars, share)) for slot, bars in sorted(channel.slot_bars.items())]
        for name, share in lines.items()
    }
    found = [bar for line in points.values() for _, bar in line]
    if not found:
        return ""
    low, high = min(found) - 1, max(found) + 1
    bottom, height = 110.0, 100.0
    ticks = [bar_us(round(low + (high - low) * tick / _TICKS)) for tick in range(_TICKS + 1)]
    parts = _scale([duration(max(us, 0)) for us in ticks], bottom, height)
    for name, line in points.items():
        spots = [
            (_LEFT + (place + 0.5) * _INNER / SLOTS, bottom - height * (bar - low) / (high - low))
            for place, bar in line
        ]
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        parts.append(f'<polyline class="{name}" points="{way}"/>')
        for (x, y), (place, bar) in zip(spots, line, strict=True):
            title = escape(f"{slot_names[place]}: {name} {duration(bar_us(bar))}")
            place_of_it = f'class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="3"'
            parts.append(f"<circle {place_of_it}><title>{title}</title></circle>")
    return _svg(bottom + 8, f"Latency over time, channel {channel.name}", parts)


def _percentile(bars: Mapping[int, int], share: float) -> int:
    wanted, passed = share * sum(bars.values()), 0
    for bar in sorted(bars):
        passed += bars[bar]
        if passed >= wanted:
            return bar
    return max(bars)


def _scale(names: Sequence[str], bottom: float, height: float) -> list[str]:
    """Lines at even heights, named from below."""
    parts = []
    for number, name in enumerate(names):
        y = bottom - height * number / (len(names) - 1)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_text(_LEFT - 6, y + 4, name, "end"))
    return parts
