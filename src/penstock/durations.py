"""Durations as Go writes and reads them: `300ms`, `1.5h`, `1h30m`, `2s`."""

import re
from decimal import Decimal

from penstock import limits

_UNITS_NS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # micro sign
    "μs": 1_000,  # Greek mu
    "ms": limits.MS,
    "s": limits.SECOND,
    "m": 60 * limits.SECOND,
    "h": 3600 * limits.SECOND,
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
_WHOLE = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
DURATION_NS_MAX = (1 << 63) - 1


def parse_duration(text: str) -> int:
    """Nanoseconds. Raises ValueError."""
    sign = -1 if text.startswith("-") else 1
    digits = text[1:] if text[:1] in ("-", "+") else text
    if digits == "0":
        return 0
    if not _WHOLE.fullmatch(digits):
        raise ValueError(f"{text!r} is no duration such as 300ms, 2s or 1h30m")
    total_ns = sum(int(Decimal(number) * _UNITS_NS[unit]) for number, unit in _PART.findall(digits))
    if total_ns > DURATION_NS_MAX:
        raise ValueError(f"{text!r} is too long for a duration")
    return sign * total_ns


def format_duration(duration_ns: int) -> str:
    """As Go prints a duration: `1h30m0s`, `899.370371ms`, `0s`."""
    if duration_ns < 0:
        return "-" + format_duration(-duration_ns)
    if duration_ns == 0:
        return "0s"
    for unit, unit_ns, next_ns in (("ns", 1, 1_000), ("µs", 1_000, limits.MS)):
        if duration_ns < next_ns:
            return _decimal(duration_ns, unit_ns) + unit
    if duration_ns < limits.SECOND:
        return _decimal(duration_ns, limits.MS) + "ms"
    minutes, seconds_ns = divmod(duration_ns, 60 * limits.SECOND)
    text = _decimal(seconds_ns, limits.SECOND) + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{minutes}m{text}"
        if hours:
            text = f"{hours}h{text}"
    return text


def rounded(us: float | None) -> str:
    """`850 us`, `2.1 ms`, `3.4 s`, `12m30s`; nothing for None."""
    if us is None:
        return ""
    if us < 1000:
        return f"{us:.0f} us"
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms"
    seconds = us / 1_000_000
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds // 60:.0f}m{seconds % 60:02.0f}s"


def _decimal(duration_ns: int, unit_ns: int) -> str:
    whole, rest = divmod(duration_ns, unit_ns)
    if not rest:
        return str(whole)
    digits = len(str(unit_ns)) - 1
    return f"{whole}.{rest:0{digits}d}".rstrip("0")
