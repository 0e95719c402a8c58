"""Times as people give them to the audit: a moment, milliseconds since 1970, or so long ago."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from penstock import limits
from penstock.command.durations import parse_duration
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
