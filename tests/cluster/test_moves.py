"""Moves: the table by examples, then over records that change at random meanwhile."""

import random

from cases import each
from penstock.cluster.keys import PartitionName
from penstock.cluster.moves import Copy, MoveState, PartitionMove, may_begin, next_record, state_of
from penstock.replication.record import (
    LeaderId,
    Member,
    PartitionRecord,
    elected,
    regrouped,
    successor,
    superfluous,
)
from sim.protocol.record_rules import broken_rule

NAME = PartitionName("t", 0)


def member(node: int) -> Member:
    return Member(node, 100 + node, 1)


def leader_id(node: int) -> LeaderId:
    return LeaderId(node, 10 + node, 100 + node)


def record(
    leader: int, members: tuple[int, ...], wanted: tuple[int, ...], least: int
) -> PartitionRecord:
    return PartitionRecord(7, 5, leader_id(leader), tuple(map(member, members)), least, wanted)


# --- a few at a time ---


def copy(number: int, source: int, target: int, spare: int = 1) -> Copy:
    return Copy(PartitionName("t", number), source, target, spare, True)


def test_a_few_copies_at_a_time() -> None:
    """Two into a node, four out of one."""
    waiting = [copy(number, 1, 2 + number % 3) for number in range(9)]
    chosen = may_begin(waiting, [])
    assert [one.partition.number for one in chosen] == [0, 1, 2, 3]
    assert may_begin(waiting, chosen) == []
    assert may_begin(waiting[4:], chosen[1:]) == [waiting[4]]
    assert may_begin([copy(number, number, 2) for number in range(4)], []) == [
        copy(0, 0, 2),
        copy(1, 1, 2),
    ]


def test_the_most_urgent_first() -> None:
    at_its_minimum = copy(9, 1, 4, spare=0)
    repair = copy(8, 1, 2)._replace(is_move=False)
    early, late = copy(6, 1, 2), copy(7, 1, 3)
    chosen = may_begin([late, early, repair, at_its_minimum], [])
    assert chosen == [at_its_minimum, repair, early, late]


# --- at random ---


class Story:
    """A partition under a move: members come and go, leaders change, and each change is legal."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        nodes = list(range(1, 7))
        origin = tuple(self.dice.sample(nodes, self.dice.randint(1, 3)))
        target = tuple(self.dice.sample(nodes, self.dice.randint(1, 3)))
        self.move = PartitionMove(
            NAME, origin, target, (len(target) + 1) // 2, (len(origin) + 1) // 2
        )
        self.record = record(origin[0], origin, origin, self.move.origin_members_min)

    def put(self, after: PartitionRecord | None) -> None:
        if after is None:
            return
        assert broken_rule(self.record, after) is None
        released = {m.node for m in self.record.members} - {m.node for m in after.members}
        self.record = after
        assert len(after.members) >= after.members_min
        if released and not self.is_falling:
            assert set(after.wanted) <= {m.node for m in after.members}

    is_falling = False

    def step(self, name: str) -> None:
        {
            "control": self.control,
            "take_in": self.take_in,
            "leave_out": self.leave_out,
            "hand_over": self.hand_over,
            "fall_out": self.fall_out,
            "elect": self.elect,
        }[name]()

    def control(self) -> None:
        self.put(next_record(self.move, self.record, self.dice.random() < 0.5))

    def take_in(self) -> None:
        wanted = [n for n in self.record.wanted if self.record.member_on(n) is None]
        if wanted and self.record.leader is not None:
            self.put(regrouped(self.record, added=(member(self.dice.choice(wanted)),)))

    def leave_out(self) -> None:
        gone = superfluous(self.record)
        least = self.record.members_min
        if gone and len(self.record.members) - len(gone) >= least:
            self.put(regrouped(self.record, gone=tuple(map(member, gone))))

    def hand_over(self) -> None:
        node = successor(self.record, set(range(1, 7)))
        if node is not None:
            self.put(elected(self.record, leader_id(node)))

    def fall_out(self) -> None:
        """The leader drops a member that does not answer."""
        leader = self.record.leader
        others = [m for m in self.record.members if leader is None or m.node != leader.node]
        if others and len(self.record.members) > self.record.members_min:
            self.is_falling = True
            self.put(regrouped(self.record, gone=(self.dice.choice(others),)))
            self.is_falling = False

    def elect(self) -> None:
        self.put(elected(self.record, leader_id(self.dice.choice(self.record.members).node)))

    def run(self) -> None:
        names = ["control"] * 4 + ["take_in"] * 3 + ["leave_out", "hand_over"] * 2
        for _ in range(self.dice.randint(0, 40)):
            self.step(self.dice.choice([*names, "fall_out", "elect"]))

    def calm(self) -> None:
        for _ in range(60):
            for name in ("control", "take_in", "leave_out", "hand_over"):
                self.step(name)


@each("first", range(0, 1000, 250))
def test_a_move_ends_whatever_happens_meanwhile(first: int) -> None:
    for seed in range(first, first + 250):
        story = Story(seed)
        story.run()
        story.calm()
        assert state_of(story.move, story.record) is MoveState.DONE, f"seed {seed}: {story.record}"
        assert {m.node for m in story.record.members} == set(story.move.target), seed


@each("first", range(0, 1000, 250))
def test_a_move_is_cancelled_in_each_state(first: int) -> None:
    states = set()
    for seed in range(first, first + 250):
        story = Story(seed)
        origin, least = story.move.origin, story.move.origin_members_min
        story.run()
        states.add(state_of(story.move, story.record))
        move = story.move
        story.move = move._replace(
            origin=move.target, target=origin, members_min=least,
            origin_members_min=move.members_min,
        )  # fmt: skip
        story.calm()
        assert state_of(story.move, story.record) is MoveState.DONE, seed
        assert story.record.wanted == origin, seed
        assert story.record.members_min == least, seed
    assert states == set(MoveState)
