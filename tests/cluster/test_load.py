"""Averages of measured load forget at a pace of their own, whatever the pace of samples."""

from __future__ import annotations

import pytest

from penstock.cluster.load import Average, first_sample, next_sample, rate_sample

HOUR_NS = 3600 * 10**9


def test_half_is_forgotten_in_a_half_life() -> None:
    average = next_sample(first_sample(100.0, 0), 0.0, HOUR_NS, HOUR_NS)
    assert average.value == pytest.approx(50.0)


def test_the_pace_of_samples_does_not_matter() -> None:
    slow = next_sample(first_sample(0.0, 0), 80.0, HOUR_NS, HOUR_NS)
    quick = first_sample(0.0, 0)
    for step in range(1, 61):
        quick = next_sample(quick, 80.0, step * HOUR_NS // 60, HOUR_NS)
    assert quick.value == pytest.approx(slow.value)


def test_a_clock_that_goes_back_changes_nothing() -> None:
    average = first_sample(10.0, HOUR_NS)
    assert next_sample(average, 99.0, 0, HOUR_NS) == Average(10.0, HOUR_NS)
    assert rate_sample(average, 500, 0, 0, HOUR_NS) == average


def test_a_rate_follows_its_counter() -> None:
    average = rate_sample(None, 5, 0, 0, HOUR_NS)
    assert average.value == 0.0
    average = rate_sample(average, 3605, 5, HOUR_NS, HOUR_NS)  # one a second for a half-life
    assert average.value == pytest.approx(0.5)


def test_a_counter_that_fell_was_started_again() -> None:
    average = rate_sample(first_sample(0.0, 0), 7200, 10**9, HOUR_NS, HOUR_NS)
    assert average.value == pytest.approx(1.0)
