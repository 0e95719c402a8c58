"""Times as people give and read them."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta

import pytest

from cases import each
from penstock.errors import ConfigError
from penstock.pipelines import replay, trace
from penstock.pipelines.moments import duration, moment, read_moment, say_moments
from penstock.pipelines.progress import Progress
from penstock.pipelines.settings import defaults

NOW = datetime(2026, 9, 22, tzinfo=UTC)


@each("text", ["1790000000", "1790000000000", "1790000000000000000", "2026-09-21T14:13:20Z"])
def test_every_pipeline_means_the_same_time_and_says_it(text: str) -> None:
    said = io.StringIO()
    assert read_moment("from", text, NOW) == datetime(2026, 9, 21, 14, 13, 20, tzinfo=UTC)
    tables = (
        (replay.SETTINGS, "since", {"to": "orders"}),
        (trace.SETTINGS, "from", {"table": "t"}),
    )
    for table, name, needed in tables:
        settings = defaults(table, **{name: text}, **needed)
        say_moments(Progress("any", 0, said), settings, NOW, name)
    assert said.getvalue().count(f"{text} is 2026-09-21T14:13:20Z") == 2


def test_what_is_relative_counts_from_a_given_time() -> None:
    assert read_moment("to", "24h", NOW) == NOW - timedelta(days=1)
    assert read_moment("to", "", NOW) is None
    with pytest.raises(ConfigError, match=r"to: 'yesterday'.*is no time, as 2026"):
        read_moment("to", "yesterday", NOW)


def test_times_are_shown_short() -> None:
    shown = [duration(us) for us in (0, 850, 2_100, 3_400_000, 750_000_000)]
    assert shown == ["0 us", "850 us", "2.1 ms", "3.4 s", "12m30s"]
    assert moment(datetime(2026, 9, 22, 1, 2, 3, 4, tzinfo=UTC)) == "2026-09-22T01:02:03.000004Z"
    assert moment(None) == ""
