"""How far a channel is behind, and when it will not be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.nsqadmin import lag
from penstock.nsqadmin.history import FIELDS, Sample
from penstock.nsqadmin.snapshot import ChannelState


def samples(depths: Sequence[float], out: float = 50.0, every_s: float = 5.0) -> list[Sample]:
    found = []
    for number, depth in enumerate(depths):
        values = dict.fromkeys(FIELDS, 0.0) | {"depth": depth, "out_rate": out}
        found.append(Sample(number * every_s, tuple(values[field] for field in FIELDS)))
    return found


def pace(depths: Sequence[float], out: float = 50.0, **channel: Any) -> lag.Lag:
    given = {"depth": int(depths[-1]), "in_rate": 50.0, "finish_rate": out, "clients": 1} | channel
    return lag.of_channel(ChannelState("t", "c", **given), samples(depths, out))


def test_what_comes_in_batches_is_no_backlog() -> None:
    assert pace([3, 120, 7, 100]).pace == lag.KEEPS_UP
    assert pace([0, 0, 0], in_rate=0.0, finish_rate=0.0) == lag.Lag(lag.IDLE, 0)


def test_one_that_catches_up_has_an_end() -> None:
    found = pace([5000, 4900, 4800, 4700])
    assert (found.pace, found.waits, found.growth) == (lag.GAINS, 4700, pytest.approx(-20))
    assert found.empty_s == pytest.approx(235)


def test_one_that_falls_behind_has_none() -> None:
    found = pace([4700, 4800, 4900, 5000])
    assert (found.pace, found.empty_s) == (lag.LOSES, None)
    assert pace([5000, 5001, 4999, 5000]).pace == lag.HOLDS


def test_those_that_somebody_has_to_look_at() -> None:
    assert pace([9, 10, 11, 12], paused=True).pace == lag.PAUSED
    assert pace([9, 10, 11, 12], clients=0, in_rate=1.0).pace == lag.UNREAD
    assert pace([900, 900, 900], out=0.0).pace == lag.STUCK
    assert {lag.PAUSED, lag.UNREAD, lag.STUCK, lag.LOSES} == lag.LATE


def test_a_few_seconds_say_nothing() -> None:
    assert lag.trend(samples([0, 1000], every_s=1.0)) == 0
    assert lag.trend([]) == 0
    assert lag.trend([*samples([0, 10, 20]), Sample(15.0, None)]) == pytest.approx(2)


def test_shares() -> None:
    assert lag.share(ChannelState("t", "c", depth=30), 120) == 25
    assert lag.share(ChannelState("t", "c"), 0) == 0
