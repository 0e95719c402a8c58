"""The last minutes in memory: what was taken comes out, and it stays small."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from cases import each
from penstock.nsqadmin.history import FIELDS, Recent, Sample

LOOKS = st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 2)), max_size=40)


@given(LOOKS, st.integers(1, 12), st.integers(0, 50))
def test_what_was_taken_comes_out(looks: list[dict[str, int]], kept_s: int, span_s: int) -> None:
    """As if every sample had been stored."""
    recent = Recent(1, kept_s, samples_max=1_000)
    plain: dict[str, list[Sample]] = {}
    for time_s, look in enumerate(looks):
        recent.take(float(time_s), {name: (float(value),) for name, value in look.items()})
        plain = {
            name: [*plain.get(name, []), Sample(float(time_s), (float(value),))]
            for name, value in look.items()
        }
    for name in "abcd":
        stored = [one for one in plain.get(name, []) if one.time_s >= len(looks) - 1 - kept_s]
        assert recent.samples(name) == stored
        wanted = [one for one in stored if one.time_s >= len(looks) - 1 - span_s]
        assert recent.samples(name, span_s) == wanted


def test_what_does_not_move_costs_nothing() -> None:
    recent = Recent(len(FIELDS))
    idle = {f"t{number}": (0.0,) * len(FIELDS) for number in range(1000)}
    for second in range(1000):
        recent.take(float(second), idle)
    assert recent.sample_count == 1000
    assert len(recent.samples("t7")) == 301


def test_an_hour_in_which_everything_moves_stays_small() -> None:
    """Each look another value everywhere: fewer looks are kept."""
    recent = Recent(2, samples_max=20_000)
    names = [f"t{number}" for number in range(1000)]
    most = 0
    for second in range(0, 3600, 10):
        values = (float(second), 1.0)
        recent.take(float(second), dict.fromkeys(names, values))
        most = max(most, recent.sample_count)
    assert 10_000 < most <= 20_000
    assert sum(len(recent.samples(name)) for name in names) == recent.sample_count
    found = recent.samples("t1")
    assert len(found) >= 3
    assert found[-1] == Sample(3590.0, (3590.0, 1.0))


def test_topics_that_come_and_go_leave_nothing() -> None:
    recent = Recent(1)
    for number in itertools.islice(itertools.count(), 500):
        recent.take(float(number), {f"t{number}": (1.0,)})
    assert recent.sample_count == 1
    assert recent.samples("t1") == []


@each("every_s", [0.2, 1.0, 7.5, 15.0])
def test_five_minutes_are_five_however_seldom_we_look(every_s: float) -> None:
    recent = Recent(1)
    for number in range(int(900 / every_s)):
        recent.take(number * every_s, {"t": (float(number),)})
    found = recent.samples("t")
    assert 300 - every_s <= found[-1].time_s - found[0].time_s <= 300
