"""A start at which the clock is far ahead of everything that is stored.

A running nsqd bears a clock that is set, a start takes it over. If it is a year ahead by mistake,
every message is a year old at once, and those with a maximum age would be dropped within a second.
The newest timestamp in the logs is the only witness, and it can't tell that from a node that was
off for a year. So nothing is decided: it is reported, and for a while no message is dropped by its
age. Whoever sees the report sets the clock right and starts again; if the clock is right, it need
only be waited for.
"""

from __future__ import annotations

from penstock import limits
from penstock.broker.health import Health, Trouble

_DAY_NS = 24 * 3600 * limits.SECOND


class ClockLeap:
    def __init__(self, health: Health) -> None:
        self._health = health
        self._until_ns = 0  # by the monotonic clock; 0: there is nothing to report

    def look(self, newest_ns: int, wall_ns: int, mono_ns: int) -> None:
        """Once, at the start. `newest_ns` is 0 when no message is stored."""
        leap_ns = wall_ns - newest_ns
        if not newest_ns or leap_ns <= limits.CLOCK_LEAP_NS:
            return
        self._until_ns = mono_ns + limits.CLOCK_LEAP_GRACE_NS
        hours = limits.CLOCK_LEAP_GRACE_NS // (3600 * limits.SECOND)
        reason = (
            f"the clock is {leap_ns // _DAY_NS} days ahead of the newest message. If it is wrong, "
            f"set it right and start nsqd again: for {hours} hours no message is dropped by its age"
        )
        self._health.report("", Trouble.CLOCK_LEAP, reason)

    def stands(self, mono_ns: int) -> bool:
        """Is nothing to be dropped by its age?"""
        if self._until_ns and mono_ns >= self._until_ns:
            self._until_ns = 0
            self._health.clear("", Trouble.CLOCK_LEAP)
        return bool(self._until_ns)
