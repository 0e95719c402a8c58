"""Charts of the audit's page: inline SVG, coloured by the page's own classes.

Every bar has a `title`, which browsers show under the pointer. Texts are escaped here; nothing
comes from elsewhere.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape

from penstock.command.terminal import short
from penstock.pipelines.audit.report import ChannelReport, percentile
from penstock.pipelines.audit.rules import SLOTS, bar_us
from penstock.pipelines.lifecycles.lives import PERCENTS
from penstock.pipelines.times import duration

_WIDTH, _LEFT, _RIGHT = 760, 60, 10
_INNER = _WIDTH - _LEFT - _RIGHT
_TOP, _TALL = 10.0, 100.0  # of what is drawn between the lines
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
    """Each message in one part: lost and stuck ones are taken out of their other outcome."""
    parts = dict(channel.fates)
    parts["unsent"] = parts.get("unsent", 0) - channel.lost
    stuck = channel.stuck
    for name in ("back", "out"):  # a stuck one is in one of these
        taken = min(stuck, parts.get(name, 0))
        parts[name] = parts.get(name, 0) - taken
        stuck -= taken
    return {**parts, "lost": channel.lost, "stuck": channel.stuck}


def fates(channels: Sequence[ChannelReport]) -> str:
    """One bar a channel: the outcomes of its messages. A fault is drawn, however rare it is."""
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
    width, top = _INNER / SLOTS, 30.0
    parts = _scale(["0", short(most)], top)
    for index, slot in sorted(channel.slots.items()):
        x, when, count = _LEFT + index * width, slot_names[index], slot["messages"]
        title = f"{when}: {count:,} published, {slot['finished']:,} of them finished"
        parts.append(_column(x, width, count / most, title, top))
        for kind, y in (("lost", 8), ("stuck", 18)):
            if slot[kind]:
                title = f"{when}: {slot[kind]:,} {kind}"
                parts.append(_rect(x, y, max(width - 1, 3), 8, kind, title))
    parts.append(_text(_LEFT, top + _TALL + 16, slot_names[0]))
    parts.append(_text(_WIDTH - _RIGHT, top + _TALL + 16, slot_names[-1], "end"))
    return _svg(top + _TALL + 22, f"Publishes over time, channel {channel.name}", parts)


def histogram(channel: ChannelReport) -> str:
    """Numbers of messages by the time from publish to finish; each bar is a fifth slower."""
    bars: Counter[int] = Counter()
    for slot in channel.slots.values():
        bars.update(slot["bars"] or {})
    if not bars:
        return ""
    first, count, most = min(bars), max(bars) - min(bars) + 1, max(bars.values())
    parts = _scale(["0", short(most)])
    for bar, amount in sorted(bars.items()):
        title = f"{duration(bar_us(bar))} to {duration(bar_us(bar + 1))}: {amount:,}"
        x = _LEFT + (bar - first) * _INNER / count
        parts.append(_column(x, _INNER / count, amount / most, title))
    for tick in range(_TICKS + 1):
        share = tick / _TICKS
        anchor = ("start", "middle", "end")[(tick > 0) + (tick == _TICKS)]
        name = duration(bar_us(round(first + count * share)))
        parts.append(_text(_LEFT + _INNER * share, _TOP + _TALL + 16, name, anchor))
    return _svg(_TOP + _TALL + 22, f"From publish to finish, channel {channel.name}", parts)


def latency_over_time(channel: ChannelReport, slot_names: Sequence[str]) -> str:
    """p50 and p99 of the time from publish to finish, on a logarithmic scale."""
    known = {index: slot["bars"] for index, slot in sorted(channel.slots.items()) if slot["bars"]}
    points = {
        name: [(index, percentile(bars, PERCENTS[name])) for index, bars in known.items()]
        for name in ("p50", "p99")
    }
    found = [bar for line in points.values() for _, bar in line]
    if not found:
        return ""
    low, high = min(found) - 1, max(found) + 1
    ticks = [bar_us(round(low + (high - low) * tick / _TICKS)) for tick in range(_TICKS + 1)]
    parts = _scale([duration(max(us, 0)) for us in ticks])
    for name, line in points.items():
        way, spots = "", ""
        for index, bar in line:
            x = _LEFT + (index + 0.5) * _INNER / SLOTS
            y = _TOP + _TALL * (high - bar) / (high - low)
            title = escape(f"{slot_names[index]}: {name} {duration(bar_us(bar))}")
            way += f"{x:.1f},{y:.1f} "
            spots += f'<circle class="{name}" cx="{x:.1f}" cy="{y:.1f}" r="3">'
            spots += f"<title>{title}</title></circle>"
        parts.append(f'<polyline class="{name}" points="{way}"/>{spots}')
    return _svg(_TOP + _TALL + 8, f"Latency over time, channel {channel.name}", parts)


def _column(x: float, width: float, share: float, title: str, top: float = _TOP) -> str:
    tall = _TALL * share
    return _rect(x, top + _TALL - tall, max(width - 1, 1), tall, "finished", title)


def _scale(names: Sequence[str], top: float = _TOP) -> list[str]:
    """Lines at even heights, named from below."""
    parts = []
    for number, name in enumerate(names):
        y = top + _TALL - _TALL * number / (len(names) - 1)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y}" y2="{y}"/>')
        parts.append(_text(_LEFT - 6, y + 4, name, "end"))
    return parts
