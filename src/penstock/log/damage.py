"""Which offsets of a log are known to be corrupt.

There is one list a log, and whatever reads the log adds to it: a channel, a fetch by offset, a
search, the making of an index. The owner of the log hears of each range that was not known before.
A range leaves the list when retention has removed it, or another replica's batches have replaced
it.

A range that `penstock log repair` gave up stands in the file `lost` (`lost.py`): it is no news on a
node by itself. Of a partition that has other replicas one of those may have it (`lost_is_news`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from penstock.log.lost import LostRange, is_lost, lost_until

Damage = tuple[int, int, str]  # from offset, to offset, reason


def describe(damage: Damage) -> str:
    start, end, reason = damage
    return f"offsets {start} to {end - 1} are corrupt: {reason}"


def joined(ranges: Iterable[Damage]) -> list[tuple[int, int]]:
    """From offset and to offset of what is corrupt without a break, whatever the reasons."""
    found: list[tuple[int, int]] = []
    for start, end, _ in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
    return found


class DamageList:
    """In the order of offsets."""

    __slots__ = ("_lost", "_ranges", "lost_is_news", "on_added")

    def __init__(self, known: Iterable[Damage] = (), lost: Sequence[LostRange] = ()) -> None:
        self._lost = lost
        self._ranges: list[Damage] = sorted(known)
        self.lost_is_news = False
        self.on_added: Callable[[Damage], None] | None = None

    def __iter__(self) -> Iterator[Damage]:
        return iter(self._ranges)

    def __len__(self) -> int:
        return len(self._ranges)

    @property
    def ranges(self) -> list[Damage]:
        return list(self._ranges)

    def add(self, from_offset: int, to_offset: int, reason: str) -> None:
        """Ranges that touch and have the same reason become one."""
        if not self.lost_is_news and is_lost(self._lost, from_offset, to_offset):
            return
        if any(start <= from_offset and to_offset <= end for start, end, _ in self._ranges):
            return
        start, end = from_offset, to_offset
        apart: list[Damage] = []
        for known in self._ranges:
            if known[2] == reason and known[0] <= end and start <= known[1]:
                start, end = min(start, known[0]), max(end, known[1])
            else:
                apart.append(known)
        self._ranges = sorted([*apart, (start, end, reason)])
        if self.on_added is not None:
            self.on_added((start, end, reason))

    def holds(self, offset: int) -> bool:
        return any(start <= offset < end for start, end, _ in self._ranges)

    def given_up_until(self, offset: int) -> int:
        """The end of what an operator gave up from `offset` on; `offset` where nothing was."""
        return lost_until(self._lost, offset)

    def forget_from(self, offset: int) -> None:
        """The log ends there: what is written behind it is sound."""
        self._lost = [known for known in self._lost if known.from_offset < offset]
        self._ranges = [
            (start, min(end, offset), reason)
            for start, end, reason in self._ranges
            if start < offset
        ]

    def forget(self, from_offset: int, to_offset: int) -> None:
        """These offsets are sound again."""
        left: list[Damage] = []
        for start, end, reason in self._ranges:
            parts = ((start, min(end, from_offset)), (max(start, to_offset), end))
            left += [(first, last, reason) for first, last in parts if first < last]
        self._ranges = left

    def forget_below(self, offset: int) -> bool:
        """What ends at or below `offset` is gone from the log. True when there was anything."""
        kept = [known for known in self._ranges if known[1] > offset]
        is_less = len(kept) < len(self._ranges)
        self._ranges = kept
        return is_less


def outside(start: int, end: int, ranges: Sequence[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """What none of these has of [start, end). They rise, and do not overlap."""
    for first, last in ranges:
        if start < min(first, end):
            yield start, min(first, end)
        start = max(start, last)
    if start < end:
        yield start, end
