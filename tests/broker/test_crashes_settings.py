"""The histories of `test_crashes.py` with settings that change, and with a maximum age.

- However often a topic goes from `os` to `disk` and back: what was answered with OK on `disk`, and
  what was answered before it got there, survives a power loss.
- What is too old is not sent, also after a kill; what is young enough is not missing.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import examples
from penstock import limits

from .test_crashes import CHANNELS, STEPS, History

pytestmark = pytest.mark.usefixtures("quiet")

AGE_MAX_NS = 30 * limits.SECOND
LATE_NS_MAX = 2 * limits.SECOND  # it is looked for once a second, and what comes is taken as often


class ChangingHistory(History):
    """One more step: `switch` goes to the other durability."""

    def step(self, kind: str, value: int) -> None:
        if kind != "switch":
            super().step(kind, value)
            return
        faults, self.disk.faults = self.disk.faults, []
        self.durability = "os" if self.durability == "disk" else "disk"
        self.world.broker.topic("t").configure({"durability": self.durability})
        self.disk.faults = faults
        self.take()
        self.world.broker.validate()


class AgedHistory(History):
    def begin(self) -> None:
        super().begin()
        self.published_ns: dict[bytes, int] = getattr(self, "published_ns", {})
        self.delayed: set[bytes] = getattr(self, "delayed", set())
        self.delivered: dict[str, set[bytes]] = getattr(
            self, "delivered", {name: set() for name in CHANNELS}
        )
        self.world.broker.topic("t").configure({"max_age_ns": AGE_MAX_NS})
        self.world.broker.housekeeping()  # as the daemon does before it serves anyone
        self.world.turn()

    def connect(self) -> None:
        super().connect()
        for consumer in self.consumers:
            consumer.ready(1)  # so that there is a backlog which gets old

    def publish(self, count: int, delay_ns: int = 0) -> None:
        before = len(self.published)
        super().publish(count, delay_ns % AGE_MAX_NS)  # a longer delay is refused
        for body in self.published[before:]:
            self.published_ns[body] = self.clock.wall_ns()
            if delay_ns:
                self.delayed.add(body)

    def pass_seconds(self, count: int) -> None:
        for _ in range(count):
            super().pass_seconds(1)
            self.take()

    def take(self) -> None:
        super().take()
        now_ns = self.clock.wall_ns()
        for consumer in self.consumers:
            for message in consumer.received:
                age_ns = now_ns - self.published_ns[message.body]
                assert age_ns <= AGE_MAX_NS + LATE_NS_MAX, f"{message} is too old to be sent"
                self.delivered[consumer.channel.name].add(message.body)
            consumer.received.clear()

    def drain(self) -> None:
        self.disk.faults.clear()
        self.world.broker.topic("t").unpause()
        self.take()
        for consumer in self.consumers:
            consumer.ready(1000)
        oldest_ns = self.clock.wall_ns() - AGE_MAX_NS + 3 * limits.SECOND
        owed = {
            body
            for body in self.promised - self.delayed
            if self.published_ns[body] > oldest_ns
        }  # fmt: skip
        for _ in range(3):
            for value in range(len(CHANNELS)):
                self.answer("finish", value + 1000 * len(CHANNELS))
            self.pass_seconds(1)
        for name, got in self.delivered.items():
            assert owed <= got, f"{name} never got {owed - got}"
        self.pass_seconds(100)  # longer than any age, delay and timeout
        for channel in self.world.broker.topic("t").channels.values():
            assert channel.unfinished == 0
        self.world.broker.close()
        self.world.engine.close()


@settings(max_examples=examples(100), deadline=None)
@given(STEPS, st.lists(st.integers(0, 50), max_size=8), st.sampled_from(["disk", "os"]))
def test_durability_may_change_at_any_time(
    steps: list[tuple[str, int]], switches: list[int], durability: str
) -> None:
    history = ChangingHistory(durability)
    mixed = list(steps)
    for place in switches:
        mixed.insert(place % (len(mixed) + 1), ("switch", 0))
    for kind, value in mixed:
        history.step(kind, value)
    history.drain()


@settings(max_examples=examples(150), deadline=None)
@given(STEPS, st.sampled_from(["disk", "os"]))
def test_what_is_too_old_does_not_come(steps: list[tuple[str, int]], durability: str) -> None:
    history = AgedHistory(durability)
    for kind, value in steps:
        history.step(kind, value)
    history.drain()
