"""A clock that stands still unless it is moved."""

from __future__ import annotations

from penstock import limits

START_WALL_NS = 1_780_000_000 * limits.SECOND
START_MONO_NS = 1_000 * limits.SECOND


class FakeClock:
    """`pass_ns` lets time go by; `wall_step_ns` is by how much someone has set the wall clock."""

    def __init__(self, wall_ns: int = START_WALL_NS, mono_ns: int = START_MONO_NS) -> None:
        self._start_wall_ns = wall_ns
        self._start_mono_ns = mono_ns
        self.since_ns = 0
        self.wall_step_ns = 0

    def mono_ns(self) -> int:
        return self._start_mono_ns + self.since_ns

    def wall_ns(self) -> int:
        return self._start_wall_ns + self.since_ns + self.wall_step_ns

    def pass_ns(self, ns: int) -> None:
        self.since_ns += ns
