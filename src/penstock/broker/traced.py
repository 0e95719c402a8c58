"""Publishes that give each message a trace id, and tell where the first one came to lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError
from penstock.kernel import Section, id_at

if TYPE_CHECKING:
    from penstock.broker.groupcommit import GroupCommit

LENGTH_BYTES = 4  # of a message, in its batch
TRACE_BYTES = 12  # of its trace id, in the trailer


class Traced(NamedTuple):
    trace_id: int  # 0: none
    body: bytes

    @property
    def stored_bytes(self) -> int:
        """In the log, without its share of the batch's header."""
        return LENGTH_BYTES + len(self.body) + (TRACE_BYTES if self.trace_id else 0)


class Stored(NamedTuple):
    """Where the first message of a publish is."""

    offset: int
    id: int


TracedDone = Callable[[PenstockError | Stored], None]


def publish_traced(
    group: GroupCommit, messages: Sequence[Traced], due_ns: int, done: TracedDone
) -> None:
    """All into one batch. `done` hears when that batch is safe, or has failed."""
    index = 0

    def append() -> None:
        nonlocal index
        index = group.tail.open_count
        for message in messages:
            trace_id = message.trace_id
            group.tail.append(message.body, due_ns, {Section.TRACE: trace_id} if trace_id else None)

    def safe(error: PenstockError | None) -> None:
        if error is not None:
            done(error)
        else:
            base_offset, base_id = group.sealed_base, group.sealed_base_id
            done(Stored(base_offset + index, id_at(base_id, index)))

    length = sum(len(message.body) for message in messages)
    group.publish_by(append, len(messages), length, safe)
