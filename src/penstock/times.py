"""Times as people give them. They mean the same on every command line, in every form and option:

| text | is |
|---|---|
| `2026-11-21T06:00:00Z`, `2026-11-21 06:00`, `2026-11-21` | that time; UTC where no zone is named |
| `06:00` | of today, UTC |
| `24h`, `1h30m`, `2d`, `-10m`, `2 hours ago` | so long before now |
| `now` | now |
| `1795240800`, with or without a fraction | seconds since 1970 |
| `1795240800000` | milliseconds, and with three digits more each, micro- and nanoseconds |

The number of digits tells the units apart, as no time in use is before 1973. A smaller number than
that is refused, except for 0: as a rule it is a date without dashes, or no time at all.
"""

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

from penstock import limits

RULE = (
    "as 2026-11-21T06:00:00Z or 06:00 (UTC), 24h (ago), now, or seconds or milliseconds since 1970"
)
_NUMBER = re.compile(r"([0-9]{1,19})(\.[0-9]{1,9})?")
_AGO = re.compile(
    r"([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*"
    r"(ms|s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])\s*"
)
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(:[0-9]{2})?")
_UNITS_NS = {
    "ms": limits.MS,
    "s": limits.SECOND,
    "m": 60 * limits.SECOND,
    "h": 3600 * limits.SECOND,
    "d": 86_400 * limits.SECOND,
}
_LEAST_S = 100_000_000  # 1973-03-03: below it a number of the next unit begins
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NS_MAX = (1 << 63) - 1


def read_time(text: str, now_ns: int) -> int:
    """Nanoseconds since 1970, within what an integer of 64 bits has. Raises ValueError."""
    given = text.strip()
    number = _NUMBER.fullmatch(given)
    if given.lower() == "now":
        found = now_ns
    elif number is not None:
        found = _since_1970(text, number)
    else:
        ago_ns = _ago(given.lower())
        found = _iso(text, given, now_ns) if ago_ns is None else now_ns - ago_ns
    return max(0, min(found, _NS_MAX))


def micros(moment: datetime) -> int:
    """Since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1)


def at(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _since_1970(text: str, number: re.Match[str]) -> int:
    whole = int(number[1])
    unit_ns = limits.SECOND
    while whole >= 1000 * _LEAST_S * (limits.SECOND // unit_ns) and unit_ns > 1:
        unit_ns //= 1000
    if number[2] and unit_ns != limits.SECOND:
        raise ValueError(f"{text!r} is no time, {RULE}: only seconds have a fraction")
    if 0 < whole < _LEAST_S:
        raise ValueError(f"{text!r} is no time, {RULE}: in seconds it is before 1973")
    return int(Decimal(f"{whole}{number[2] or ''}") * unit_ns)


def _ago(text: str) -> int | None:
    """None where it is no such time."""
    text = text.removeprefix("-").removesuffix("ago").strip()
    parts = _AGO.findall(text)
    if not parts or _AGO.sub("", text):
        return None
    units = ((count, unit if unit == "ms" else unit[0]) for count, unit in parts)
    return sum(int(Decimal(count) * _UNITS_NS[unit]) for count, unit in units)


def _iso(text: str, given: str, now_ns: int) -> int:
    if _CLOCK.fullmatch(given):
        today = at(now_ns // 1000).date()
        given = f"{today.isoformat()} {given.zfill(8 if given.count(':') == 2 else 5)}"
    try:
        found = datetime.fromisoformat(given if "-" in given else "")  # not one without dashes
    except ValueError as error:
        raise ValueError(f"{text!r} is no time, {RULE}") from error
    return micros(found if found.tzinfo else found.replace(tzinfo=UTC)) * 1000


def format_seconds(time_ns: int) -> str:
    """Since 1970, as every release of nsqd takes them."""
    return f"{time_ns // limits.SECOND}.{time_ns % limits.SECOND:09}"


def format_time(time_ns: int) -> str:
    """`2026-11-21T06:00:00Z`, with as much of a fraction as there is in microseconds."""
    return f"{at(time_ns // 1000).replace(tzinfo=None).isoformat()}Z"


def moment(time: datetime | None) -> str:
    """With all of the fraction, so that texts are in the order of the times; nothing for None."""
    return "" if time is None else f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"
