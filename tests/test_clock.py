import logging
import subprocess
import sys
import time
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.clock import FRESH_NS, SteadyClock, SystemClock
from penstock.durations import DURATION_NS_MAX, format_duration, parse_duration
from penstock.limits import SECOND
from penstock.times import format_time, read_time


def test_it_reads_the_monotonic_and_the_wall_clock() -> None:
    clock = SystemClock()
    assert 0 <= clock.mono_ns() - time.monotonic_ns() + 1_000_000_000 <= 2_000_000_000
    assert 0 <= clock.wall_ns() - time.time_ns() + 1_000_000_000 <= 2_000_000_000
    assert clock.mono_ns() <= clock.mono_ns()


class Time:
    """A system whose clock can be set."""

    def __init__(self) -> None:
        self.elapsed_ns = 0
        self.step_ns = 0
        self.clock = SteadyClock(
            lambda: START_NS + self.elapsed_ns + self.step_ns, lambda: self.elapsed_ns
        )

    def wait(self, duration_ns: int, reads: int = 10) -> int:
        """How much the clock shows later."""
        before_ns = self.clock.wall_ns()
        for _ in range(reads):
            self.elapsed_ns += duration_ns // reads
            now_ns = self.clock.wall_ns()
        return now_ns - before_ns


START_NS = 1_780_000_000 * SECOND
HOUR = 3600 * SECOND


def test_it_shows_the_time_of_the_system() -> None:
    time = Time()
    assert time.clock.wall_ns() == START_NS
    assert time.wait(HOUR) == HOUR
    assert time.clock.behind_ns == 0


@pytest.mark.parametrize("jump_ns", [HOUR, -HOUR, 365 * 24 * HOUR])
def test_a_jump_is_followed_gradually(jump_ns: int) -> None:
    time = Time()
    time.step_ns = jump_ns
    shown_ns = time.wait(60 * SECOND)
    assert abs(shown_ns - 60 * SECOND) == 60 * SECOND // 16
    assert (shown_ns > 60 * SECOND) == (jump_ns > 0)
    time.step_ns = 0  # set right again
    time.wait(2 * 60 * SECOND)
    assert time.clock.behind_ns == 0


def test_an_hour_is_caught_up_within_sixteen() -> None:
    time = Time()
    time.step_ns = -HOUR
    last_ns = 0
    for _ in range(16 * 60):
        time.wait(60 * SECOND)
        now_ns = time.clock.wall_ns()
        assert now_ns > last_ns
        last_ns = now_ns
    assert abs(time.clock.behind_ns) <= SECOND


def test_small_corrections_are_followed_at_once_and_never_back() -> None:
    time = Time()
    time.step_ns = SECOND // 2
    assert time.wait(FRESH_NS, reads=1) == FRESH_NS + SECOND // 2
    time.step_ns = 0
    assert time.wait(FRESH_NS, reads=1) == 0
    assert time.wait(SECOND) == SECOND // 2 + FRESH_NS


def test_between_two_looks_at_the_system_it_goes_on_by_itself() -> None:
    time = Time()
    before_ns = time.clock.wall_ns()
    time.step_ns = SECOND // 2
    time.elapsed_ns += FRESH_NS - 1
    assert time.clock.wall_ns() == before_ns + FRESH_NS - 1
    time.elapsed_ns += 1
    assert time.clock.wall_ns() == before_ns + FRESH_NS + SECOND // 2


@pytest.mark.parametrize("step_ns", [-SECOND // 2, -HOUR])
def test_time_never_goes_back_between_two_readings(step_ns: int) -> None:
    time = Time()
    time.elapsed_ns += FRESH_NS - 1
    before_ns = time.clock.wall_ns()
    time.step_ns = step_ns
    time.elapsed_ns += 1
    assert time.clock.wall_ns() == before_ns


def test_a_jump_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.clock")
    time = Time()
    time.step_ns = HOUR
    for _ in range(5):
        time.clock.check()
        time.wait(SECOND)
    (warned,) = [one.getMessage() for one in caplog.records]
    assert "the system's clock was set forward by 1h" in warned
    time.step_ns = 0
    time.wait(60 * SECOND)
    time.clock.check()
    assert "caught up" in caplog.records[-1].getMessage()


MS, S = 1_000_000, 1_000_000_000


@each(
    ("text", "duration_ns"),
    [
        ("0", 0),
        ("0s", 0),
        ("300ms", 300 * MS),
        ("1.5h", 5400 * S),
        (".5s", 500 * MS),
        ("2.s", 2 * S),
        ("1h30m", 5400 * S),
        ("1m30s500ms", 90 * S + 500 * MS),
        ("10us", 10_000),
        ("10µs", 10_000),
        ("10μs", 10_000),
        ("7ns", 7),
        ("-2s", -2 * S),
        ("+2s", 2 * S),
    ],
)
def test_parse(text: str, duration_ns: int) -> None:
    assert parse_duration(text) == duration_ns


@each("text", ["", "5", "s", "1.5", "1 s", "1x", "s1", "--1s", ".s", "1_0s", "٣s", "300000000h"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(ValueError, match="duration"):
        parse_duration(text)


@each(
    ("duration_ns", "text"),
    [
        (0, "0s"),
        (7, "7ns"),
        (1500, "1.5µs"),
        (899_370_371, "899.370371ms"),
        (2 * S, "2s"),
        (90 * S, "1m30s"),
        (5400 * S, "1h30m0s"),
        (3600 * S + 1, "1h0m0.000000001s"),
        (-250 * MS, "-250ms"),
    ],
)
def test_format(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@given(st.integers(-DURATION_NS_MAX, DURATION_NS_MAX))
def test_durations_round_trip(duration_ns: int) -> None:
    assert parse_duration(format_duration(duration_ns)) == duration_ns


# --- times as people give them: one meaning everywhere ---


AT = int(datetime(2026, 11, 21, 8, tzinfo=UTC).timestamp())
NOW_NS = AT * S


@each(
    ("text", "time_ns"),
    [
        ("2026-11-21T08:00:00Z", NOW_NS),
        (" 2026-11-21 08:00 ", NOW_NS),
        ("2026-11-21T10:00:00.25+02:00", NOW_NS + S // 4),
        ("1960-01-01", 0),
        ("9999-12-31", (1 << 63) - 1),
        ("06:30", NOW_NS - 5400 * S),
        ("now", NOW_NS),
        ("1h30m", NOW_NS - 5400 * S),
        ("2 days 3 minutes ago", NOW_NS - 172_980 * S),
        ("1.5d", NOW_NS - 129_600 * S),
        ("999999h", 0),
        ("0", 0),
        (f"{AT}", NOW_NS),
        (f"{AT}.000000001", NOW_NS + 1),
        (f"{AT}000", NOW_NS),
        (f"{AT}000000001", NOW_NS + 1),
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
def test_invalid_times(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no time, as 2026"):
        read_time(text, NOW_NS)


def test_times_are_shown_in_utc() -> None:
    assert format_time(NOW_NS) == "2026-11-21T08:00:00Z"
    assert format_time(NOW_NS + 1_500) == "2026-11-21T08:00:00.000001Z"


def test_clients_need_no_clock_of_linux() -> None:
    code = "import time; del time.CLOCK_BOOTTIME; import penstock.client"
    subprocess.run([sys.executable, "-c", code], check=True)
