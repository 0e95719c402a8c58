"""A run survives an outage: nsqd, the table or the disk is away, and comes back.

Whatever a pipeline does can be done again: what was committed is known by its number, and the rest
was never there. So there is one loop for all of them: an attempt that ends by an outage is made
again after a pause, from the checks before Spark starts to the last commit. Pauses double until
something was done again.

A run that goes on for ever waits as long as the outage lasts. One that ends by itself (`--once`, a
replay, an audit) is waited for by somebody: it fails when an outage lasts longer than
`outage-wait`. Processes of Spark's that die again and again have a reason, so they are counted. One
that comes too late is both: a busy machine is waited for, and tried a few times in any case.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import limits
from penstock.pipelines.trouble import cause_line, is_crash, is_late, outage_of

if TYPE_CHECKING:
    from penstock.pipelines.progress import Progress

_PAUSE_S_MAX = 30.0


class Pauses:
    """Between a failure and the next attempt: twice as long each time, until something was done."""

    def __init__(self) -> None:
        self.failures = 0  # since something was done
        self._done = 0

    def next(self, done: int) -> float:
        """The pause after one more failure, with this much done by now."""
        if done != self._done:
            self._done, self.failures = done, 0
        self.failures += 1
        return float(min(2 ** (self.failures - 1), _PAUSE_S_MAX))


class Outages:
    """`wait_s_max`: of one outage; None waits as long as it lasts."""

    def __init__(self, progress: Progress, wait_s_max: float | None) -> None:
        self._progress = progress
        self._wait_s_max = wait_s_max
        self._pauses = Pauses()
        self._began_s: float | None = None

    def ride_out(self, attempt: Callable[[], int], stopped: int) -> int:
        """What an attempt gives that no outage ended; `stopped` when a stop is requested meanwhile.
        Any other error goes up."""
        while True:
            try:
                return attempt()
            except Exception as error:
                if self._progress.stopping and outage_of(error):
                    return stopped
                pause_s = self._pause(error)
                if pause_s is None:
                    raise
                reason = f"{cause_line(error)}; trying again in {pause_s:g} s"
                self._progress.say(reason)
                self._progress.outages += 1
                self._progress.waiting = True
            if self._progress.wait(pause_s):
                return stopped
            self._progress.begin_again()

    def _pause(self, error: Exception) -> float | None:
        """None: it is not to be tried again."""
        is_outage, now_s = bool(outage_of(error)), time.monotonic()
        if not is_outage and not is_crash(error):
            return None
        last = self._progress.last
        pause_s = self._pauses.next(last.rows if last else 0)
        if self._pauses.failures == 1 or self._began_s is None:
            self._began_s = now_s
        if not is_outage:
            return pause_s if self._pauses.failures <= limits.PIPELINE_CRASHES_MAX else None
        if self._wait_s_max is not None:
            left_s = self._began_s + self._wait_s_max - now_s
            if left_s <= 0:
                is_early = is_late(error) and self._pauses.failures <= limits.PIPELINE_CRASHES_MAX
                return pause_s if is_early else None
            return min(pause_s, left_s)
        return pause_s
