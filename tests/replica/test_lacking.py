"""No place counts as synced from the record on that lists a stage which is not here."""

from __future__ import annotations

from penstock.log.fold import Position
from penstock.replica.lacking import NOTHING, Lacking

AT = [Position(3, sequence) for sequence in range(6)]


def test_the_places_before_the_record_count() -> None:
    lacking = Lacking()
    lacking.now([7], AT[2])
    lacking.now([7, 8], AT[4])
    assert [lacking.shown(place) for place in AT] == [AT[0], AT[1], AT[1], AT[1], AT[1], AT[1]]
    assert lacking.found(7)
    assert not lacking.found(7)
    assert lacking.shown(AT[5]) == AT[3]
    lacking.now([], AT[5])  # it was unlisted
    assert lacking.shown(AT[5]) == AT[5]


def test_a_snapshot_that_lists_it_again_shows_no_more() -> None:
    lacking = Lacking()
    lacking.now([7], AT[2])
    later = Position(4, 0)
    lacking.now([7, 8], later)
    assert lacking.shown(AT[5]) == AT[1]
    assert lacking.shown(later) == AT[1]
    lacking.found(7)
    assert lacking.shown(AT[5]) == AT[5]
    assert lacking.shown(later) == NOTHING  # the snapshot lists another one that is not here


def test_at_a_start_and_when_a_file_rots_no_place_counts() -> None:
    lacking = Lacking()
    lacking.now([7], NOTHING)
    assert lacking.shown(AT[5]) == NOTHING
    lacking.found(7)
    lacking.lost(8)
    assert lacking.stages == [8]
    assert lacking.shown(AT[5]) == NOTHING
