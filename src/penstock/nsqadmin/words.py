"""Numbers, times and states in the words of the pages."""

import datetime
from collections.abc import Iterable

UNKNOWN = ("unknown", "this nsqd does not tell")  # what the official one has no number for


def number(value: float) -> str:
    """1234 as 1,234, and 1234567 as 1.23 M."""
    for size, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if abs(value) >= size:
            return f"{value / size:.2f} {sign}"
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """Messages a second."""
    return f"{few(value)}/s"


def few(value: float) -> str:
    """With a tenth, below ten."""
    return f"{value:.1f}" if 0 < value < 9.95 else number(value)


def size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if abs(count) < 1000:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def span(seconds: float) -> str:
    """A length of time, in its two largest units."""
    whole = round(seconds)
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    parts = []
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}")
        if len(parts) == 2:
            break
    return " ".join(parts)


def fine(seconds: float) -> str:
    """The same, down to microseconds: as exact as it matters."""
    if seconds >= 60:
        return span(seconds)
    for unit, length in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= length:
            return f"{seconds / length:.3g} {unit}"
    return f"{seconds * 1e6:.1g} µs" if seconds else "0 s"


def clock(time_s: float) -> str:
    """A time, in UTC as in the logs."""
    found = datetime.datetime.fromtimestamp(time_s, datetime.UTC)
    return found.strftime("%Y-%m-%d %H:%M:%S UTC")


def aged(stale_s: float) -> str:
    """A note on outdated figures; "" for new ones."""
    return f"{span(stale_s)} old" if stale_s else ""


def count(value: int, one: str, many: str = "") -> str:
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def listed(names: Iterable[str], most: int) -> str:
    """Separated by commas, not too many."""
    found = list(names)
    shown, rest = ", ".join(found[:most]), len(found) - most
    return f"{shown} and {rest:,} more" if rest > 0 else shown


def wait(messages: int) -> str:
    return f"{count(messages, 'message')} {'waits' if messages == 1 else 'wait'}"


def moment(time_ns: int) -> str:
    """The same from nanoseconds, with milliseconds."""
    found = datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.UTC)
    return f"{found:%Y-%m-%d} {clock_of(time_ns)} UTC"


def clock_of(time_ns: int) -> str:
    """Its time of day."""
    found = datetime.datetime.fromtimestamp(time_ns // 10**9, datetime.UTC)
    return f"{found:%H:%M:%S}.{time_ns // 10**6 % 1000:03d}"
