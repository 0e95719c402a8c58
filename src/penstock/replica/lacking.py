"""The stages that a follower's journal lists, and whose files it does not have.

From the first record on that lists one of them, no place is shown as synced. A snapshot that lists
it once more changes nothing about that: the journal may be synced up to a place between the two. At
a start it is not known which record was the first, nor does it matter for a file that turns out to
be corrupt: then no place is shown at all.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.log.fold import Position

NOTHING = Position(0, 0)


class Lacking:
    __slots__ = ("_places",)

    def __init__(self) -> None:
        self._places: dict[int, Position] = {}  # of the records that list them

    @property
    def stages(self) -> list[int]:
        return list(self._places)

    def now(self, stages: Collection[int], place: Position) -> None:
        """All of them, after the record of this place."""
        known = self._places if place != NOTHING else {}
        self._places = {stage: known.get(stage, place) for stage in stages}

    def found(self, stage: int) -> bool:
        return self._places.pop(stage, None) is not None

    def lost(self, stage: int) -> None:
        self._places[stage] = NOTHING

    def shown(self, synced: Position) -> Position:
        """The place that counts as synced, where the journal itself is synced up to this one."""
        if not self._places:
            return synced
        first = min(self._places.values())
        if synced < first:
            return synced
        return first._replace(sequence=first.sequence - 1) if first.sequence else NOTHING
