"""Changes of a partition's record: the legal ones, and what is found in others."""

import random
from typing import NamedTuple

from cases import each
from penstock.limits import AUTHORITY_NS, MS, SECOND
from penstock.log.epochs import Extent
from penstock.replication.authority import Evidence, Isolation
from penstock.replication.election import Candidate, MemberReport, election, hindrance, last_resort
from penstock.replication.leader import PartitionLeader
from penstock.replication.record import (
    LeaderId,
    Member,
    PartitionRecord,
    arranged,
    elected,
    regrouped,
    resigned,
    successor,
)
from sim.protocol.modellog import ModelLog
from sim.protocol.record_rules import broken_rule

A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
LEADER_A, LEADER_B = LeaderId(1, 11, 101), LeaderId(2, 12, 102)
RECORD = PartitionRecord(7, 5, LEADER_A, (A, B), 1, (1, 2, 3))


@each(
    "after",
    [
        RECORD,
        elected(RECORD, LEADER_B),
        elected(RECORD, LEADER_B, (A,)),
        resigned(RECORD),
        regrouped(RECORD, gone=(B,)),
        regrouped(RECORD, added=(C,)),
        regrouped(RECORD, gone=(B,), added=(C,)),
        arranged(RECORD, (3, 2, 1), 2),
    ],
)
def test_a_legal_change(after: PartitionRecord) -> None:
    assert broken_rule(RECORD, after) is None


def test_a_nodes_newer_entry_takes_the_place_of_the_older() -> None:
    newer = B._replace(generation=2)
    assert regrouped(RECORD, added=(newer,)).members == (A, newer)


def test_to_whom_the_leader_hands_over() -> None:
    assert successor(RECORD, {1, 2, 3}) is None
    wanted = RECORD._replace(wanted=(3, 2, 1))
    assert successor(wanted, {1, 2, 3}) == 2  # 3 is no member yet
    assert successor(wanted, {1, 3}) is None
    assert successor(RECORD._replace(wanted=(2,)), {2}) == 2
    assert successor(resigned(wanted), {1, 2, 3}) is None


# --- who may lead ---


RECORD_CHOICE = PartitionRecord(7, 5, LeaderId(1, 11, 101), (A, B, C), 2, (1, 2, 3))
SOUND = Candidate(LeaderId(2, 12, 102), 3, 3, 0, waits=False, stopped=False)


RENEWED = RECORD_CHOICE._replace(members=(A, B._replace(generation=2), C))
LOST = SOUND._replace(memory_lost_generation=2)


@each(
    ("record", "candidate", "reason"),
    [
        (RECORD_CHOICE, SOUND._replace(stopped=True), "it is stopped"),
        (RECORD_CHOICE, SOUND._replace(generation=4), "its node's start is not written yet"),
        (RECORD_CHOICE, SOUND._replace(leader_id=LeaderId(2, 12, 999)), "it is no member"),
        (RECORD_CHOICE, SOUND._replace(leader_id=LeaderId(4, 14, 104)), "it is no member"),
        (RECORD_CHOICE, LOST, "its node has lost memory since it became a member"),
        (RENEWED, LOST, None),  # before it became one
        (RECORD_CHOICE, LOST._replace(waits=True), None),  # for the disk: nothing is lost
    ],
)
def test_reasons_not_to_lead(
    record: PartitionRecord, candidate: Candidate, reason: str | None
) -> None:
    assert hindrance(record, candidate) == reason


def test_an_election_leaves_out_whom_it_cannot_reach_as_far_as_the_minimum_allows() -> None:
    record = election(RECORD_CHOICE, SOUND.leader_id, {1, 3})
    assert record.epoch == 6
    assert record.leader == SOUND.leader_id
    assert record.members == (B, C)
    assert election(RECORD_CHOICE, SOUND.leader_id, {2}).members == (A, B, C)


def reports(*ends: int | None) -> list[MemberReport]:
    return [
        MemberReport(member, 2, None if end is None else Extent(0, end, ((5, 0),)))
        for member, end in zip(RECORD_CHOICE.members, ends, strict=False)
    ]


