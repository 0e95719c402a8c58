"""How often an nsqd is asked."""

from __future__ import annotations

import pytest

from penstock import limits
from penstock.nsqadmin.snapshot import NodeState
from penstock.nsqadmin.upstream import Producer
from penstock.nsqadmin.watch import pause_s


def node(*took_s: float) -> NodeState:
    return NodeState("a:1", Producer("", "a:1", 0, 0, ""), took_s=took_s)


def test_what_costs_little_is_asked_once_an_interval() -> None:
    assert pause_s(1.0, []) == 1.0
    assert pause_s(1.0, [node(), node(0.001)]) == 1.0


def test_an_answer_takes_no_more_than_a_fiftieth_of_the_time() -> None:
    assert pause_s(1.0, [node(0.001), node(0.1, 0.1)]) == pytest.approx(5.0)
    assert pause_s(1.0, [node(60.0)]) == limits.ADMIN_POLL_S_MAX


def test_one_slow_answer_among_quick_ones_slows_nothing() -> None:
    assert pause_s(1.0, [node(0.01, 0.01, 2.0)]) == 1.0
