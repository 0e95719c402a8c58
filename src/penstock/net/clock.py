"""The two clocks of a running daemon, as `Clock` of the broker asks for them."""

from __future__ import annotations

import time


class SystemClock:
    def __init__(self) -> None:
        self.mono_ns = time.monotonic_ns
        self.wall_ns = time.time_ns
