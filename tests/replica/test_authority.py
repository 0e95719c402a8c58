"""A leader on a clock, cut off, asleep or replaced: what it may still do, and for how long.

Heartbeats and questions to the coordinator are answered late, and read later still where the
process sleeps. With another member, that one is elected when it has lost its link; without one, an
operator recovers the partition elsewhere (I4, I29).
"""

from __future__ import annotations

import random
from typing import NamedTuple

from penstock.limits import AUTHORITY_NS, MS, SECOND
from penstock.replica.authority import Heard, Isolation
from penstock.replica.leading import LeaderLine
from penstock.replica.matching import Extent
from penstock.replica.record import Member, Record, Seat
from sim.protocol.modellog import ModelLog

HISTORIES, STEPS = 500, 200
TURN_NS = 50 * MS
EPOCH, SELF, OTHER = 5, 0, 1
SEAT = Seat(SELF, 1, 100)
MEMBERS = (Member(SELF, 100, 1), Member(OTHER, 101, 1))


class Reply(NamedTuple):
    """On its way to the leader's process, or in its buffer."""

    sent_ns: int  # what it answers
    there_ns: int
    from_coordinator: bool
    is_in_force: bool


class World:
    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.dice = random.Random(seed)
        self.now_ns = 1000 * SECOND
        self.is_alone = self.dice.random() < 0.5
        self.isolation = Isolation(
            self.dice.choice((0, 2, 10)) * SECOND, self.dice.choice((5, 20)) * SECOND
        )
        self.heard = Heard()
        self.line = self.new_line()
        self.linked = self.coordinated = True
        self.slept_until_ns = 0
        self.replaced_ns: int | None = None
        self.replies: list[Reply] = []
        self.turns_replaced = 0

    def new_line(self) -> LeaderLine:
        members = MEMBERS[:1] if self.is_alone else MEMBERS
        record = Record(7, EPOCH, SEAT, members, 1, (SELF, OTHER))
        line = LeaderLine(
            ModelLog(), record, 1, SEAT, 1, 0, False,
            heard=self.heard, confirmed_ns=self.now_ns, isolation=self.isolation,
        )  # fmt: skip
        if not self.is_alone:
            line.linked(OTHER)
            session = line.peers[OTHER].session
            line.told(OTHER, session, 101, 1, Extent(0, 0, ()))
            line.matched(OTHER, session, 0)
            line.acknowledged(OTHER, session, EPOCH, 101, 0, 0)
        return line

    def step(self) -> None:
        what = ("turn", "pass", "unlink", "part", "mend", "sleep", "replace")
        match self.dice.choices(what, (100, 30, 4, 4, 2, 2, 20))[0]:
            case "turn":
                self.turn()
            case "pass":
                self.now_ns += self.dice.choice((10 * MS, 300 * MS, SECOND, 3 * SECOND))
            case "unlink":
                self.linked = False
            case "part":
                self.coordinated = False
            case "mend":
                self.linked = self.coordinated = True
            case "sleep":
                self.slept_until_ns = self.now_ns + self.dice.randint(1, 60) * SECOND
            case _:
                self.replace()

    def replace(self) -> None:
        """By the other member, which cannot reach it; or by an operator, who cannot either."""
        is_reached = self.coordinated if self.is_alone else self.linked
        if self.replaced_ns is None and (not is_reached or self.now_ns < self.slept_until_ns):
            self.replaced_ns = self.now_ns

    def turn(self) -> None:
        """It reads what has come, does what it may, and asks again."""
        self.now_ns += TURN_NS
        if self.now_ns < self.slept_until_ns or self.line.over:
            return
        there = [one for one in self.replies if one.there_ns <= self.now_ns]
        self.replies = [one for one in self.replies if one.there_ns > self.now_ns]
        for reply in there:
            if not reply.from_coordinator:
                self.heard.answered(OTHER, reply.sent_ns)
            elif reply.is_in_force:
                self.heard.confirmed(reply.sent_ns)
            else:
                self.line.leave("the record names another office")
        self.line.tick(self.now_ns)
        self.check()
        late_ns, in_force = self.dice.randint(0, SECOND), self.replaced_ns is None
        if self.linked and in_force and not self.is_alone:
            self.replies.append(Reply(self.now_ns, self.now_ns + late_ns, False, True))
        if self.coordinated:
            self.replies.append(Reply(self.now_ns, self.now_ns + late_ns, True, in_force))

    def check(self) -> None:
        if self.replaced_ns is None or self.line.over:
            return
        since_ns, permits = self.now_ns - self.replaced_ns, self.line.permits
        self.turns_replaced += 1
        publish_ns = max(self.isolation.publish_ns, AUTHORITY_NS)
        told = f"seed {self.seed}, {since_ns} ns after another took office: {permits}"
        assert not permits.acts or since_ns <= AUTHORITY_NS, told
        if self.is_alone:
            assert not permits.publishes or since_ns <= publish_ns, told
        else:
            delivery_ns = AUTHORITY_NS + self.isolation.delivery_ns
            assert not permits.delivers or since_ns <= delivery_ns, told

    def calm(self) -> None:
        self.linked = self.coordinated = True
        self.slept_until_ns, self.replaced_ns = 0, None
        self.replies.clear()
        self.line = self.new_line()
        for _ in range(60):
            self.turn()
        assert all(self.line.permits), f"seed {self.seed}"


def test_a_leader_that_was_replaced_stops() -> None:
    turns_replaced = 0
    for seed in range(HISTORIES):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.calm()
        turns_replaced += world.turns_replaced
    assert turns_replaced > 5 * HISTORIES  # else nothing was shown
