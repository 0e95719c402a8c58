"""What a disk holds and what of it survives a power loss.

Every file and directory has two states: the one that the running system sees, and the one that is
on the platter. A change is made in the first and stands in a list until a sync applies it to the
second. When the power goes, each node takes one of several fates for what is in its list: all
lost, all kept, kept up to some point, each change by the toss of a coin, or (files) each 512-byte
sector by the toss of a coin. So unsynced writes come out missing, torn, and in any order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from typing import NamedTuple, TypeVar

SECTOR_BYTES = 512
_Kind = TypeVar("_Kind")


class Fate(Enum):
    LOST = auto()
    KEPT = auto()
    PREFIX = auto()
    SOME = auto()
    TORN = auto()


FILE_FATES = tuple(Fate)
DIRECTORY_FATES = (Fate.LOST, Fate.KEPT, Fate.PREFIX, Fate.SOME)


class Change(NamedTuple):
    """A write at `position`, or (no data) a truncation to it."""

    position: int
    data: bytes | None


class Inode:
    """A file's content."""

    def __init__(self) -> None:
        self.seen = bytearray()
        self.durable = bytearray()
        self.pending: list[Change] = []

    def change(self, change: Change) -> None:
        apply(self.seen, change)
        self.pending.append(change)

    def sync(self) -> None:
        for change in self.pending:
            apply(self.durable, change)
        self.pending.clear()

    def forget_pending(self) -> None:
        """After a failed sync the kernel calls the pages clean: they are never written."""
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        fate = rng.choice(FILE_FATES)
        for change in survivors(self.pending, fate, rng):
            for piece in sectors(change) if fate is Fate.TORN else (change,):
                if fate is not Fate.TORN or rng.random() < 0.5:
                    apply(self.durable, piece)
        self.pending.clear()
        self.seen = bytearray(self.durable)


class Link(NamedTuple):
    """`name` now stands for `node`; None: it is gone."""

    name: str
    node: Inode | Directory | None


class Move(NamedTuple):
    old: str
    new: str


@dataclass(slots=True, eq=False)
class Crossing:
    """A move from one directory to another: a file system with a journal keeps both halves of it
    or none. It is pending in both directories; the first that is synced, or is asked when the
    power goes, decides."""

    source: Directory
    old: str
    target: Directory
    new: str
    node: Inode | Directory
    kept: bool | None = None

    def half(self, directory: Directory) -> Link:
        return Link(self.new, self.node) if directory is self.target else Link(self.old, None)


class Directory:
    def __init__(self) -> None:
        self.seen: dict[str, Inode | Directory] = {}
        self.durable: dict[str, Inode | Directory] = {}
        self.pending: list[Link | Move | Crossing] = []

    def change(self, change: Link | Move | Crossing) -> None:
        apply_entry(self.seen, self._as_entry(change))
        self.pending.append(change)

    def _as_entry(self, change: Link | Move | Crossing) -> Link | Move:
        return change.half(self) if isinstance(change, Crossing) else change

    def sync(self) -> None:
        for change in self.pending:
            if isinstance(change, Crossing):
                change.kept = True
            apply_entry(self.durable, self._as_entry(change))
        self.pending.clear()

    def crash(self, rng: random.Random) -> None:
        """Its own entries first: what is not linked any more is gone."""
        fate = rng.choice(DIRECTORY_FATES)
        chosen = {id(change) for change in survivors(self.pending, fate, rng)}
        for change in self.pending:
            kept = id(change) in chosen
            if isinstance(change, Crossing):
                change.kept = kept = kept if change.kept is None else change.kept
            if kept:
                apply_entry(self.durable, self._as_entry(change))
        self.pending.clear()
        self.seen = dict(self.durable)
        for name in sorted(self.durable):
            self.durable[name].crash(rng)

    def files(self) -> Iterator[Inode]:
        for node in self.seen.values():
            if isinstance(node, Directory):
                yield from node.files()
            else:
                yield node


def apply(content: bytearray, change: Change) -> None:
    position, data = change
    if len(content) < position:
        content.extend(bytes(position - len(content)))
    if data is None:
        del content[position:]
    else:
        content[position : position + len(data)] = data


def apply_entry(entries: dict[str, Inode | Directory], change: Link | Move) -> None:
    """A change whose ground was lost (the moved name is not there) does nothing."""
    if isinstance(change, Move):
        node = entries.pop(change.old, None)
        if node is not None:
            entries[change.new] = node
    elif change.node is None:
        entries.pop(change.name, None)
    else:
        entries[change.name] = change.node


def survivors(pending: list[_Kind], fate: Fate, rng: random.Random) -> list[_Kind]:
    if fate is Fate.LOST:
        return []
    if fate is Fate.PREFIX:
        return pending[: rng.randint(0, len(pending))]
    if fate is Fate.SOME:
        return [change for change in pending if rng.random() < 0.5]
    return list(pending)


def sectors(change: Change) -> Iterator[Change]:
    """A write in pieces that a disk writes whole."""
    position, data = change
    if data is None:
        yield change
        return
    end = position + len(data)
    while position < end:
        next_position = min(end, (position // SECTOR_BYTES + 1) * SECTOR_BYTES)
        start = position - change.position
        yield Change(position, data[start : start + next_position - position])
        position = next_position
