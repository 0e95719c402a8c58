"""Entries of the channel journal, as `docs/formats.md` lays them out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kernel.layout import JOURNAL_ENTRY
from penstock.kernel.pure.flight import BEHIND, DELAYED, EXHAUSTED, WAITING

if TYPE_CHECKING:
    from penstock.kernel.layout import JOURNAL_ENTRY
from penstock.kernel.pure.flight import Flight

CURSOR = 1
FINISHED = 2
STRAY = 3
GONE_ENTRY = 4
RESET = 5
_U16_MASK = 0xFFFF


def cursor_entry(low: int, next: int) -> bytes:
    return JOURNAL_ENTRY.pack(CURSOR, 0, 0, 0, low, next, 0)


def reset_entry(low: int, next: int) -> bytes:
    return JOURNAL_ENTRY.pack(RESET, 0, 0, 0, low, next, 0)


def finished_entry(start: int, end: int) -> bytes:
    return JOURNAL_ENTRY.pack(FINISHED, 0, 0, 0, start, end, 0)


def stray_entry(flight: Flight) -> bytes:
    state = WAITING if flight.state in (EXHAUSTED, BEHIND) else flight.state
    due_ns = flight.due_ns if flight.state == DELAYED else 0
    attempts = flight.attempts & _U16_MASK
    return JOURNAL_ENTRY.pack(STRAY, state, attempts, 0, flight.offset, due_ns, flight.id)


def gone_entry(offset: int, id: int) -> bytes:
    return JOURNAL_ENTRY.pack(GONE_ENTRY, 0, 0, 0, offset, 0, id)


class Notes:
    """What has changed in one window since its journal was last taken."""

    def __init__(self) -> None:
        self.cursor_changed = True  # a new window says where it starts
        self.reset = False
        self._finished: list[list[int]] = []
        self._changes: list[bytes] = []

    def __bool__(self) -> bool:
        return bool(self.cursor_changed or self.reset or self._finished or self._changes)

    def finished(self, start: int, end: int) -> None:
        last = self._finished[-1] if self._finished else None
        if last is not None and last[1] == start:
            last[1] = end
        else:
            self._finished.append([start, end])

    def stray(self, flight: Flight) -> None:
        self._changes.append(stray_entry(flight))

    def gone(self, offset: int, id: int) -> None:
        self._changes.append(gone_entry(offset, id))

    def forget(self) -> None:
        """What was noted is void: a reset says it all."""
        self._finished.clear()
        self._changes.clear()

    def take(self, low: int, next: int) -> bytes:
        entries = []
        if self.reset:
            entries.append(reset_entry(low, next))
        elif self.cursor_changed:
            entries.append(cursor_entry(low, next))
        entries += [finished_entry(max(a, low), b) for a, b in self._finished if b > low]
        entries += self._changes
        self.forget()
        self.cursor_changed = self.reset = False
        return b"".join(entries)
