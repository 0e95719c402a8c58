"""End-to-end latency: how long messages took from their timestamp to their FIN, as percentiles.

The kernel counts in buckets whose middle is off by 1.6 % at most (`Window.take_latencies`). Here
the counts of a channel go into a sliding window of two halves: the current one, and the one before.
When half the window's time has gone by, the older half is dropped. So what is shown is never older
than the window, and never less than half of it. A topic's figures are those of its channels, added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.broker.topic import Topic
    from penstock.kernel import Window

Row = dict[str, Any]
Counts = dict[int, int]  # by bucket

_LOWEST_BITS = 10  # below 2 ** 10 ns all is bucket 0
_STEP_BITS = 5  # then each power of two has 2 ** 5


def middle_ns(bucket: int) -> int:
    if bucket == 0:
        return 1 << _LOWEST_BITS - 1
    power, step = divmod(bucket - 1, 1 << _STEP_BITS)
    width = 1 << _LOWEST_BITS + power - _STEP_BITS
    return ((1 << _STEP_BITS) + step) * width + width // 2


def no_latency() -> Row:
    """Percentiles when none are configured, or there is no channel."""
    return {"count": 0, "percentiles": None}


def latency_row(counts: Counts, quantiles: Iterable[float]) -> Row:
    """NSQ's form. All values are 0 while there is nothing to go by."""
    ordered = sorted(counts.items())
    sums = list(accumulate(count for _, count in ordered))
    total = sums[-1] if sums else 0

    def value(quantile: float) -> int:
        rank = ceil(quantile * total)
        place = next((i for i, below in enumerate(sums) if below >= rank), None)
        return 0 if place is None else middle_ns(ordered[place][0])

    return {
        "count": total,
        "percentiles": [{"quantile": _shown(one), "value": value(one)} for one in quantiles],
    }


def _shown(quantile: float) -> float:
    """Go prints a whole float without a fraction."""
    return 1 if quantile == 1 else quantile


def _add(to: Counts, counts: Mapping[int, int]) -> None:
    for bucket, count in counts.items():
        to[bucket] = to.get(bucket, 0) + count


class Latency:
    """The sliding window of one channel. `quantiles` empty: nothing is measured."""

    def __init__(self, quantiles: tuple[float, ...]) -> None:
        self.quantiles = quantiles
        self._windows: list[Window] = []
        self._now: Counts = {}
        self._before: Counts = {}

    def measure(self, window: Window) -> None:
        if self.quantiles:
            window.measures_latency = True
            self._windows.append(window)

    def forget(self, window: Window) -> None:
        """What it has counted stays."""
        if self.quantiles:
            _add(self._now, window.take_latencies())
            self._windows.remove(window)

    def _take(self) -> None:
        for window in self._windows:
            _add(self._now, window.take_latencies())

    def turn(self) -> None:
        """Half the window's time has gone by."""
        self._take()
        self._before, self._now = self._now, {}

    @property
    def counts(self) -> Counts:
        self._take()
        counts = dict(self._before)
        _add(counts, self._now)
        return counts

    def row(self) -> Row:
        return latency_row(self.counts, self.quantiles) if self.quantiles else no_latency()


def topic_latency_row(topic: Topic) -> Row:
    counts: Counts = {}
    quantiles: tuple[float, ...] = ()
    for channel in topic.channels.values():
        quantiles = channel.latency.quantiles
        if quantiles:
            _add(counts, channel.latency.counts)
    return latency_row(counts, quantiles) if quantiles else no_latency()


class LatencyTurns:
    """Turns the windows of all channels over, together."""

    def __init__(self, topics: Mapping[str, Topic], window_ns: int, mono_ns: int) -> None:
        self._topics = topics
        self._half_ns = window_ns // 2
        self._next_ns = mono_ns + self._half_ns

    def housekeeping(self, mono_ns: int) -> None:
        """About once a second."""
        if mono_ns < self._next_ns:
            return
        passed, self._next_ns = mono_ns - self._next_ns, mono_ns + self._half_ns
        rounds = 2 if passed >= self._half_ns else 1  # the machine slept
        for topic in self._topics.values():
            for channel in topic.channels.values():
                for _ in range(rounds):
                    channel.latency.turn()
