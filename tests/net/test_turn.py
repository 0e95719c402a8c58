"""When turns run, and what they do in which order, with a kernel and a broker that only take notes,
on a loop whose time the tests move."""

import asyncio
from collections import deque
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock import limits
from penstock.clock import NEVER_NS
from penstock.kernel import Event
from penstock.net.turn import LOAD_ROUNDS_MAX, Turn, TurnOrder
from sim.clock import START_MONO_NS, FakeClock
from sim.loop import FakeLoop

MS = limits.MS
NOW_NS = START_MONO_NS


class Recorder:
    def __init__(self) -> None:
        self.notes: list[Any] = []
        self.busy = self.quiet = self.has_work = self.staying = False
        self.trace_pending = self.trace_full = False
        self.deadline_ns = 0
        self.polled: deque[list[tuple[Any, ...]]] = deque()
        self.flushed: deque[list[tuple[Any, ...]]] = deque()
        self.stayed: deque[list[tuple[Any, ...]]] = deque()
        self.tails: list[Any] = []
        self.windows: list[Any] = []
        self.conns: list[Any] = []
        self.again: dict[Any, None] = {}
        self.wait_ns = 0
        self.records = SimpleNamespace(due_ns=NEVER_NS)
        self.gathering = SimpleNamespace(due_ns=NEVER_NS)
        self.done: deque[Any] = deque()
        self.clock = FakeClock()
        self.mono_ns, self.wall_ns = self.clock.mono_ns, self.clock.wall_ns
        self.order = TurnOrder(self, self, self, self, self.done, lambda event: self.handle(event))

    def handle(self, event: tuple[Any, ...]) -> None:
        self.notes.append(("handle", event))

    # engine

    def poll(self, mono_ns: int) -> list[tuple[Any, ...]]:
        self.notes.append("poll")
        return self.polled.popleft() if self.polled else []

    def dirty_tails(self) -> list[Any]:
        return self.tails

    def flush(self, mono_ns: int, wall_ns: int) -> list[tuple[Any, ...]]:
        self.notes.append("flush")
        return self.flushed.popleft() if self.flushed else []

    def dirty_windows(self) -> list[Any]:
        return self.windows

    def tick(self, mono_ns: int, wall_ns: int) -> int:
        self.notes.append("tick")
        return self.wait_ns

    def dirty_detached(self) -> list[Any]:
        return self.conns

    # links

    def serve(self, conns: list[Any]) -> None:
        self.notes.append(("serve", conns))

    # broker

    def write(self, tails: list[Any], wall_ns: int) -> None:
        self.notes.append(("write", tails))

    def stay(self, tail: Any) -> list[tuple[Any, ...]]:
        self.notes.append(("stay", tail))
        return self.stayed.popleft() if self.stayed else []

    def load(self, window: Any, which: int, offset: int) -> None:
        self.notes.append(("load", window, which, offset))

    def journal(self, windows: list[Any]) -> None:
        self.notes.append(("journal", windows))

    def write_gathered(self, mono_ns: int, wall_ns: int) -> None:
        self.notes.append("write_gathered")
        self.gathering.due_ns = NEVER_NS

    def write_trace(self) -> None:
        self.notes.append("write_trace")
        self.trace_pending = self.trace_full = False

    def synced(self) -> None:
        self.notes.append("synced")
        self.done.clear()


@pytest.fixture
def world() -> Recorder:
    return Recorder()


@pytest.fixture
def loop(world: Recorder) -> FakeLoop:
    return FakeLoop(world.clock)


@pytest.fixture
def faults() -> list[Exception]:
    return []


@pytest.fixture
def turn(world: Recorder, loop: FakeLoop, faults: list[Exception]) -> Iterator[Turn]:
    as_loop = cast(asyncio.AbstractEventLoop, loop)
    made = Turn(as_loop, -1, world, faults.append)
    made.order = world.order
    yield made
    made.stop()


def begin(turn: Turn, loop: FakeLoop) -> None:
    turn.start()
    loop.run_ready()


def test_busy_means_again_at_once(world: Recorder, loop: FakeLoop, turn: Turn) -> None:
    world.busy = True
    with pytest.raises(RuntimeError, match="never comes to rest"):
        begin(turn, loop)
    turn.stop()
    loop.run_ready()


def test_after_activity_a_tick_comes_within_its_resolution_and_then_silence(
    world: Recorder, loop: FakeLoop, turn: Turn
) -> None:
    begin(turn, loop)
    loop.pass_ns(limits.TICK_NS, loop.run_ready)
    assert world.notes.count("tick") == 1
    world.notes.clear()
    loop.pass_ns(100 * MS, loop.run_ready)
    assert world.notes == []


@pytest.mark.parametrize("source", ["tick", "engine"])
def test_a_timer_fires_at_its_time(
    world: Recorder, loop: FakeLoop, turn: Turn, source: str
) -> None:
    begin(turn, loop)
    if source == "tick":
        world.wait_ns = 60 * MS
    else:
        world.deadline_ns = NOW_NS + 60 * MS
    turn.tick()
    loop.pass_ns(2 * limits.TICK_NS, loop.run_ready)
    world.notes.clear()
    loop.pass_ns(49 * MS, loop.run_ready)
    assert world.notes == []
    loop.pass_ns(6 * MS, loop.run_ready)
    assert world.notes[0] == "poll"