def test_a_newer_epoch_is_more_than_a_greater_end() -> None:
    newer = MemberReport(A, 2, Extent(0, 3, ((5, 0), (6, 2))))
    assert last_resort(RECORD_CHOICE, [newer, *reports(0, 9, 8)[1:]]) == A


def test_where_all_are_gone_nobody_leads() -> None:
    assert last_resort(RECORD_CHOICE, reports(None, None, None)) is None


# --- A leader on a clock, cut off, asleep or replaced: what it may still do, and for how long ---


HISTORIES, STEPS = 500, 200
TURN_NS = 50 * MS
EPOCH, SELF, OTHER = 5, 0, 1
LEADER_ID = LeaderId(SELF, 1, 100)
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
        self.evidence = Evidence()
        self.machine = self.new_line()
        self.linked = self.coordinated = True
        self.slept_until_ns = 0
        self.replaced_ns: int | None = None
        self.replies: list[Reply] = []
        self.turns_replaced = 0

    def new_line(self) -> PartitionLeader:
        members = MEMBERS[:1] if self.is_alone else MEMBERS
        record = PartitionRecord(7, EPOCH, LEADER_ID, members, 1, (SELF, OTHER))
        machine = PartitionLeader(
            ModelLog(), record, 1, LEADER_ID, 1, 0, False,
            evidence=self.evidence, confirmed_ns=self.now_ns, isolation=self.isolation,
        )  # fmt: skip
        if not self.is_alone:
            machine.linked(OTHER)
            session = machine.peers[OTHER].session
            machine.extent_reported(OTHER, session, 101, 1, Extent(0, 0, ()))
            machine.matched(OTHER, session, 0)
            machine.acknowledged(OTHER, session, EPOCH, 101, 0, 0)
        return machine

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
        if self.now_ns < self.slept_until_ns or self.machine.over:
            return
        there = [one for one in self.replies if one.there_ns <= self.now_ns]
        self.replies = [one for one in self.replies if one.there_ns > self.now_ns]
        for reply in there:
            if not reply.from_coordinator:
                self.evidence.answered(OTHER, reply.sent_ns)
            elif reply.is_in_force:
                self.evidence.confirmed(reply.sent_ns)
            else:
                self.machine.leave("the record names another leadership")
        self.machine.tick(self.now_ns)
        self.check()
        late_ns, in_force = self.dice.randint(0, SECOND), self.replaced_ns is None
        if self.linked and in_force and not self.is_alone:
            self.replies.append(Reply(self.now_ns, self.now_ns + late_ns, False, True))
        if self.coordinated:
            self.replies.append(Reply(self.now_ns, self.now_ns + late_ns, True, in_force))

    def check(self) -> None:
        if self.replaced_ns is None or self.machine.over:
            return
        since_ns, permits = self.now_ns - self.replaced_ns, self.machine.permits
        self.turns_replaced += 1
        publish_ns = max(self.isolation.publish_ns, AUTHORITY_NS)
        story = f"seed {self.seed}, {since_ns} ns after another took over: {permits}"
        assert not permits.acts or since_ns <= AUTHORITY_NS, story
        if self.is_alone:
            assert not permits.publishes or since_ns <= publish_ns, story
        else:
            delivery_ns = AUTHORITY_NS + self.isolation.delivery_ns
            assert not permits.delivers or since_ns <= delivery_ns, story

    def calm(self) -> None:
        self.linked = self.coordinated = True
        self.slept_until_ns, self.replaced_ns = 0, None
        self.replies.clear()
        self.machine = self.new_line()
        for _ in range(60):
            self.turn()
        assert all(self.machine.permits), f"seed {self.seed}"


def test_a_leader_that_was_replaced_stops() -> None:
    turns_replaced = 0
    for seed in range(HISTORIES):
        world = World(seed)
        for _ in range(STEPS):
            world.step()
        world.calm()
        turns_replaced += world.turns_replaced
    assert turns_replaced > 5 * HISTORIES  # else nothing was shown
