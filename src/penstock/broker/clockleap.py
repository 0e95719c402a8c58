"""A clock that is far ahead: of everything that is stored, at a start, or of its own run, later.

A running nsqd bears a clock that is set, a start takes it over. If it is a year ahead by mistake,
every message is a year old at once, and those with a maximum age would be dropped within a second.
The newest timestamp in the logs is the only witness, and it can't tell that from a node that was
off for a year. So nothing is decided: it is reported, and for a while no message is dropped by its
age. Whoever sees the report sets the clock right and starts again; if the clock is right, it need
only be waited for.

While nsqd runs, the clock is compared with the monotonic one. A day and more between them is
reported for as long as it lasts.
"""

from __future__ import annotations

from penstock import limits
from penstock.broker.health import Health, Trouble

_DAY_NS = 24 * 3600 * limits.SECOND


class ClockLeap:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._until_ns = 0  # by the monotonic clock; 0: there is nothing to report
        self._leap_ns = 0  # how far it was ahead at the start
        self._start_ns: int | None = None  # wall minus monotonic
        self._step_ns = 0  # how far it has gone ahead since

    def look(self, newest_ns: int, wall_ns: int, mono_ns: int) -> None:
        """Once, at the start. `newest_ns` is 0 when no message is stored."""
        self._start_ns = wall_ns - mono_ns
        leap_ns = wall_ns - newest_ns
        if not newest_ns or leap_ns <= limits.CLOCK_LEAP_NS:
            return
        self._until_ns = mono_ns + limits.CLOCK_LEAP_GRACE_NS
        self._leap_ns = leap_ns
        hours = limits.CLOCK_LEAP_GRACE_NS // (3600 * limits.SECOND)
        reason = (
            f"the clock is {leap_ns // _DAY_NS} days ahead of the newest message. If it is wrong, "
            f"set it right and start nsqd again: for {hours} hours no message is dropped by its age"
        )
        self._health.report("", Trouble.CLOCK_LEAP, reason)

    @property
    def ahead_ns(self) -> int:
        """By how much the clock is ahead, as far as is known; 0 where nothing is reported."""
        return max(self._leap_ns if self._until_ns else 0, self._step_ns)

    def follow(self, wall_ns: int, mono_ns: int) -> None:
        if self._start_ns is None:
            return
        step_ns = wall_ns - mono_ns - self._start_ns
        if step_ns >= limits.CLOCK_STEP_NS:
            self._step_ns = step_ns
            reason = (
                f"the clock has gone {step_ns // _DAY_NS} days ahead since nsqd started: it was "
                "set, or the machine slept. Set it right, or start nsqd again"
            )
            self._health.report("", Trouble.CLOCK_STEP, reason)
        elif self._step_ns:
            self._step_ns = 0
            self._health.clear("", Trouble.CLOCK_STEP)

    def stands(self, mono_ns: int) -> bool:
        """Is nothing to be dropped by its age?"""
        if self._until_ns and mono_ns >= self._until_ns:
            self._until_ns = 0
            self._health.clear("", Trouble.CLOCK_LEAP)
        return bool(self._until_ns)
