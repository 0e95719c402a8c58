"""Times as people give them: one meaning everywhere."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cases import each
from penstock.times import format_time, read_time

MS, S = 1_000_000, 1_000_000_000
AT = int(datetime(2026, 11, 21, 8, tzinfo=UTC).timestamp())
NOW_NS = AT * S


@each(
    ("text", "time_ns"),
    [
        ("2026-11-21T08:00:00Z", NOW_NS),
        (" 2026-11-21 08:00 ", NOW_NS),
        ("2026-11-21T10:00:00.25+02:00", NOW_NS + S // 4),
        ("2026-11-21", NOW_NS - 8 * 3600 * S),
        ("1960-01-01", 0),
        ("9999-12-31", (1 << 63) - 1),
        ("06:30", NOW_NS - 5400 * S),
        ("6:30:01", NOW_NS - 5399 * S),
        ("now", NOW_NS),
        ("24h", NOW_NS - 86_400 * S),
        ("1h30m", NOW_NS - 5400 * S),
        ("-10m", NOW_NS - 600 * S),
        ("2 h ago", NOW_NS - 7200 * S),
        ("2 days 3 minutes ago", NOW_NS - 172_980 * S),
        ("250ms", NOW_NS - 250 * MS),
        ("1.5d", NOW_NS - 129_600 * S),
        ("999999h", 0),
        ("0", 0),
        (f"{AT}", NOW_NS),
        (f"{AT}.000000001", NOW_NS + 1),
        (f"{AT}000", NOW_NS),
        (f"{AT}000001", NOW_NS + 1000),
        (f"{AT}000000001", NOW_NS + 1),
        ("100000000", 100_000_000 * S),
        ("9000000000", 9_000_000_000 * S),
        ("100000000000", 100_000_000 * S),
    ],
)
def test_times(text: str, time_ns: int) -> None:
    assert read_time(text, NOW_NS) == time_ns


@each(
    "text",
    [
        "", "yesterday", "2026-13-01", "-5x", "25:00", "10 minutes of fame", "5 months", "m",
        "20261121", "1", "1795240800000.5", "1" * 20, "+2h", "-1", "1.",
    ],
)  # fmt: skip
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time, as 2026"):
        read_time(text, NOW_NS)


def test_times_are_shown_in_utc() -> None:
    assert format_time(NOW_NS) == "2026-11-21T08:00:00Z"
    assert format_time(NOW_NS + 1_500) == "2026-11-21T08:00:00.000001Z"
