"""Publishes that give each message a trace id, and tell where the first one came to lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.partition.rows import Sections
from penstock.errors import PenstockError
from penstock.kernel import Section, id_at

if TYPE_CHECKING:
    from penstock.broker.channels.dead_letter import DeadLetterContent
    from penstock.broker.partition.group_commit import GroupCommit
    from penstock.broker.replicas.outbox import Outbox

LENGTH_BYTES = 4  # of a message, in its batch
TRACE_BYTES = 12  # of its trace id, in the trailer


class Traced(NamedTuple):
    trace_id: int  # 0: none
    body: bytes

    @property
    def sections(self) -> Sections:
        return {Section.TRACE: self.trace_id} if self.trace_id else {}

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
    group: GroupCommit | Outbox, messages: Sequence[Traced], due_ns: int, done: TracedDone
) -> None:
    """All into one batch. `done` hears when that batch is safe, or has failed."""

    def append() -> None:
        for message in messages:
            group.tail.append(message.body, due_ns, message.sections or None)

    length = sum(len(message.body) for message in messages)
    _publish_by(group, append, len(messages), length, done)


def publish_headed(
    group: GroupCommit | Outbox, body: bytes, sections: Sections, done: TracedDone, due_ns: int
) -> None:
    """The same for one message and what else its trailer says."""
    _publish_by(group, lambda: group.tail.append(body, due_ns, sections), 1, len(body), done)


def publish_moved(
    group: GroupCommit | Outbox, letters: Sequence[DeadLetterContent], done: TracedDone
) -> None:
    """The same for messages that bring their trailers along."""

    def append() -> None:
        for letter in letters:
            group.tail.append(letter.body, 0, letter.sections)

    _publish_by(group, append, len(letters), sum(len(one.body) for one in letters), done)


def _publish_by(
    group: GroupCommit | Outbox,
    append: Callable[[], None],
    count: int,
    length: int,
    done: TracedDone,
) -> None:
    index = 0

    def note_and_append() -> None:
        nonlocal index
        index = group.tail.open_count
        append()

    def safe(error: PenstockError | None) -> None:
        if error is not None:
            done(error)
        else:
            base_offset, base_id = group.sealed_base, group.sealed_base_id
            done(Stored(base_offset + index, id_at(base_id, index)))

    group.publish_by(note_and_append, count, length, safe)
