"""Whole histories on a simulated disk: publishes, deliveries, answers, kills, power losses and bad
writes in any order, and at the end everybody must have got what was promised.

- A message that was answered with OK reaches every channel that was there, or is still owed to it.
- Nothing is delivered that was not published.
- After a kill nothing comes again that was finished, unless the disk failed as well; after a
  power loss, nothing that was finished before the last time everything was synced.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import examples
from penstock import limits
from sim.clock import FakeClock
from sim.disk import Fault, SimDisk

from ..staging import empty, on
from ..world import Consumer, Message, Outcome

pytestmark = pytest.mark.usefixtures("quiet")

CHANNELS = ("a", "b")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 4)),
        st.tuples(st.just("publish"), st.integers(1, 4)),
        st.tuples(st.just("delay"), st.integers(1, 100)),
        st.tuples(st.just("finish"), st.integers(0, 10)),
        st.tuples(st.just("finish"), st.integers(0, 10)),
        st.tuples(st.just("requeue"), st.integers(0, 10)),
        st.tuples(st.just("put off"), st.integers(0, 10)),
        st.tuples(st.just("second"), st.integers(1, 70)),
        st.tuples(st.just("pause"), st.integers(0, 1)),
        st.tuples(st.just("restart"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("kill"), st.just(0)),
        st.tuples(st.just("crash"), st.integers(0, 1000)),
        st.tuples(st.just("crash"), st.integers(0, 1000)),
        st.tuples(st.just("bad write"), st.integers(0, 2)),
    ),
    max_size=50,
)


class History:
    def __init__(self, durability: str, partitions: int) -> None:
        self.disk = empty(SimDisk())
        self.clock = FakeClock()
        self.durability = durability
        self.published: list[bytes] = []
        self.promised: set[bytes] = set()  # answered with OK
        self.pending: list[tuple[list[bytes], Outcome]] = []
        self.finished: dict[str, set[bytes]] = {name: set() for name in CHANNELS}
        self.over: dict[str, set[bytes]] = {name: set() for name in CHANNELS}  # must not come again
        self.certain: dict[str, set[bytes]] = {name: set() for name in CHANNELS}  # ... and synced
        self.begin()
        for name in CHANNELS:
            self.world.broker.topic("t", partitions).channel(name)
        self.connect()
        self.world.pass_ns(limits.JOURNAL_SYNC_EVERY_NS)

    def begin(self) -> None:
        self.world = on(
            self.disk, clock=self.clock, durability=self.durability, segment_bytes_max=600,
            journal_bytes_max=500, retain_age_ns=0, retain_bytes=0,
        )  # fmt: skip

    def connect(self) -> None:
        topic = self.world.broker.topic("t")
        self.consumers = [Consumer(self.world, topic.channel(name), 50) for name in CHANNELS]
        self.held: dict[str, list[Message]] = {name: [] for name in CHANNELS}

    # --- steps ---

    def publish(self, count: int, delay_ns: int = 0) -> None:
        bodies = [b"%d" % (len(self.published) + number) for number in range(count)]
        self.published += bodies
        due_ns = self.clock.wall_ns() + delay_ns if delay_ns else 0
        outcome = Outcome()
        self.world.broker.topic("t").publish(bodies, due_ns, outcome)
        self.pending.append((bodies, outcome))

    def take(self) -> None:
        for consumer in self.consumers:
            name = consumer.channel.name
            got = consumer.take()
            assert {message.body for message in got} <= set(self.published)
            again = {message.body for message in got} & self.over[name]
            assert not again, f"{name} got {again} again after FIN"
            self.held[name] += got
        for bodies, outcome in self.pending:
            if outcome.stored:
                self.promised.update(bodies)
        self.pending = [
            (bodies, outcome) for bodies, outcome in self.pending if not outcome.answers
        ]

    def answer(self, kind: str, value: int) -> None:
        consumer = self.consumers[value % len(self.consumers)]
        name = consumer.channel.name
        count = value // len(self.consumers) + 1
        chosen, self.held[name] = self.held[name][:count], self.held[name][count:]
        if kind == "finish":
            windows = consumer.channel.windows.values()
            flying = {record[1] for one in windows for record in one.in_flight_records(1000)}
            done = [message for message in chosen if int(message.id, 16) in flying]
            consumer.finish(*done)
            self.finished[name].update(message.body for message in done)
            self.over[name].update(message.body for message in done)
            return
        for message in chosen:
            consumer.requeue(message, 3 * limits.SECOND if kind == "put off" else 0)

    def pass_seconds(self, count: int) -> None:
        self.world.pass_ns(count * limits.SECOND)
        if not self.world.broker.context.touched and self.world.broker.health == "OK":
            self.certain = {name: set(done) for name, done in self.over.items()}

    def end(self, kind: str, seed: int) -> None:
        self.take()
        if kind == "restart":
            self.world.broker.close()
            if self.world.broker.health == "OK":
                self.certain = {name: set(done) for name, done in self.over.items()}
            else:
                self.over = {name: set(done) for name, done in self.certain.items()}
        elif kind == "kill":
            if any(fault.failed for fault in self.disk.faults if "channels" in fault.path_part):
                self.over = {name: set(done) for name, done in self.certain.items()}
            self.disk.kill()
        else:
            self.disk.crash(random.Random(seed))
            self.over = {name: set(done) for name, done in self.certain.items()}
            if self.durability == "os":
                self.promised -= set(self.published)  # it may take what was not yet synced
        self.disk.faults.clear()
        self.world.engine.close()
        self.pending.clear()
        self.begin()
        self.connect()

    def step(self, kind: str, value: int) -> None:
        if kind == "publish":
            self.publish(value)
        elif kind == "delay":
            self.publish(1, value * limits.SECOND)
        elif kind in ("finish", "requeue", "put off"):
            self.answer(kind, value)
        elif kind == "second":
            self.pass_seconds(value)
        elif kind == "pause":
            topic = self.world.broker.topic("t")
            topic.set_paused(not topic.paused)
        elif kind == "switch":
            self.switch()
        elif kind == "bad write":
            part = (".log", "channels.", "mark")[value]
            self.disk.inject(Fault("write", path_part=part, written=0.5))
        else:
            self.end(kind, value)
        self.take()
        self.world.broker.validate()

    def switch(self) -> None:
        """To the other durability."""
        faults, self.disk.faults = self.disk.faults, []
        self.durability = "os" if self.durability == "disk" else "disk"
        self.world.broker.topic("t").configure({"durability": self.durability})
        self.disk.faults = faults

    def drain(self) -> None:
        """Let everything come that is owed."""
        self.disk.faults.clear()
        self.world.broker.topic("t").set_paused(False)
        for _ in range(40):
            self.take()
            for value in range(len(CHANNELS)):
                self.answer("finish", value + 1000 * len(CHANNELS))
            self.pass_seconds(70)
            if all(self.promised <= done for done in self.finished.values()):
                break
        for name, done in self.finished.items():
            assert self.promised <= done, f"{name} never got {self.promised - done}"
        self.world.broker.close()
        self.world.engine.close()


SWITCHES = st.just(list[int]()) | st.lists(st.integers(0, 50), max_size=8)


@settings(max_examples=examples(430), deadline=None)
@given(STEPS, SWITCHES, st.sampled_from(["disk", "os"]), st.sampled_from([1, 1, 3]))
def test_acknowledged_messages_survive_with_any_durability(
    steps: list[tuple[str, int]], switches: list[int], durability: str, partitions: int
) -> None:
    """What was answered with OK on `disk`, and what was answered before it got there, survives."""
    history = History(durability, partitions)
    mixed = list(steps)
    for place in switches:
        mixed.insert(place % (len(mixed) + 1), ("switch", 0))
    for kind, value in mixed:
        history.step(kind, value)
    history.drain()
