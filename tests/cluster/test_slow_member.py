"""Which node holds up the others: see `cluster/membership.py`."""

from __future__ import annotations

from penstock.cluster.membership import Slowness
from penstock.limits import SLOW_LOOKS, SLOW_LOOKS_MIN


def look(slowness: Slowness, count: int, *nodes: int) -> None:
    for _ in range(count):
        slowness.looked(frozenset(nodes))


def test_a_node_is_slow_for_which_commits_wait_half_of_the_time() -> None:
    slowness = Slowness()
    look(slowness, SLOW_LOOKS)
    look(slowness, SLOW_LOOKS_MIN - 1, 3)
    assert slowness.slow_nodes() == []
    look(slowness, 1, 3)
    assert slowness.slow_nodes() == [3]


def test_where_two_are_slow_nobody_is() -> None:
    slowness = Slowness()
    look(slowness, SLOW_LOOKS, 2, 3)
    assert slowness.slow_nodes() == []


def test_what_is_long_ago_is_forgotten_and_so_is_a_node_that_was_dropped() -> None:
    slowness = Slowness()
    look(slowness, SLOW_LOOKS, 3)
    look(slowness, SLOW_LOOKS - SLOW_LOOKS_MIN + 1)
    assert slowness.slow_nodes() == []
    look(slowness, SLOW_LOOKS, 3)
    slowness.forget(3)
    assert slowness.slow_nodes() == []
