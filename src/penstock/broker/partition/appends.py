"""An append: the batches that one gathered write puts at the end of the log, the publishers that
wait for them, and publishes that report the position of their first message."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from penstock.errors import PenstockError
from penstock.kernel import Section, id_at

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.broker.partition.group_commit import GroupCommit
    from penstock.broker.replicas.outbox import Outbox


Sections = Mapping[int, int | bytes]  # of one message, by `kernel.Section`
PublishDone = Callable[[PenstockError | None], None]
# base offset, base id, time, synced end, leader epoch
Encode = Callable[[int, int, int, int, int], bytes]


class MessagePosition(NamedTuple):
    partition: int
    offset: int


PositionDone = Callable[[PenstockError | None, MessagePosition], None]


class Gathered(NamedTuple):
    """Messages that wait until the open batch has room."""

    append: Callable[[], object]
    count: int  # type: ignore[assignment]  # hides tuple.count
    done: PublishDone
    length: int = 0  # in bytes


class Whole(NamedTuple):
    """A batch of its own in a later append: it names its producer, and is encoded when its position
    is known."""

    encode: Encode
    count: int  # type: ignore[assignment]  # hides tuple.count
    done: PublishDone
    producer_id: int
    length: int = 0


class Inner(NamedTuple):
    """The position of a batch that is not the first of its append."""

    offset: int
    position: int  # from the beginning of the append
    id: int


class LogAppend:
    __slots__ = (
        "agreed_end", "base_id", "base_offset", "buffers", "count", "done", "end", "inner",
        "length", "numbered_done",
    )  # fmt: skip

    def __init__(
        self,
        base_offset: int,
        agreed_end: int,
        base_id: int = 0,
        count: int = 0,
        length: int = 0,
        buffers: list[Buffer] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.agreed_end = agreed_end  # what its headers say that every member has synced
        self.base_id = base_id
        self.count = count  # of messages
        self.end = base_offset + count
        self.length = length  # in bytes
        self.buffers: list[Buffer] = [] if buffers is None else buffers
        self.inner: list[Inner] | None = None  # None: there is one batch, or none
        self.done: list[PublishDone] = []
        self.numbered_done: list[PublishDone] = []  # of producers that number their messages

    def add(self, buffers: list[Buffer], length: int, count: int, base_id: int) -> None:
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
        self.answer_unnumbered(error)
        waiting, self.numbered_done = self.numbered_done, []
        for done in waiting:
            done(error)

    def answer_unnumbered(self, error: PenstockError | None) -> None:
        """Answer publishers that do not number their messages: they wait no longer."""
        waiting, self.done = self.done, []
        for done in waiting:
            done(error)


_LENGTH_BYTES = 4  # of a message, in its batch
_NUMBER_BYTES = 12  # of a trace id, in the trailer
_ENTRY_BYTES = 8  # of a key or of headers there, beside the value


class Content(NamedTuple):
    """A message, and the entries of its trailer."""

    body: bytes
    sections: Sections

    @property
    def trace_id(self) -> int:
        """0: none."""
        found = self.sections.get(Section.TRACE)
        return found if isinstance(found, int) else 0

    @property
    def stored_bytes(self) -> int:
        """Bytes in the log, without its share of the batch's header."""
        total = _LENGTH_BYTES + len(self.body)
        for value in self.sections.values():
            total += _ENTRY_BYTES + len(value) if isinstance(value, bytes) else _NUMBER_BYTES
        return total


def content(
    body: bytes, trace_id: int = 0, key: bytes | None = None, headers: bytes = b""
) -> Content:
    """Of a client. `trace_id` 0: none; `headers` empty: none are kept."""
    sections: dict[int, int | bytes] = {}
    if trace_id:
        sections[Section.TRACE] = trace_id
    if key is not None:
        sections[Section.KEY] = key
    if headers:
        sections[Section.HEADERS] = headers
    return Content(body, sections)


class Stored(NamedTuple):
    offset: int
    id: int


TracedDone = Callable[[PenstockError | Stored], None]


def publish_located(
    group: GroupCommit | Outbox, contents: Sequence[Content], due_ns: int, done: TracedDone
) -> None:
    """All into one batch. `done` receives where the first message lies, or the error."""
    index = 0

    def append() -> None:
        nonlocal index
        index = group.tail.open_count
        for one in contents:
            group.tail.append(one.body, due_ns, one.sections or None)

    def safe(error: PenstockError | None) -> None:
        if error is not None:
            done(error)
        else:
            base_offset, base_id = group.sealed_base, group.sealed_base_id
            done(Stored(base_offset + index, id_at(base_id, index)))

    length = sum(len(one.body) for one in contents)
    group.publish(append, len(contents), length, safe)
