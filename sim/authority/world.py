"""A leader on a clock, cut off, asleep or replaced: what it may still do, and for how long.

- *I29*: once another is in office, it removes nothing after AUTHORITY_NS, and delivers nothing
  after `--isolated-delivery` more.
- *I4*: a leader that is the only member takes no publish later than `--isolated-publish` after the
  partition was recovered elsewhere: what it answers then is lost.
- *Calm*: when nothing fails any more, a leader in office may do everything.

The machine is the real one (`LeaderLine`). Heartbeats and questions to the coordinator are answered
late, and read later still where the process sleeps. With another member, that one is elected when
it has lost its link; without one, an operator recovers the partition elsewhere.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from penstock.limits import AUTHORITY_NS, MS, SECOND
from penstock.replica.authority import ALL, AuthorityGuards, Heard, Isolation
from penstock.replica.leading import LeaderLine
from penstock.replica.matching import Extent
from penstock.replica.record import Member, Record, Seat
from sim.protocol.modellog import ModelLog

STEPS = 200
TURN_NS = 50 * MS
CALM_TURNS = 60
EPOCH = 5
SELF, OTHER = 0, 1
SEAT = Seat(SELF, 1, 100)
MEMBERS = (Member(SELF, 100, 1), Member(OTHER, 101, 1))


class Broken(AssertionError):
    """A promise was not kept."""


class Reply(NamedTuple):
    """On its way to the leader's process, or in its buffer."""

    sent_ns: int  # what it answers
    there_ns: int
    from_coordinator: bool
    is_in_force: bool  # as the coordinator saw it


class World:
    def __init__(self, seed: int, guards: AuthorityGuards = ALL) -> None:
        self.rng = random.Random(seed)
        self.now_ns = 1000 * SECOND
        self.is_alone = self.rng.random() < 0.5
        self.isolation = Isolation(
            self.rng.choice((0, 2, 10)) * SECOND, self.rng.choice((5, 20)) * SECOND, guards
        )
        self.heard = Heard()
        self.line = self.new_line()
        self.linked = self.coordinated = True
        self.slept_until_ns = 0
        self.replaced_ns: int | None = None
        self.replies: list[Reply] = []
        self.seen: Counter[str] = Counter()
        self.steps: list[tuple[Callable[[], None], int]] = [
            (self.turn, 100), (self.pass_time, 30), (self.cut, 4), (self.part, 4),
            (self.mend, 2), (self.sleep, 2), (self.replace, 20),
        ]  # fmt: skip

    def new_line(self) -> LeaderLine:
        members = MEMBERS[:1] if self.is_alone else MEMBERS
        record = Record(7, EPOCH, SEAT, members, 1, (SELF, OTHER))
        line = LeaderLine(
            ModelLog(), record, 1, SEAT, 1, 0, False,
            heard=self.heard, confirmed_ns=self.now_ns, isolation=self.isolation,
        )  # fmt: skip
        if not self.is_alone:
            self.match(line)
        return line

    def match(self, line: LeaderLine) -> None:
        line.linked(OTHER)
        session = line.peers[OTHER].session
        line.told(OTHER, session, MEMBERS[1].replica, 1, Extent(0, 0, ()))
        line.matched(OTHER, session, 0)
        line.acknowledged(OTHER, session, EPOCH, MEMBERS[1].replica, 0, 0)

    def play(self) -> None:
        steps, weights = zip(*self.steps, strict=True)
        for _ in range(STEPS):
            self.rng.choices(steps, weights)[0]()
        self.calm()

    # --- the leader's process ---

    @property
    def sleeps(self) -> bool:
        return self.now_ns < self.slept_until_ns

    def turn(self) -> None:
        """It reads what has come, does what it may, and asks again."""
        self.now_ns += TURN_NS
        if self.sleeps or self.line.over:
            return
        self.read()
        self.line.tick(self.now_ns)
        self.check()
        self.ask()

    def read(self) -> None:
        there = [one for one in self.replies if one.there_ns <= self.now_ns]
        self.replies = [one for one in self.replies if one.there_ns > self.now_ns]
        for reply in there:
            if not reply.from_coordinator:
                self.heard.answered(OTHER, reply.sent_ns)
            elif reply.is_in_force:
                self.heard.confirmed(reply.sent_ns)
            else:
                self.line.leave("the record names another office")
                self.seen["left"] += 1

    def ask(self) -> None:
        """A heartbeat, and a question; their answers are made at once, and come later."""
        late_ns = self.rng.randint(0, SECOND)
        in_force = self.replaced_ns is None
        if self.linked and in_force and not self.is_alone:
            self.replies.append(Reply(self.now_ns, self.now_ns + late_ns, False, True))
        if self.coordinated:
            self.replies.append(Reply(self.now_ns, self.now_ns + late_ns, True, in_force))

    def check(self) -> None:
        if self.replaced_ns is None or self.line.over:
            return
        since_ns, permits = self.now_ns - self.replaced_ns, self.line.permits
        self.seen["replaced turns"] += 1
        if permits.acts and since_ns > AUTHORITY_NS:
            raise Broken(f"I29: it removes messages {since_ns} ns after another took office")
        publish_ns = max(self.isolation.publish_ns, AUTHORITY_NS)
        delivery_ns = AUTHORITY_NS + self.isolation.delivery_ns
        if self.is_alone and permits.publishes and since_ns > publish_ns:
            raise Broken(f"I4: it takes publishes {since_ns} ns after the recovery elsewhere")
        if not self.is_alone and permits.delivers and since_ns > delivery_ns:
            raise Broken(f"I29: it delivers {since_ns} ns after another took office")

    # --- what happens around it ---

    def pass_time(self) -> None:
        self.now_ns += self.rng.choice((10 * MS, 300 * MS, SECOND, 3 * SECOND))

    def cut(self) -> None:
        """From the other member. What was sent still arrives."""
        self.linked = False

    def part(self) -> None:
        self.coordinated = False

    def mend(self) -> None:
        self.linked = self.coordinated = True

    def sleep(self) -> None:
        self.slept_until_ns = self.now_ns + self.rng.randint(1, 60) * SECOND
        self.seen["slept"] += 1

    def replace(self) -> None:
        """By the other member, which cannot reach it; or by an operator, who cannot either."""
        is_reached = self.coordinated if self.is_alone else self.linked
        if self.replaced_ns is None and (not is_reached or self.sleeps):
            self.replaced_ns = self.now_ns
            self.seen["replaced"] += 1

    # --- calm ---

    def calm(self) -> None:
        self.mend()
        self.slept_until_ns, self.replaced_ns = 0, None
        self.replies.clear()
        self.line = self.new_line()
        for _ in range(CALM_TURNS):
            self.turn()
        if not all(self.line.permits):
            raise Broken(f"Calm: {self.line.permits}")
