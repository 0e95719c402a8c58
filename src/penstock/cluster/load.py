"""Measured load, smoothed: what placement weighs nodes by.

A node's counters jump with every batch job. What placement goes by is an average that forgets half
of what it knew in each half-life, so that a replica is moved because of the last half hour, not the
last minute. Samples may come at any pace: the weight of one follows from the time since the last.
"""

from __future__ import annotations

from typing import NamedTuple


class Average(NamedTuple):
    value: float
    at_ns: int  # of the last sample, on the clock of whoever keeps it


def first_sample(value: float, now_ns: int) -> Average:
    return Average(value, now_ns)


def next_sample(average: Average, value: float, now_ns: int, half_life_ns: int) -> Average:
    """A clock that went back adds a sample of no weight."""
    elapsed_ns = max(now_ns - average.at_ns, 0)
    kept = 0.5 ** (elapsed_ns / half_life_ns)
    return Average(average.value * kept + value * (1.0 - kept), max(now_ns, average.at_ns))


def rate_sample(
    average: Average | None, counted: int, before: int, now_ns: int, half_life_ns: int
) -> Average:
    """Of a counter that only rises, per second; one that fell was started again, from 0."""
    if average is None:
        return first_sample(0.0, now_ns)
    elapsed_ns = now_ns - average.at_ns
    if elapsed_ns <= 0:
        return average
    grown = counted - before if counted >= before else counted
    return next_sample(average, grown * 1e9 / elapsed_ns, now_ns, half_life_ns)
