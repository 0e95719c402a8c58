"""A clock that stands still unless it is moved."""

from __future__ import annotations

from penstock import limits

START_WALL_NS = 1_780_000_000 * limits.SECOND
START_MONO_NS = 1_000 * limits.SECOND


class FakeClock:
    """`pass_ns` lets time go by; `wall_step_ns` is by how much someone has set the wall clock.
    `beside`: another machine's clock, for which the same time goes by."""

    def __init__(
        self,
        wall_ns: int = START_WALL_NS,
        mono_ns: int = START_MONO_NS,
        beside: FakeClock | None = None,
    ) -> None:
        self._start_wall_ns = wall_ns
        self._start_mono_ns = mono_ns
        self._passed: list[int] = [0] if beside is None else beside._passed  # shared
        self.wall_step_ns = 0

    @property
    def since_ns(self) -> int:
        return self._passed[0]

    @since_ns.setter
    def since_ns(self, ns: int) -> None:
        self._passed[0] = ns

    def mono_ns(self) -> int:
        return self._start_mono_ns + self.since_ns

    def wall_ns(self) -> int:
        return self._start_wall_ns + self.since_ns + self.wall_step_ns

    def pass_ns(self, ns: int) -> None:
        self._passed[0] += ns
