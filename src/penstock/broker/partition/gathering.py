"""Small appends gather, where an append costs a sync, or messages to other nodes.

When an append is committed, its publishers are answered, and those that wait for each answer
publish again at once. If the next append were written with what others have published meanwhile,
two halves of the publishers would alternate, in twice as many appends. So the next append waits
until most of those that were answered have published again, but no longer than the last append
took, and APPEND_GATHER_NS. If the time runs out first, the next appends are written at once, twice
as many each time.

Nothing waits after an append of a few messages, since publishers with a pace of their own would
only delay one another, or of many bytes, where the cost of an append is small beside that of its
bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits
from penstock.clock import NEVER_NS, Clock

if TYPE_CHECKING:
    from penstock.broker.partition.group_commit import GroupCommit
    from penstock.broker.replicas.outbox import Outbox


class Gathering:
    """All writers whose next append waits for more publishers. `due_ns`: the time of the first."""

    def __init__(self) -> None:
        self.due_ns = NEVER_NS
        self._writers: dict[GroupCommit | Outbox, int] = {}

    def add(self, writer: GroupCommit | Outbox, due_ns: int) -> None:
        self._writers[writer] = due_ns
        self.due_ns = min(self.due_ns, due_ns)

    def take(self, mono_ns: int) -> list[GroupCommit | Outbox]:
        due = [writer for writer, due_ns in self._writers.items() if due_ns <= mono_ns]
        for writer in due:
            del self._writers[writer]
        self.due_ns = min(self._writers.values(), default=NEVER_NS)
        return due


class RowGathering:
    """How long one writer waits. `due_ns`: its next append is written then at the latest; 0: it
    does not wait."""

    __slots__ = ("_clock", "_enough", "_gathering", "_skip", "_skips", "_wrote_ns", "due_ns")

    def __init__(self, gathering: Gathering, clock: Clock) -> None:
        self.due_ns = 0
        self._gathering = gathering
        self._clock = clock
        self._wrote_ns = 0
        self._enough = 0  # messages in the open batch: then nothing is waited for
        self._skip = self._skips = 0  # appends that are still to be written at once; of how many

    def wrote(self) -> None:
        self._wrote_ns = self._clock.mono_ns()

    def committed(self, count: int, length: int, waiting: int) -> None:
        """An append of `count` messages in `length` bytes; `waiting` have come since."""
        if count < limits.APPEND_GATHER_COUNT_MIN or length >= limits.APPEND_GATHER_BYTES_MAX:
            return
        if self._skip:
            self._skip -= 1
            return
        mono_ns = self._clock.mono_ns()
        self._enough = waiting + count - count // 8  # an eighth may have no more to publish
        self.due_ns = mono_ns + min(mono_ns - self._wrote_ns, limits.APPEND_GATHER_NS)

    def waits(self, writer: GroupCommit | Outbox, count: int, length: int) -> bool:
        """Whether an append of `count` messages waits for more. Asked while `due_ns` is set."""
        if length < limits.APPEND_GATHER_BYTES_MAX and count < self._enough:
            if self._clock.mono_ns() < self.due_ns:
                self._gathering.add(writer, self.due_ns)
                return True
            self._skip = self._skips = min(2 * self._skips + 1, limits.APPEND_GATHER_SKIPS_MAX)
        else:
            self._skips = 0
        self.due_ns = 0
        return False
