"""Figures that a utility logs now and then: how many, and how long they took."""

from __future__ import annotations

import logging

from penstock import limits
from penstock.durations import format_duration

log = logging.getLogger("penstock.tools")

QUANTILES = (0.5, 0.75, 0.9, 0.95, 0.99)


class Status:
    """`note` each request; every `every` of them a line goes to the log, for each address."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._times_ns: dict[str, list[int]] = {}

    def note(self, address: str, took_ns: int) -> None:
        if self._every <= 0:
            return
        times_ns = self._times_ns.setdefault(address, [])
        times_ns.append(took_ns)
        if len(times_ns) >= self._every:
            log.info("%s", line(address, times_ns))
            times_ns.clear()


def line(address: str, times_ns: list[int]) -> str:
    ordered = sorted(times_ns)
    average = sum(ordered) // len(ordered)
    shown = [
        f"{100 * quantile:g}%: {_short(ordered[int(quantile * (len(ordered) - 1))])}"
        for quantile in QUANTILES
    ]
    return f"{address}: finished {len(ordered)}, average {_short(average)}, {', '.join(shown)}"


def _short(duration_ns: int) -> str:
    unit_ns = limits.MS // 1000
    return format_duration(duration_ns // unit_ns * unit_ns)
