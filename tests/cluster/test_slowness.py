"""Who is far slower than the others, and when who was dropped comes back."""

from __future__ import annotations

from penstock.cluster.readmission import Readmission
from penstock.cluster.slowness import Slowness
from penstock.limits import (
    MS,
    READMISSION_DOUBLINGS_MAX,
    READMISSION_FORGET_NS,
    READMISSION_NS,
    SECOND,
    SLOW_SAMPLES_MIN,
    SLOW_WINDOW_NS,
)


def measure(slowness: Slowness, node: int, took_ms: float, count: int = 200) -> None:
    for _ in range(count):
        slowness.acknowledged(node, int(took_ms * MS), SECOND)


def test_ten_times_the_others_and_more_than_a_limit_is_slow() -> None:
    slowness = Slowness()
    measure(slowness, 1, 5)
    measure(slowness, 2, 5)
    measure(slowness, 3, 500)
    assert slowness.slow_nodes(SECOND) == [3]


def test_below_the_limit_nobody_is() -> None:
    slowness = Slowness()
    measure(slowness, 1, 0.1)
    measure(slowness, 2, 60)
    assert slowness.slow_nodes(SECOND) == []


def test_where_all_are_slow_nobody_is() -> None:
    slowness = Slowness()
    measure(slowness, 1, 400)
    measure(slowness, 2, 500)
    assert slowness.slow_nodes(SECOND) == []


def test_one_in_a_hundred_is_no_p99() -> None:
    slowness = Slowness()
    measure(slowness, 1, 5)
    measure(slowness, 2, 5, 198)
    measure(slowness, 2, 900, 2)
    assert slowness.slow_nodes(SECOND) == []
    measure(slowness, 2, 900, 10)
    assert slowness.slow_nodes(SECOND) == [2]


def test_few_samples_say_nothing() -> None:
    slowness = Slowness()
    measure(slowness, 1, 5)
    measure(slowness, 2, 900, SLOW_SAMPLES_MIN - 1)
    assert slowness.slow_nodes(SECOND) == []
    measure(slowness, 2, 900, 1)
    assert slowness.slow_nodes(SECOND) == [2]


def test_what_is_older_than_the_window_is_forgotten() -> None:
    slowness = Slowness()
    measure(slowness, 1, 5)
    measure(slowness, 2, 900)
    assert slowness.slow_nodes(SECOND + SLOW_WINDOW_NS // 2) == [2]
    assert slowness.slow_nodes(SECOND + SLOW_WINDOW_NS) == []
    slowness.forget(2)
    assert slowness.slow_nodes(100 * SECOND) == []


# --- readmission ---


def test_a_first_drop_for_a_broken_link_costs_no_waiting() -> None:
    readmission = Readmission()
    readmission.dropped(2, False, 0)
    assert readmission.held_off == set()
    readmission.dropped(2, False, 20 * SECOND)
    assert readmission.held_off == {2}


def test_each_drop_doubles_the_time_of_steady_links() -> None:
    readmission = Readmission()
    now_ns = 0
    for doublings in (0, 1, 2, *range(3, READMISSION_DOUBLINGS_MAX + 3)):
        readmission.dropped(2, True, now_ns)
        hold_ns = READMISSION_NS << min(doublings, READMISSION_DOUBLINGS_MAX)
        assert readmission.admitted(now_ns + hold_ns - 1) == []
        assert readmission.admitted(now_ns + hold_ns) == [2]
        assert readmission.held_off == set()
        now_ns += hold_ns


def test_a_drop_from_many_partitions_counts_once() -> None:
    readmission = Readmission()
    for _ in range(50):
        readmission.dropped(2, True, 0)
    assert readmission.admitted(READMISSION_NS) == [2]


def test_the_time_begins_again_with_the_link() -> None:
    readmission = Readmission()
    readmission.dropped(2, True, 0)
    readmission.unlinked(2)
    assert readmission.admitted(100 * SECOND) == []
    readmission.linked(2, 100 * SECOND)
    assert readmission.admitted(100 * SECOND + READMISSION_NS - 1) == []
    assert readmission.admitted(100 * SECOND + READMISSION_NS) == [2]


def test_after_an_hour_it_is_short_again() -> None:
    readmission = Readmission()
    now_ns = 0
    for _ in range(3):
        readmission.dropped(2, True, now_ns)
        now_ns += 100 * SECOND
        assert readmission.admitted(now_ns) == [2]
    now_ns += READMISSION_FORGET_NS
    readmission.dropped(2, True, now_ns)
    assert readmission.admitted(now_ns + READMISSION_NS) == [2]
