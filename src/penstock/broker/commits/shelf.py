"""The stages of one partition, as its replica has them.

A partition's stages are part of its state, like its log: whoever takes the partition over needs
them, and a topic that is deleted and made again under its name has none of the old ones. The files
of all of them stand in one directory of the node, and what a client calls a stage does not name the
topic's identity; `stages.py` keeps both in step with the shelves.

A shelf outlives its topic while stages lie on it: the next sweep gives them up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from penstock.broker.commits.stageapps import Stage


class Place(NamedTuple):
    """A partition of one topic. Another topic of that name has another identity."""

    topic: str
    identity: str
    partition: int


class Shelf:
    __slots__ = ("bytes", "place", "stages")

    def __init__(self, place: Place) -> None:
        self.place = place
        self.stages: dict[str, Stage] = {}  # by file name: as they were staged
        self.bytes = 0

    def __len__(self) -> int:
        return len(self.stages)

    def add(self, stage: Stage) -> None:
        self.stages[stage.file_name] = stage
        self.bytes += stage.head.bytes

    def remove(self, stage: Stage) -> None:
        del self.stages[stage.file_name]
        self.bytes -= stage.head.bytes


class Shelves:
    """Of all partitions that have stages, and of those whose replicas ask."""

    def __init__(self) -> None:
        self._shelves: dict[Place, Shelf] = {}

    def __iter__(self) -> Iterator[Shelf]:
        return iter(self._shelves.values())

    def at(self, place: Place) -> Shelf:
        shelf = self._shelves.get(place)
        if shelf is None:
            shelf = self._shelves[place] = Shelf(place)
        return shelf

    def release(self, shelf: Shelf) -> None:
        """Its replica is gone. What still lies there keeps it until it is given up."""
        if not shelf and self._shelves.get(shelf.place) is shelf:
            del self._shelves[shelf.place]
