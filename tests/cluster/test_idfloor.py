"""A node's ids, step by step: above the log, above the floor, and only what is reserved."""

from __future__ import annotations

from penstock.cluster.idfloor import NodeIds
from penstock.ids.guid import make, parse, tick_of
from penstock.limits import ID_RESERVE_TICKS, SECOND

NOW_NS = 1_700_000_000 * SECOND
TICK = tick_of(NOW_NS)


def test_nothing_is_made_before_it_is_reserved() -> None:
    ids = NodeIds(3, 0)
    assert ids.take(1, NOW_NS) is None
    wanted = ids.wanted(NOW_NS)
    assert wanted == TICK + ID_RESERVE_TICKS
    ids.written(wanted)
    assert ids.take(1, NOW_NS) == make(TICK, 3, 0)
    assert ids.wanted(NOW_NS) is None


def test_a_refused_batch_uses_no_id() -> None:
    ids = NodeIds(3, 0)
    assert ids.take(10, NOW_NS) is None
    ids.written(TICK + 1)
    assert ids.take(1, NOW_NS) == make(TICK, 3, 0)


def test_a_replacement_with_a_slow_clock_begins_at_the_floor() -> None:
    floor = TICK + ID_RESERVE_TICKS
    ids = NodeIds(3, floor)
    assert ids.take(1, NOW_NS) is None  # its floor is where what was reserved ends
    ids.written(ids.wanted(NOW_NS) or 0)
    base_id = ids.take(1, NOW_NS)
    assert base_id is not None
    assert parse(base_id)[:3] == (floor, 3, 0)


def test_a_leader_goes_on_above_its_log() -> None:
    ids = NodeIds(3, 0)
    ids.written(TICK + ID_RESERVE_TICKS)
    last_id = make(TICK + 7, 5, 2)
    ids.lead(last_id)
    assert ids.take(1, NOW_NS) == make(TICK + 8, 3, 0)
    ids.lead(last_id)  # of another partition, below
    assert ids.take(1, NOW_NS) == make(TICK + 8, 3, 1)


def test_more_is_wanted_when_half_is_left() -> None:
    ids = NodeIds(3, 0)
    ids.written(TICK + ID_RESERVE_TICKS // 2)
    assert ids.wanted(NOW_NS) is None
    assert ids.wanted(NOW_NS + SECOND) is not None
