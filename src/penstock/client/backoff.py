"""Pauses, as rules without a clock: between attempts to connect, and after failed messages.

A message that fails waits by itself, for its requeue delay. The whole consumer backs off when most
messages fail: so many different ones, and fewer finished since the first of them. One poison
message, however often it comes, slows no other.

From there on it is as in the official clients. A failed message raises a level, a finished one
lowers it; while the level is above zero the consumer takes nothing for `multiplier * 2**level`
seconds, then one message as a test, whose outcome moves the level again:

    free ──most fail──▶ waiting ──time──▶ testing ──failure──▶ waiting, one level up
     ▲                                      │  success
     └───────────── level 0 ◀───────────────┴──▶ waiting, one level down

What is heard while waiting counts for nothing: many messages in flight fail at once for one reason,
and are one failure. The level stops rising where the pause would be longer than allowed.
"""

from collections.abc import Callable
from enum import Enum


class Phase(Enum):
    FREE = "free"
    WAITING = "waiting"
    TESTING = "testing"


class Backoff:
    """`failures`: so many messages that fail begin it; 1: each one does, as in the official
    clients. `pause_max_s` 0: never backs off."""

    def __init__(self, multiplier_s: float, pause_max_s: float, failures: int) -> None:
        self.level = 0
        self.phase = Phase.FREE
        self._multiplier_s = multiplier_s
        self._pause_max_s = pause_max_s
        self._failures = failures
        self._failed: dict[bytes, int] = {}  # the last ones, and how many were finished before each

    def failed(self, message_id: bytes, finished: int) -> float:
        """A message failed, after this many were finished. Returns the length of a new pause; 0:
        none."""
        if self.phase is Phase.WAITING or self._pause_max_s == 0:
            return 0.0
        if self.phase is Phase.FREE and not self._most_fail(message_id, finished):
            return 0.0
        if self._pause_s(self.level + 1) <= self._pause_max_s:
            self.level += 1
        return self._wait()

    def succeeded(self) -> float:
        """A message was finished. Returns the length of a new pause; 0: none."""
        if self.phase is not Phase.TESTING:
            return 0.0
        self.level = max(self.level - 1, 0)
        if self.level == 0:
            self.phase = Phase.FREE
            return 0.0
        return self._wait()

    def waited(self) -> None:
        """The pause is over."""
        if self.phase is Phase.WAITING:
            self.phase = Phase.TESTING

    def in_flight_max(self, allowed: int) -> int:
        """The number of messages that may be in flight, when `allowed` are without back-off."""
        return {Phase.FREE: allowed, Phase.WAITING: 0, Phase.TESTING: 1}[self.phase]

    def validate(self) -> None:
        if (self.level == 0) != (self.phase is Phase.FREE) and self._pause_s(1) <= (
            self._pause_max_s
        ):
            raise RuntimeError(f"back-off is {self.phase} at level {self.level}")

    def _most_fail(self, message_id: bytes, finished: int) -> bool:
        failed = self._failed
        failed.pop(message_id, None)  # the order is that of the last failures
        failed[message_id] = finished
        if len(failed) > self._failures:
            del failed[next(iter(failed))]
        first = next(iter(failed.values()))
        return len(failed) == self._failures and finished - first < self._failures

    def _wait(self) -> float:
        self._failed.clear()
        self.phase = Phase.WAITING
        return min(self._pause_s(self.level), self._pause_max_s)

    def _pause_s(self, level: int) -> float:
        return self._multiplier_s * float(2 ** min(level, 60))


class Delays:
    """Pauses between attempts to connect: each twice as long as the one before, up to a bound, and
    shortened by up to a half by `dice` (0 to 1), so that the clients of one nsqd do not return all
    at once."""

    def __init__(self, first_s: float, max_s: float, dice: Callable[[], float]) -> None:
        self._first_s = first_s
        self._max_s = max_s
        self._dice = dice
        self._next_s = first_s

    def next_s(self) -> float:
        delay_s = min(self._next_s, self._max_s)
        self._next_s = min(self._next_s * 2, self._max_s)
        return delay_s * (1 - self._dice() / 2)

    def lasted(self, seconds: float) -> None:
        """A connection lasted this long. If it ended sooner than the next pause it is no success:
        nsqd may be refusing us right after the greeting."""
        if seconds >= self._next_s:
            self._next_s = self._first_s
