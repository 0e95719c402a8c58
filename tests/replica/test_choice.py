"""Who may lead."""

from __future__ import annotations

from cases import each
from penstock.replica.choice import Candidate, Report, election, hindrance, last_resort
from penstock.replica.matching import Extent
from penstock.replica.record import Member, Record, Seat

A, B, C = Member(1, 101, 1), Member(2, 102, 1), Member(3, 103, 1)
RECORD = Record(7, 5, Seat(1, 11, 101), (A, B, C), 2, (1, 2, 3))
SOUND = Candidate(Seat(2, 12, 102), 3, 3, 0, waits=False, stopped=False)


def test_a_sound_member_may_lead() -> None:
    assert hindrance(RECORD, SOUND) is None


@each(
    ("candidate", "reason"),
    [
        (SOUND._replace(stopped=True), "it is stopped"),
        (SOUND._replace(generation=4), "its node's start is not written yet"),
        (SOUND._replace(seat=Seat(2, 12, 999)), "it is no member"),
        (SOUND._replace(seat=Seat(4, 14, 104)), "it is no member"),
        (
            SOUND._replace(memory_lost_generation=2),
            "its node has lost memory since it became a member",
        ),
    ],
)
def test_who_may_not(candidate: Candidate, reason: str) -> None:
    assert hindrance(RECORD, candidate) == reason


def test_where_the_disk_is_waited_for_lost_memory_takes_nothing() -> None:
    assert hindrance(RECORD, SOUND._replace(memory_lost_generation=2, waits=True)) is None


def test_memory_that_was_lost_before_it_became_a_member_is_forgotten() -> None:
    renewed = RECORD._replace(members=(A, B._replace(generation=2), C))
    assert hindrance(renewed, SOUND._replace(memory_lost_generation=2)) is None


def test_an_election_leaves_out_whom_it_cannot_reach_as_far_as_the_minimum_allows() -> None:
    record = election(RECORD, SOUND.seat, {1, 3})
    assert record.epoch == 6
    assert record.leader == SOUND.seat
    assert record.members == (B, C)
    assert election(RECORD, SOUND.seat, {2}).members == (A, B, C)


def reports(*ends: int | None) -> list[Report]:
    return [
        Report(member, 2, None if end is None else Extent(0, end, ((5, 0),)))
        for member, end in zip(RECORD.members, ends, strict=False)
    ]


def test_where_all_are_suspect_the_one_with_the_most_leads() -> None:
    assert last_resort(RECORD, reports(4, 9, 6)) == B
    assert last_resort(RECORD, reports(4, None, 6)) == C


def test_a_newer_epoch_is_more_than_a_greater_end() -> None:
    newer = Report(A, 2, Extent(0, 3, ((5, 0), (6, 2))))
    assert last_resort(RECORD, [newer, *reports(0, 9, 8)[1:]]) == A


def test_it_waits_for_all_reports() -> None:
    assert last_resort(RECORD, reports(4, 9)) is None


def test_a_sound_member_is_waited_for() -> None:
    sound = Report(C, 1, Extent(0, 2, ((5, 0),)))
    assert last_resort(RECORD, [*reports(4, 9), sound]) is None


def test_where_all_are_gone_nobody_leads() -> None:
    assert last_resort(RECORD, reports(None, None, None)) is None
