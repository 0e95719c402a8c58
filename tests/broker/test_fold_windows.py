"""The kernel's windows and the journal's fold agree: after every step, what was written so far
folds to what a snapshot says, and a window restored from it owes exactly the messages that are
not done."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from cases import examples
from penstock import kernel
from penstock.kernel import Event
from penstock.log.fold import fold_entries
from sim.clock import START_MONO_NS, START_WALL_NS

from .world import messages

SECOND = 10**9
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 5)),
        st.tuples(st.just("delay"), st.integers(1, 5)),
        st.tuples(st.just("rdy"), st.integers(0, 8)),
        st.tuples(st.just("finish"), st.integers(0, 9)),
        st.tuples(st.just("finish all"), st.just(0)),
        st.tuples(st.just("requeue"), st.integers(0, 9)),
        st.tuples(st.just("put off"), st.integers(0, 9)),
        st.tuples(st.just("touch"), st.integers(0, 9)),
        st.tuples(st.just("time"), st.integers(1, 20)),
        st.tuples(st.just("skip"), st.integers(0, 3)),
        st.tuples(st.just("empty"), st.just(0)),
        st.tuples(st.just("seek"), st.integers(0, 20)),
    ),
    max_size=40,
)


class Bench:
    """One window with one consumer, and what its journal has said."""

    def __init__(self, kernel: ModuleType) -> None:
        self.kernel = kernel
        self.engine = kernel.Engine(1 << 20, 5 << 20, 2500)
        self.tail = self.engine.tail(b"t", 0, 1 << 30)
        self.tail.handing = True
        self.window = self.engine.window(self.tail, 0)
        self.ns = 0
        self.base_id = 1 << 40
        self.journal = b""
        self.held: list[int] = []  # ids in flight
        self.offset_of: dict[int, int] = {}
        self.connect()

    def connect(self) -> None:
        self.conn = self.engine.open_detached()
        self.conn.timeout_ns = 5 * SECOND
        self.conn.feed(b"  V2")
        self.engine.poll(START_MONO_NS)
        self.conn.subscribe(self.window)

    def publish(self, count: int, due_ns: int = 0) -> None:
        for _ in range(count):
            self.tail.append(b"x", due_ns)
        for index in range(count):
            self.offset_of[self.base_id + index] = self.tail.written_end + index
        self.tail.seal(self.base_id, START_WALL_NS, 0)
        self.tail.commit()
        self.base_id += 4096

    def step(self, name: str, value: int) -> None:
        window, serial = self.window, self.conn.serial
        mono_ns, wall_ns = START_MONO_NS + self.ns, START_WALL_NS + self.ns
        chosen = self.held[value % len(self.held)] if self.held else 0
        if name == "publish":
            self.publish(value)
        elif name == "delay":
            self.publish(1, wall_ns + value * SECOND)
        elif name == "rdy":
            self.conn.rdy = value
        elif name == "finish":
            window.finish(serial, chosen)
        elif name == "finish all":
            for id in self.held:
                window.finish(serial, id)
        elif name == "requeue":
            window.requeue(serial, chosen, 0, wall_ns)
        elif name == "put off":
            window.requeue(serial, chosen, 3 * SECOND, wall_ns)
        elif name == "touch":
            window.touch(serial, chosen, mono_ns)
        elif name == "time":
            self.ns += value * SECOND
        elif name == "skip":
            end = self.tail.handed_end
            window.skip(max(end - value, 0), end)
        elif name == "empty":
            window.empty()
        elif name == "seek":
            window.seek(min(value, self.tail.handed_end))
        self.flush()

    def flush(self) -> None:
        mono_ns, wall_ns = START_MONO_NS + self.ns, START_WALL_NS + self.ns
        self.engine.tick(mono_ns, wall_ns)
        for event in self.engine.flush(mono_ns, wall_ns):
            assert event[0] != Event.NEED, "everything is in memory"
        list(messages(self.conn.take_output()))
        self.held = [record[1] for record in self.window.in_flight_records(100)]
        self.window.validate()
        self.journal += self.window.take_journal()

    def owed(self) -> set[int]:
        """The offsets that are not done, by what the window shows from outside."""
        state = fold_entries(self.window.snapshot())
        done = {offset for start, end in state.finished for offset in range(start, end)}
        left = {offset for offset in range(state.low, self.tail.handed_end) if offset not in done}
        return left | {stray.offset for stray in state.strays}

    def deliver_all(self) -> dict[int, int]:
        """Finish everything that comes, by offset, with attempts; after all delays are over."""
        got: dict[int, int] = {}
        self.ns += 10_000 * SECOND
        self.conn.rdy = 100
        for _ in range(1000):
            self.engine.tick(START_MONO_NS + self.ns, START_WALL_NS + self.ns)
            self.engine.flush(START_MONO_NS + self.ns, START_WALL_NS + self.ns)
            sent = list(messages(self.conn.take_output()))
            if not sent:
                return got
            for message in sent:
                id = int(message.id, 16)
                assert self.offset_of[id] not in got, "delivered again after FIN"
                got[self.offset_of[id]] = message.attempts
                assert self.window.finish(self.conn.serial, id) == 0
        raise AssertionError("it does not end")


def check_journal(kernel: ModuleType, steps: list[tuple[str, Any]]) -> None:
    bench = Bench(kernel)
    for name, value in steps:
        bench.step(name, value)
        assert fold_entries(bench.journal) == fold_entries(bench.window.snapshot()), (name, value)
    bench.engine.close()


def check_restore(kernel: ModuleType, steps: list[tuple[str, Any]]) -> None:
    bench = Bench(kernel)
    for name, value in steps:
        bench.step(name, value)
    owed = bench.owed()
    in_flight = {record[0]: record[2] for record in bench.window.in_flight_records(100)}
    state = fold_entries(bench.journal)

    bench.conn.leave()
    bench.engine.forget_window(bench.window)
    bench.window = bench.engine.window(bench.tail, state.low)
    bench.window.restore(state.low, state.next, state.finished, state.strays)
    bench.window.validate()
    bench.journal += bench.window.take_journal()
    assert fold_entries(bench.journal) == state, "restoring changes nothing that is stored"
    bench.connect()
    got = bench.deliver_all()
    assert set(got) == owed
    for offset, attempts in in_flight.items():
        assert got[offset] == attempts + 1
    bench.journal += bench.window.take_journal()
    assert fold_entries(bench.journal) == fold_entries(bench.window.snapshot())
    bench.engine.close()


@settings(max_examples=examples(300), deadline=None)
@given(STEPS)
def test_the_window_writes_what_it_is(steps: list[tuple[str, Any]]) -> None:
    check_journal(kernel, steps)


@settings(max_examples=examples(300), deadline=None)
@given(STEPS)
def test_the_window_comes_back_as_it_was(steps: list[tuple[str, Any]]) -> None:
    check_restore(kernel, steps)
