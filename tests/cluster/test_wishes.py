"""The leader does what the record wants: who leaves the set, and who leads."""

from __future__ import annotations

from penstock.cluster.documents import ACTIVE, Membership
from penstock.cluster.keys import PartitionName
from penstock.cluster.view import Held, View
from penstock.cluster.wishes import Wishes
from penstock.limits import HEIR_STEADY_NS, WISHES_NS
from penstock.replica.effects import Propose
from penstock.replica.leading import LeaderLine
from penstock.replica.record import Member, Record, Seat
from sim.protocol.modellog import ModelLog

A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
SEAT = Seat(1, 11, 101)


class Desk:
    def __init__(self, *wanted: int, partitions: int = 1) -> None:
        self.handed: list[tuple[int, int]] = []
        self.view = View()
        for node in (1, 2, 3):
            self.generation(node, 1)
        self.lines: dict[PartitionName, LeaderLine] = {}
        self.wishes = Wishes(self.view, self.lines, self.hand_over)
        record = Record(7, 5, SEAT, (A, B, C), 2, wanted)
        for number in range(partitions):
            name = PartitionName("t", number)
            self.lines[name] = LeaderLine(ModelLog(), record, 40, SEAT, 1, 0, waits=False)
            self.wishes.record_changed(name, record)

    def generation(self, node: int, generation: int) -> None:
        document = Membership(1, generation, "", 0, 1, 0, ACTIVE)
        self.view.memberships[node] = Held(document, 5, 5)

    def hand_over(self, name: PartitionName, node: int) -> bool:
        self.handed.append((name.number, node))
        return True

    def proposed(self) -> tuple[Member, ...]:
        (line,) = self.lines.values()
        (proposal,) = [one for one in line.out if isinstance(one, Propose)]
        return proposal.record.members


def test_who_is_not_wanted_any_more_is_left_out() -> None:
    desk = Desk(1, 3)
    desk.wishes.tick(0)
    assert desk.proposed() == (A, C)


def test_where_all_is_as_wanted_there_is_nothing_to_look_at() -> None:
    desk = Desk(1, 2, 3)
    assert desk.wishes.open == set()


def test_an_office_moves_to_who_is_wanted_first_once_its_link_is_steady() -> None:
    desk = Desk(3, 1, 2)
    desk.wishes.linked(3, 0)
    desk.wishes.tick(HEIR_STEADY_NS - 1)
    assert desk.handed == []
    desk.wishes.unlinked(3)
    desk.wishes.tick(HEIR_STEADY_NS + WISHES_NS)
    assert desk.handed == []
    desk.wishes.linked(3, HEIR_STEADY_NS)
    desk.wishes.tick(3 * HEIR_STEADY_NS)
    assert desk.handed == [(0, 3)]


def test_not_to_a_member_whose_node_was_started_again_since() -> None:
    desk = Desk(3, 1, 2)
    desk.wishes.linked(3, -HEIR_STEADY_NS)
    desk.generation(3, 2)
    desk.wishes.tick(0)
    assert desk.handed == []


def test_an_office_that_is_over_has_no_wishes() -> None:
    desk = Desk(3, 1, 2)
    desk.wishes.forget(PartitionName("t", 0))
    desk.lines.clear()
    desk.wishes.linked(3, -HEIR_STEADY_NS)
    desk.wishes.tick(0)
    assert desk.handed == []
