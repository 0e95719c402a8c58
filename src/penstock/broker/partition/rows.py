"""A row: the batches that one gathered write puts at the log's end, and who waits for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from typing_extensions import Buffer

Sections = Mapping[int, int | bytes]  # of one message, by `kernel.Section`
PublishDone = Callable[[PenstockError | None], None]
# base offset, base id, time, synced end, leader epoch
Encode = Callable[[int, int, int, int, int], bytes]


class Place(NamedTuple):
    """Where a message lies in its topic."""

    partition: int
    offset: int


PlacedDone = Callable[[PenstockError | None, Place], None]


class Gathered(NamedTuple):
    """Messages that wait until the open batch has room."""

    append: Callable[[], object]
    count: int  # type: ignore[assignment]  # hides tuple.count
    done: PublishDone
    length: int = 0  # in bytes


class Whole(NamedTuple):
    """A batch of its own in a row to come: it names its producer, and is encoded when its place is
    known."""

    encode: Encode
    count: int  # type: ignore[assignment]  # hides tuple.count
    done: PublishDone
    producer_id: int
    length: int = 0


class Inner(NamedTuple):
    """Where a batch stands that is not the first of its row."""

    offset: int
    position: int  # from the beginning of the row
    id: int


class Row:
    __slots__ = (
        "agreed_end",
        "base_id",
        "base_offset",
        "buffers",
        "count",
        "done",
        "end",
        "inner",
        "length",
    )

    def __init__(
        self,
        base_offset: int,
        agreed_end: int,
        base_id: int = 0,
        count: int = 0,
        length: int = 0,
        buffers: list[Buffer] | None = None,
    ) -> None:
        """With its first batch, or none yet."""
        self.base_offset = base_offset
        self.agreed_end = agreed_end  # what its headers say that every member has synced
        self.base_id = base_id
        self.count = count  # of messages
        self.end = base_offset + count
        self.length = length  # in bytes
        self.buffers: list[Buffer] = [] if buffers is None else buffers
        self.inner: list[Inner] | None = None  # None: there is one batch, or none
        self.done: list[PublishDone] = []

    def add(self, buffers: list[Buffer], length: int, count: int, base_id: int) -> None:
        """One batch, behind those that are there."""
        if self.count:
            if self.inner is None:
                self.inner, self.buffers = [], list(self.buffers)
            self.inner.append(Inner(self.end, self.length, base_id))
            self.buffers += buffers
        else:
            self.base_id = base_id
            self.buffers = buffers
        self.count += count
        self.end += count
        self.length += length

    def answer(self, error: PenstockError | None) -> None:
        """Answer each publisher, once."""
        waiting, self.done = self.done, []
        for done in waiting:
            done(error)
