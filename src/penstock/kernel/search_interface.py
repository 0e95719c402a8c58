"""Delayed messages that are handed to a channel while they are in the log alone: the part of the
kernel's interface that finds them.

A window says from where to where they are to be looked for, the broker reads what there is, and
`search` makes strays of them. It changes nothing but what counts as delayed: whatever is not found
yet, the cursor meets in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.kernel.interface import Window


class Searched(Protocol):
    """What a window has to do with it."""

    @property
    def search_start(self) -> int: ...  # from here to `search_end` the log is to be searched
    @property
    def search_end(self) -> int: ...  # at or below `search_start`: nothing is

    searched: int  # delayed messages below it are strays, or done; may be set after `restore`
    parked_max: int  # so many delayed messages become strays before the cursor meets them

    @property
    def unparked(self) -> int: ...  # delayed messages beyond that, which are only counted

    def recount(self, wall_ns: int) -> None:
        """Search again what is only counted, if there is room for some of it, or some is due."""
        ...


class Searches(Protocol):
    """What the engine has."""

    def take_searches(self) -> list[Window]:
        """Windows whose part of the log to be searched has grown since the last call."""
        ...

    def search(self, window: Window, blocks: Sequence[Buffer], end: int, ids_from: int) -> None:
        """`blocks` are all batches with a trailer that hold offsets from the window's
        `search_start` to `end`, whole and checked. No message from its `next` on has an id below
        `ids_from` by the log's own count."""
        ...
