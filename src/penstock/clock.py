"""What the time is: the port through which every rule is given it, and the clocks of this host.

A core never reads a clock of the host: it is given a `Clock`, the daemons' or one that a test moves
(`sim/clock.py`). Intervals are measured by `mono_ns`, which never steps; `wall_ns` is what is
stored and shown, in nanoseconds since 1970.

nsqd's wall clock is `SteadyClock`. When somebody sets the system's clock, by an hour or by a year,
delays would end and messages expire too early or too late by as much. So a jump is followed
gradually, by a sixteenth of the time that passes, and it never goes back; a jump that is taken back
soon does next to nothing. What is smaller than STEP_NS_MAX is followed at once, and a restart
begins with the system's clock as it is then.
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

from penstock import limits
from penstock.durations import format_duration

_log = logging.getLogger("penstock.clock")

STEP_NS_MAX = limits.SECOND  # what time servers correct in ordinary operation
SLEW_SHIFT = 4  # of the time that passes: a jump of an hour is followed within 16 hours
NEVER_NS = 1 << 62  # a time that no clock reaches
FRESH_NS = limits.MS  # how long after a look at the system's clock none is needed


class Clock(Protocol):
    def mono_ns(self) -> int: ...
    def wall_ns(self) -> int: ...


class SystemClock:
    def __init__(self) -> None:
        self.mono_ns = time.monotonic_ns
        self.wall_ns = time.time_ns


class SteadyClock:
    """`check` is to be called now and then: it says in the log when the system's clock jumped."""

    def __init__(
        self, wall_ns: Callable[[], int] = time.time_ns, elapsed_ns: Callable[[], int] | None = None
    ) -> None:
        """`elapsed_ns`: since the system's start, the time that it was suspended included; only
        Linux has it."""
        if elapsed_ns is None:
            elapsed_ns = partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME)
        self.mono_ns = time.monotonic_ns
        self._system_ns = wall_ns
        self._elapsed_ns = elapsed_ns
        self._looked_ns = wall_ns()  # what the time was at the last look at the system's clock
        self._read_ns = elapsed_ns()  # when that was
        self._shown_ns = self._looked_ns  # what was answered last
        self._jumped = False

    def wall_ns(self) -> int:
        """Twice in every turn, so the common case is short, and compares by itself: a call of `max`
        costs as much as all of it."""
        read_ns = self._elapsed_ns()
        passed_ns = read_ns - self._read_ns
        if 0 <= passed_ns < FRESH_NS:
            self._shown_ns = shown_ns = self._looked_ns + passed_ns
            return shown_ns
        return self._look(read_ns, max(passed_ns, 0))

    def _look(self, read_ns: int, passed_ns: int) -> int:
        system_ns = self._system_ns()
        expected_ns = self._looked_ns + passed_ns
        ahead_ns = system_ns - expected_ns
        if -STEP_NS_MAX <= ahead_ns <= STEP_NS_MAX:
            next_ns = system_ns
        else:
            slew_ns = passed_ns >> SLEW_SHIFT
            next_ns = expected_ns + (slew_ns if ahead_ns > 0 else -slew_ns)
        self._shown_ns = self._looked_ns = max(next_ns, self._shown_ns)
        self._read_ns = read_ns
        return self._shown_ns

    @property
    def behind_ns(self) -> int:
        """What it lacks to the system's clock."""
        shown_ns = self.wall_ns()
        return self._system_ns() - shown_ns

    def check(self) -> None:
        behind_ns = self.behind_ns
        jumped = abs(behind_ns) > STEP_NS_MAX
        if jumped and not self._jumped:
            _log.warning(
                "the system's clock was set %s by %s: timestamps, delays and ages follow it by a "
                "sixteenth of the time that passes; a restart takes it over at once",
                "forward" if behind_ns > 0 else "back",
                format_duration(abs(behind_ns)),
            )
        elif self._jumped and not jumped:
            _log.info("timestamps, delays and ages have caught up with the system's clock")
        self._jumped = jumped
