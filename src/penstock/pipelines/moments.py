"""Times as people give them (a moment, milliseconds since 1970, or this long ago) and read them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock import limits
from penstock.durations import parse_duration
from penstock.errors import ConfigError

RULE = "as 2026-11-21T08:00:00Z, as milliseconds since 1970, or as a duration such as 24h: ago"


def read_moment(name: str, text: str, now: datetime) -> datetime | None:
    """None when nothing is given. A duration is that long before `now`."""
    if not text:
        return None
    if text == "now":
        return now
    if text.isdecimal():
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=int(text))
    try:
        return now - timedelta(microseconds=parse_duration(text) // (limits.MS // 1000))
    except (ValueError, OverflowError):
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigError(name, text, RULE) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def moment(time: datetime | None) -> str:
    return "" if time is None else f"{time:%Y-%m-%dT%H:%M:%S.%f}Z"


def duration(us: float) -> str:
    """`850 us`, `2.1 ms`, `3.4 s`, `12m30s`."""
    if us < 1000:
        return f"{us:.0f} us"
    if us < 1_000_000:
        return f"{us / 1000:.3g} ms"
    seconds = us / 1_000_000
    return f"{seconds:.3g} s" if seconds < 120 else f"{seconds // 60:.0f}m{seconds % 60:02.0f}s"
