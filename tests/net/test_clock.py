from __future__ import annotations

import time

from penstock.net.clock import SystemClock


def test_it_reads_the_monotonic_and_the_wall_clock() -> None:
    clock = SystemClock()
    assert 0 <= clock.mono_ns() - time.monotonic_ns() + 1_000_000_000 <= 2_000_000_000
    assert 0 <= clock.wall_ns() - time.time_ns() + 1_000_000_000 <= 2_000_000_000
    assert clock.mono_ns() <= clock.mono_ns()
