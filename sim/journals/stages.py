"""Stages in the journals' world: the product's shells over files that are there or are not.

A file is durable when it is there: how it is written beside, synced and renamed is not played here.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.broker.commits.followedstages import FollowedStages
from penstock.broker.commits.ledstages import LedStages
from penstock.errors import PenstockError
from penstock.log.fold import Staged
from penstock.log.ledgerfile import ReplicaKey
from penstock.log.names import hosted_stage_name
from penstock.replica.frames import Target

if TYPE_CHECKING:
    from sim.journals.node import Node, Office

KEY = ReplicaKey("0" * 16, 0)
TARGET = Target(1, 0)
_REFUSED = 0.05  # of what is to be stored


class Files:
    """In the place of a `StageStore`. `dice` is None while nothing fails."""

    def __init__(self, dice: random.Random) -> None:
        self.stages: dict[int, Any] = {}
        self.dice: random.Random | None = dice

    def path(self, number: int) -> str:
        return f"{number:x}.stage"

    def write(self, number: int, file: bytes | bytearray, done: Callable[[str], None]) -> None:
        if self.dice is not None and self.dice.random() < _REFUSED:
            done("the disk is full")
            return
        self.stages[number] = _File(number, bytes(file))
        done("")

    def load(
        self, number: int, staged: Staged | None, done: Callable[[bytearray | None], None]
    ) -> None:
        file = self.stages.get(number)
        done(bytearray(file.content) if file is not None else None)

    def remove(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self.stages.pop(number, None)


class _File:
    def __init__(self, number: int, content: bytes) -> None:
        self.file_name = hosted_stage_name(number)
        self.content = content
        self.led: object = None


class Known:
    """In the place of the node's `Stages`: those that could be committed."""

    def __init__(self) -> None:
        self.stages: set[Any] = set()

    def take_in(self, stage: Any) -> None:
        self.stages.add(stage)

    def forget(self, stages: Collection[Any]) -> None:
        self.stages.difference_update(stages)

    def let_go(self, stages: Collection[Any]) -> None:
        self.forget(stages)


class _Leader:
    """As much of one as its stages ask for."""

    def __init__(self, office: Office) -> None:
        self._office = office
        self.replica = SimpleNamespace(label="p")

    def when_held(self, done: Callable[[PenstockError | None], None]) -> None:
        self._office.when_held(done)


class _Listing:
    """What its `Cursors` say of stages."""

    def __init__(self, office: Office) -> None:
        self._office = office

    @property
    def stages(self) -> Mapping[int, Staged]:
        return dict(self._office.said.stages)

    def list_stage(self, number: int, staged: Staged) -> None:
        said = self._office.said
        self._office.say(said._replace(stages=(*said.stages, (number, staged))))

    def unlist_stages(self, numbers: Collection[int]) -> None:
        said = self._office.said
        left = tuple(one for one in said.stages if one[0] not in numbers)
        self._office.say(said._replace(stages=left), unstaged=numbers)


def led_stages(node: Node, office: Office) -> LedStages:
    station: Any = SimpleNamespace(node=node.number, life=1, peers=node)
    leader: Any = _Leader(office)
    listing: Any = _Listing(office)
    files: Any = node.files
    known: Any = office.known
    return LedStages(station, KEY, node.replica, office.epoch, leader, listing, files, known)


def followed_stages(node: Node) -> FollowedStages:
    station: Any = SimpleNamespace(node=node.number, life=1, peers=node)
    files: Any = node.files
    return FollowedStages(
        station, TARGET, node.replica, files, node.journal, node.follower, lambda: None
    )
