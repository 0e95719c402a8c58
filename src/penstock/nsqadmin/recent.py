"""The last minutes of every series, finely, in memory that is bounded.

A sample is stored when it differs from the one before; a reader goes on with the last. So an
installation with thousands of idle topics costs nothing, and one where everything moves at once
keeps fewer looks: the oldest go when there are too many samples.

A sample of silence, when nothing of the series answered, is stored as `SILENCE` and read as None.

Samples of a series are in one array of doubles: (number of the look, its values...) and so on.
"""

from __future__ import annotations

import itertools
import math
from array import array
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from penstock import limits

Values = tuple[float, ...]
SILENCE = math.inf  # each value of such a sample; no rate and no level is

_DROPPED_AT_ONCE = 8  # this part of the looks goes when there are too many samples
_LOOKS_MIN = 3  # what a rule about growth needs
_TRIMMED_EVERY = 50  # looks: samples that are too old are removed so often


class Sample(NamedTuple):
    time_s: float
    values: Values | None  # None: nobody looked, or nobody answered


class Recent:
    def __init__(
        self, width: int, span_s: float = limits.ADMIN_RECENT_S,
        samples_max: int = limits.ADMIN_RECENT_SAMPLES,
    ) -> None:  # fmt: skip
        """`width`: how many values a sample has."""
        self._stride = width + 1
        self._span_s = span_s
        self._samples_max = samples_max
        self._times: deque[float] = deque()
        self._first = 0  # the number of the oldest look that is kept
        self._series: dict[str, array[float]] = {}
        self.sample_count = 0

    def take(self, time_s: float, series: Mapping[str, Values]) -> None:
        """A series that is not there any more is forgotten."""
        number = self._first + len(self._times)
        self._times.append(time_s)
        for name, values in series.items():
            kept = self._series.get(name)
            if kept is None:
                kept = self._series[name] = array("d")
            if not kept or tuple(kept[1 - self._stride :]) != values:
                kept.extend((number, *values))
                self.sample_count += 1
        for name in self._series.keys() - series.keys():
            self.sample_count -= len(self._series.pop(name)) // self._stride
        while self._times[0] < time_s - self._span_s:
            self._forget(1)
        if number % _TRIMMED_EVERY == 0 or self.sample_count > self._samples_max:
            self._trim()

    def samples(self, name: str, span_s: float = math.inf) -> list[Sample]:
        """Those of the last seconds."""
        kept = self._series.get(name)
        if not kept:
            return []
        wanted = 0
        for time_s in reversed(self._times):
            if time_s < self._times[-1] - span_s:
                break
            wanted += 1
        stride, number = self._stride, self._first + len(self._times) - wanted
        at = len(kept) - stride
        while at and kept[at] > number:
            at -= stride
        return list(self._expanded(kept, at, number))

    def _expanded(self, kept: array[float], at: int, number: int) -> Iterator[Sample]:
        """From this place and this look on."""
        stride, end = self._stride, len(kept)
        for time_s in itertools.islice(self._times, number - self._first, None):
            while at + stride < end and kept[at + stride] <= number:
                at += stride
            if kept[at] <= number:
                yield Sample(time_s, heard(tuple(kept[at + 1 : at + stride])))
            number += 1

    def _forget(self, count: int) -> None:
        for _ in range(count):
            self._times.popleft()
        self._first += count

    def _trim(self) -> None:
        """Remove samples that no look needs; and looks, when there still are too many samples."""
        self._remove_old()
        while self.sample_count > self._samples_max and len(self._times) > _LOOKS_MIN:
            self._forget(max(1, min(len(self._times) // _DROPPED_AT_ONCE,
                                    len(self._times) - _LOOKS_MIN)))  # fmt: skip
            self._remove_old()

    def _remove_old(self) -> None:
        stride = self._stride
        for kept in self._series.values():
            at = 0
            while at + stride < len(kept) and kept[at + stride] <= self._first:
                at += stride
            if at:
                del kept[:at]
                self.sample_count -= at // stride


def heard(values: Values) -> Values | None:
    return None if values[0] == SILENCE else values
