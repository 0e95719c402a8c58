"""How old messages are at least, where their own timestamps cannot say.

After the clock was ahead and was set back, a log's timestamps lie in the future, and new ones
repeat the last of them until the clock has caught up: for a year after a clock that was a year
ahead. By them nothing would get too old. So it is noted when an offset was first seen below the
log's end: what lies below it has been there since then, at least.

The marks are kept in topic.json, so that a restart does not begin to count again.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock import limits

Mark = tuple[int, int]  # offset, and when it was seen


class AgeMarks:
    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.marks = [(offset, seen_ns) for offset, seen_ns in marks]

    def __bool__(self) -> bool:
        return bool(self.marks)

    def clear(self) -> None:
        self.marks.clear()

    def note(self, end: int, now_ns: int, age_max_ns: int) -> bool:
        """The log ends at `end`. True when that is a mark more; they are a part of the maximum age
        apart, so what is dropped may be older by as much."""
        # A mark from a clock that was ahead, too, is as old as can be said now: not at all.
        self.marks = [(offset, min(seen_ns, now_ns)) for offset, seen_ns in self.marks]
        if self.marks:
            offset, seen_ns = self.marks[-1]
            if end <= offset or now_ns - seen_ns < age_max_ns // limits.AGE_MARKS:
                return False
        self.marks.append((end, now_ns))
        return True

    def old_end(self, now_ns: int, age_max_ns: int) -> int:
        """Below this offset all is too old. Marks that say no more than the next are forgotten."""
        while len(self.marks) > 1 and self.marks[1][1] + age_max_ns <= now_ns:
            self.marks.pop(0)
        if self.marks and self.marks[0][1] + age_max_ns <= now_ns:
            return self.marks[0][0]
        return 0
