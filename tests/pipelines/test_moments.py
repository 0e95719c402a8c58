"""Times as people give and read them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from cases import each
from penstock.errors import ConfigError
from penstock.pipelines.moments import duration, moment, read_moment


@each(
    ("text", "found"),
    [
        ("1790000000000", datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)),
        ("2026-09-21T16:13:20+02:00", datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)),
        ("2026-09-21", datetime(2026, 9, 21, tzinfo=UTC)),
        ("90m", datetime(2026, 9, 21, 22, 30, tzinfo=UTC)),
        ("now", datetime(2026, 9, 22, tzinfo=UTC)),
        ("", None),
    ],
)
def test_times(text: str, found: datetime | None) -> None:
    assert read_moment("to", text, datetime(2026, 9, 22, tzinfo=UTC)) == found


@pytest.mark.parametrize("text", ["yesterday", "2026-13-01", "-5x", "9" * 9 + "h"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="as milliseconds since 1970"):
        read_moment("to", text, datetime(2026, 9, 22, tzinfo=UTC))


def test_times_are_shown_short() -> None:
    shown = [duration(us) for us in (0, 850, 2_100, 3_400_000, 750_000_000)]
    assert shown == ["0 us", "850 us", "2.1 ms", "3.4 s", "12m30s"]
    assert moment(datetime(2026, 9, 22, 1, 2, 3, 4, tzinfo=UTC)) == "2026-09-22T01:02:03.000004Z"
    assert moment(None) == ""
