"""What a turn does, and in which order, with a kernel and a broker that only take notes."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import limits
from penstock.kernel import Event
from penstock.net.order import LOAD_ROUNDS_MAX, NEVER_NS

from .recorder import Recorder

NOW_NS = 1_000 * limits.SECOND
LINE = (Event.LINE, "conn", [b"NOP"])


@pytest.fixture
def world() -> Recorder:
    world = Recorder()
    world.frozen_ns = NOW_NS
    return world


def test_the_sequence_of_a_full_turn(world: Recorder) -> None:
    failed = (Event.PUB_FAILED, "conn", 1, "tail")
    world.polled.append([LINE])
    world.flushed += [[(Event.NEED, "window", 1, 7), failed], []]
    world.tails, world.windows, world.conns = ["tail"], ["window"], ["conn"]
    world.done.append("job")
    world.order.trace_due_ns = NOW_NS
    assert not world.order.run(NOW_NS)
    assert world.notes == [
        "poll",
        ("handle", LINE),
        "synced",
        ("write", ["tail"]),
        "write_trace",
        "flush",
        ("load", "window", 1, 7),
        ("handle", failed),
        "flush",
        ("journal", ["window"]),
        ("serve", ["conn"]),
    ]


def test_links_that_want_to_be_served_are_though_no_connection_does(world: Recorder) -> None:
    world.again = {"link": None}
    world.order.run(NOW_NS)
    assert world.notes[-1] == ("serve", [])


def test_an_empty_turn_calls_nothing_that_it_need_not(world: Recorder) -> None:
    world.order.run(NOW_NS)
    assert world.notes == ["poll", "flush"]


def test_a_sync_that_ran_at_once_is_answered_in_the_same_turn(world: Recorder) -> None:
    def write(tails: list[Any], wall_ns: int) -> None:
        world.notes.append("write")
        world.done.append("job")

    world.write = write  # type: ignore[method-assign]
    world.tails = ["tail"]
    world.order.run(NOW_NS)
    assert world.notes == ["poll", "write", "synced", "flush"]


@pytest.mark.parametrize("place", ["handle", "synced", "synced after write"])
def test_a_turn_that_is_stopped_writes_and_sends_nothing_more(world: Recorder, place: str) -> None:
    def stop(*_: object) -> None:
        world.notes.append("stop")
        world.order.stopped = True

    world.polled.append([LINE])
    world.tails = ["tail"]
    if place == "handle":
        world.handle = stop  # type: ignore[method-assign]
        world.done.append("job")
    else:
        world.synced = stop  # type: ignore[method-assign]
    if place == "synced":
        world.done.append("job")
    elif place == "synced after write":
        world.write = lambda tails, wall_ns: world.done.append("job")  # type: ignore[method-assign]
    world.busy = True
    assert not world.order.run(NOW_NS)
    assert world.notes[-1] == "stop"


def test_busy_means_again(world: Recorder) -> None:
    world.busy = True
    assert world.order.run(NOW_NS)


def test_a_deep_backlog_is_loaded_in_portions(world: Recorder) -> None:
    world.flushed += [[(Event.NEED, "window", 0, 0)]] * (LOAD_ROUNDS_MAX + 3)
    loads = []
    while world.order.run(NOW_NS):
        loads.append(len([note for note in world.notes if note[0] == "load"]))
        world.notes.clear()
    loads.append(len([note for note in world.notes if note[0] == "load"]))
    assert loads == [LOAD_ROUNDS_MAX + 1, 2]


def test_a_tick_hears_what_has_come_before_it_looks_at_the_timers(world: Recorder) -> None:
    world.polled.append([LINE])
    world.wait_ns = 5
    assert world.order.tick() == (False, NOW_NS + 5)
    heard = ["poll", ("handle", LINE), "flush"]
    assert world.notes == [*heard, "tick"]
    world.notes.clear()
    world.has_work = True  # a timer has fired
    assert world.order.tick() == (False, NOW_NS + 5)
    assert world.notes == ["poll", "flush", "tick", "poll", "flush", "tick"]


def test_the_next_turn_is_due_at_the_first_of_all_times(world: Recorder) -> None:
    order = world.order
    assert order.tick() == (False, NEVER_NS)
    assert order.due_ns(NOW_NS) == NOW_NS
    world.deadline_ns = NOW_NS - 1
    assert order.due_ns(NOW_NS) == NOW_NS - 1
    order.trace_due_ns = NOW_NS - 2
    assert order.due_ns(NOW_NS) == NOW_NS - 2


def stored(world: Recorder, turns: int) -> int:
    """How often the events were stored in so many turns."""
    world.notes.clear()
    for _ in range(turns):
        world.order.run(world.frozen_ns)
    return world.notes.count("write_trace")


def test_events_are_gathered_for_a_while(world: Recorder) -> None:
    """And then stored before the flush, so that who reads them is not a turn behind."""
    world.trace_pending = True
    assert stored(world, 3) == 0
    world.frozen_ns += limits.TRACE_GATHER_NS - 1
    assert stored(world, 3) == 0
    world.frozen_ns += 1
    assert stored(world, 1) == 1
    assert world.notes.index("write_trace") < world.notes.index("flush")
    assert stored(world, 1) == 0  # there is nothing new
    world.trace_pending = True
    world.frozen_ns += limits.TRACE_GATHER_NS
    assert stored(world, 1) == 0  # the new ones begin a time of their own


def test_a_whole_chunk_of_events_does_not_wait(world: Recorder) -> None:
    world.trace_pending = True
    assert stored(world, 1) == 0
    world.trace_full = True
    assert stored(world, 1) == 1