def test_a_fault_is_reported_and_not_repeated_after_a_stop(
    world: Recorder, loop: FakeLoop, turn: Turn, faults: list[Exception]
) -> None:
    def broken(tails: list[Any], wall_ns: int) -> None:
        raise RuntimeError("impossible")

    begin(turn, loop)
    world.write = broken  # type: ignore[method-assign]
    world.tails = ["tail"]
    turn.soon()
    loop.run_ready()
    turn.tick()
    assert [str(fault) for fault in faults] == ["impossible"] * 2
    for _ in range(2):
        turn.stop()
    turn.soon()
    turn.tick()
    loop.run_ready()
    loop.pass_ns(100 * MS, loop.run_ready)
    assert len(faults) == 2


def test_gathered_events_are_stored_though_nothing_else_happens(
    world: Recorder, loop: FakeLoop, turn: Turn
) -> None:
    world.trace_pending = True
    begin(turn, loop)
    assert "write_trace" not in world.notes
    loop.pass_ns(limits.TRACE_GATHER_NS, loop.run_ready)
    assert "write_trace" in world.notes


def test_gathering_appends_do_not_wait_for_the_next_tick(
    world: Recorder, loop: FakeLoop, turn: Turn
) -> None:
    world.gathering.due_ns = NOW_NS + limits.APPEND_GATHER_NS
    begin(turn, loop)
    loop.pass_ns(limits.APPEND_GATHER_NS, loop.run_ready)
    assert "write_gathered" in world.notes
    assert "tick" not in world.notes


# --- what a turn does, and in which order ---


LINE = (Event.LINE, "conn", [b"NOP"])


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


@pytest.mark.parametrize(
    ("alone", "tails", "others"),
    [
        (True, ["tail"], {}),
        (False, ["tail"], {}),
        (True, ["tail", "other"], {}),
        (True, [], {}),
        (True, ["tail"], {"staying": False}),
        (True, ["tail"], {"quiet": False}),
        (True, ["tail"], {"again": {"link": None}}),
        (True, ["tail"], {"after": print}),
    ],
)
def test_a_turn_stays_after_publishes_to_one_partition_and_nothing_else(
    world: Recorder, alone: bool, tails: list[str], others: dict[str, Any]
) -> None:
    world.tails, world.quiet, world.staying = tails, True, True
    world.order.after = others.pop("after", None)
    for name, value in others.items():
        setattr(world, name, value)
    is_first = alone and tails == ["tail"] and not others and world.order.after is None
    assert not world.order.run(NOW_NS, alone)
    assert (("stay", "tail") in world.notes) is is_first


def test_events_during_a_stay_are_handled_in_that_turn_and_the_next(world: Recorder) -> None:
    world.tails, world.quiet, world.staying = ["tail"], True, True
    world.stayed.append([(Event.NEED, "window", 1, 7)])
    world.windows, world.has_work = ["window"], True
    assert world.order.run(NOW_NS, True)
    assert world.notes[3:] == [
        ("stay", "tail"),
        ("load", "window", 1, 7),
        "flush",
        ("journal", ["window"]),
    ]
    assert world.order.run(NOW_NS, True)  # something it has read: another turn
    world.has_work = False
    assert not world.order.run(NOW_NS, True)


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


def test_a_deep_backlog_is_loaded_in_portions(world: Recorder) -> None:
    world.flushed += [[(Event.NEED, "window", 0, 0)]] * (LOAD_ROUNDS_MAX + 3)
    loads = []
    while world.order.run(NOW_NS):
        loads.append(len([note for note in world.notes if note[0] == "load"]))
        world.notes.clear()
    loads.append(len([note for note in world.notes if note[0] == "load"]))
    assert loads == [LOAD_ROUNDS_MAX + 1, 2]


def test_a_tick_reads_input_before_it_fires_timers(world: Recorder) -> None:
    world.polled.append([LINE])
    world.wait_ns = 5
    assert world.order.tick() == (False, NOW_NS + 5)
    received = ["poll", ("handle", LINE), "flush"]
    assert world.notes == [*received, "tick"]
    world.notes.clear()
    world.has_work = True  # a timer has fired
    assert world.order.tick() == (False, NOW_NS + 5)
    assert world.notes == ["poll", "flush", "tick", "poll", "flush", "tick"]


def stored(world: Recorder, turns: int) -> int:
    """How often the events were stored in so many turns."""
    world.notes.clear()
    for _ in range(turns):
        world.order.run(world.mono_ns())
    return world.notes.count("write_trace")


def test_events_are_gathered_for_a_while(world: Recorder) -> None:
    """And then stored before the flush, so that who reads them is not a turn behind."""
    world.trace_pending = True
    assert stored(world, 3) == 0
    world.clock.pass_ns(limits.TRACE_GATHER_NS - 1)
    assert stored(world, 3) == 0
    world.clock.pass_ns(1)
    assert stored(world, 1) == 1
    assert world.notes.index("write_trace") < world.notes.index("flush")
    assert stored(world, 1) == 0  # there is nothing new
    world.trace_pending = True
    world.clock.pass_ns(limits.TRACE_GATHER_NS)
    assert stored(world, 1) == 0  # the new ones begin a time of their own


def test_gathering_appends_are_written_when_due(world: Recorder) -> None:
    world.gathering.due_ns = NOW_NS + MS
    world.order.run(NOW_NS)
    assert "write_gathered" not in world.notes
    world.notes.clear()
    world.order.run(NOW_NS + MS)
    assert world.notes.index("write_gathered") < world.notes.index("flush")


def test_gathering_records_are_written_without_other_events(world: Recorder) -> None:
    world.quiet, world.records.due_ns = True, NOW_NS + 5 * MS
    world.order.run(NOW_NS)
    assert ("journal", []) not in world.notes
    assert world.order.due_ns(NOW_NS + 60 * MS) == NOW_NS + 5 * MS
    world.order.run(NOW_NS + 5 * MS)
    assert world.notes[-1] == ("journal", [])
