"""What becomes of a message at a consumer's turn: it is sent, or is for others, or is left out.

Messages in a row that meet the same fate are taken together, so that a consumer with a filter or a
tag is served in runs as others are.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING

from penstock.kernel.pure.dice import sample_draw
from penstock.kernel.pure.filters import is_test, passes
from penstock.kernel.pure.tags import NO_TAG
from penstock.kernel.trace_interface import TraceKind
from penstock.limits import TAG_ASIDE_MAX

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch, Special
    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.window import Window


class Fate(Enum):
    SENT_NOW = auto()
    LEFT_OUT = auto()  # of the channel: the consumer does not want it
    ASIDE = auto()  # for consumers with another tag


class Sifting:
    """A consumer's turn."""

    def __init__(self, window: Window, conn: Conn, engine: Engine) -> None:
        self._window = window
        self._conn = conn
        self._engine = engine
        has_one = bool(window.tags) and conn.tag in window.tags
        self.mine = conn.tag if has_one else NO_TAG

    @property
    def sifts(self) -> bool:
        """May anything but SENT_NOW come up, with messages that have nothing special?"""
        window = self._window
        return bool(window.tags) or window.skips_tests or self._conn.filter is not None

    def class_of(self, batch: Batch, index: int) -> bytes:
        tags = self._window.tags
        return tags.class_of(batch, index) if tags else self.mine

    def is_left_out(self, batch: Batch, index: int, id: int, attempts: int) -> bool:
        """NSQ's draw is 0 to 99; what is above the rate is dropped for good."""
        conn = self._conn
        if conn.sample_rate:
            draw = sample_draw(self._engine.seed, conn.serial, id, attempts)
            if draw > conn.sample_rate:
                return True
        if self._window.skips_tests and is_test(batch.headers(index)):
            return True
        return conn.filter is not None and not passes(conn.filter, batch.headers(index))

    def fate(self, batch: Batch, index: int, id: int = 0, attempts: int = 0) -> Fate:
        if self.class_of(batch, index) != self.mine:
            return Fate.ASIDE
        left_out = self.is_left_out(batch, index, id, attempts)
        return Fate.LEFT_OUT if left_out else Fate.SENT_NOW

    def run(self, batch: Batch, index: int, count: int) -> tuple[Fate, int]:
        """The fate of the next messages, which have nothing special, and how many share it."""
        fate, tag = self.fate(batch, index), self.class_of(batch, index)
        done = 1
        while done < count:
            at = index + done
            if self.fate(batch, at) != fate or self.class_of(batch, at) != tag:
                break
            done += 1
        return fate, done

    def sift_out(self, batch: Batch, fate: Fate, count: int) -> bool:
        """Out of the cursor's way. False: there is no room to put anything aside."""
        window = self._window
        start = window.next
        index = start - batch.base_offset
        if fate is Fate.LEFT_OUT:
            if window.trace_below:
                for place, id in enumerate(batch.ids(index, count)):
                    window.trace_one(TraceKind.FILTERED, id, start + place, 0, self._conn)
            window.notes.finished(start, start + count)
            window.move_to(start + count)
            return True
        if not self.has_room_aside():
            return False
        tag = self.class_of(batch, index)
        room = TAG_ASIDE_MAX - window.strays.waiting
        for id in batch.ids(index, min(count, room)):
            window.put_aside(id, 0, tag)
        return True

    def has_room_aside(self) -> bool:
        return self._window.strays.waiting < TAG_ASIDE_MAX

    def leave_one_out(self, special: Special) -> None:
        window = self._window
        self.note_left_out(special.id, window.next, special.attempts)
        window.notes.finished(window.next, window.next + 1)
        window.move_to(window.next + 1)

    def note_left_out(self, id: int, offset: int, attempts: int) -> None:
        self._window.trace_one(TraceKind.FILTERED, id, offset, attempts, self._conn)
        self._window.forget_traced(id)
