"""What a reader of a channel's journal makes of it, as docs/formats.md says."""

from typing import Any

from penstock.kernel import StrayRecord

from .turns import CURSOR, FINISHED, GONE, RESET, STRAY, Entry


class Recovery:
    """A channel's state as a reader of its journal knows it."""

    def __init__(self, low: int) -> None:
        self.low = self.next = low
        self.done: set[int] = set()
        self.strays: dict[int, tuple[int, int, int, int]] = {}

    def apply(self, journal: list[Entry]) -> None:
        for entry in journal:
            if entry.kind in (CURSOR, RESET):
                if entry.kind == RESET:
                    self.done.clear()
                    self.strays.clear()
                self.low, self.next = entry.a, entry.b
                self.done = {offset for offset in self.done if offset >= self.low}
            elif entry.kind == FINISHED:
                self.done.update(range(max(entry.a, self.low), entry.b))
            elif entry.kind == STRAY:
                self.strays[entry.id] = (entry.a, entry.attempts, entry.state, entry.b)
            elif entry.kind == GONE:
                del self.strays[entry.id]
                self.done.add(entry.a)

    def known(self) -> tuple[Any, ...]:
        """What matters: the open messages of the window, and the strays."""
        strayed = {stray[0] for stray in self.strays.values()}
        in_flight = set(range(self.low, self.next)) - self.done - strayed
        return (self.low, self.next, sorted(in_flight), dict(sorted(self.strays.items())))

    def records(self) -> tuple[list[tuple[int, int]], list[StrayRecord]]:
        return (
            [(offset, offset + 1) for offset in sorted(self.done)],
            [StrayRecord(a, id, n, state, due) for id, (a, n, state, due) in self.strays.items()],
        )
