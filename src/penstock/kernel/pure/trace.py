"""What happens to messages that are traced, as events of fixed size in one buffer.

An event is laid out here as it will lie in a message of the topic `_trace` (docs/formats.md).
Topics, channels and clients stand in it as numbers: an object gets its number with its first event
in a chunk, and the chunk is handed out with the list of its objects, to whom others give names.

A message is traced when its id is in the sample, the same one for all that happens to it; or when
it has a trace id. `hash(id) < below` is the sample; `below` 0 is none, and the highest is all.

What happens to one message after the other, at one time, is one record: a run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from penstock.kernel.layout import TRACE_RECORD
from penstock.kernel.pure.batch import id_at
from penstock.kernel.pure.dice import mix
from penstock.kernel.trace_interface import TRACE_ALL, TraceKind
from penstock.limits import TRACE_CHUNK_EVENTS, TRACE_CHUNK_RECORDS

if TYPE_CHECKING:
    from penstock.kernel.interface import Conn
    from penstock.kernel.pure.block import Batch
    from penstock.kernel.pure.tail import Tail
    from penstock.kernel.pure.window import Window

_COUNT_MAX = (1 << 32) - 1

Publishers = list[tuple[int, "Conn | None"]]  # index of the first message, and who sent it


def in_sample(id: int, below: int) -> bool:
    return below == TRACE_ALL or mix(id) < below


class Trace:
    """Records are lists of fields while they are gathered: the last one may grow."""

    def __init__(self) -> None:
        self._records: list[list[int]] = []
        self._told = 0  # events that they stand for
        self._next: tuple[int, int] | None = None  # id and offset that go on with the last record
        self._numbers: dict[Any, int] = {}
        self._chunks: list[tuple[list[Any], bytes]] = []

    @property
    def pending(self) -> bool:
        return bool(self._records or self._chunks)

    @property
    def full(self) -> bool:
        return bool(self._chunks)

    def take(self) -> list[tuple[list[Any], bytes]]:
        self._cut()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _cut(self) -> None:
        if self._records:
            data = b"".join(TRACE_RECORD.pack(*fields, 0) for fields in self._records)
            self._chunks.append((list(self._numbers), data))
            self._records, self._told, self._next, self._numbers = [], 0, None, {}

    def _number(self, named: Tail | Window | Conn | None) -> int:
        return 0 if named is None else self._numbers.setdefault(named, len(self._numbers) + 1)

    def note(
        self,
        kind: int,
        time_ns: int,
        id: int,
        offset: int,
        attempts: int,
        topic: Tail,
        channel: Window | None,
        client: Conn | None,
        trace_id: int = 0,
        count: int = 1,
    ) -> None:
        """The same for `count` messages in a row, each with the id after the one before."""
        named, attempts = (topic, channel, client), attempts & 0xFFFF
        if id and self._next == (id, offset) and self._told + count <= TRACE_CHUNK_EVENTS:
            last = self._records[-1]
            told = [None if one is None else self._numbers.get(one, -1) for one in named]
            names = [number or 0 for number in told]
            like = [time_ns, trace_id, *names, attempts, topic.partition, kind]
            if [last[0], last[3], *last[5:]] == like:
                last[4] += count
                self._told += count
                self._next = (id_at(id, count), offset + count)
                return
        while count:
            fields = self._place(named)
            some = min(count, TRACE_CHUNK_EVENTS - self._told)
            self._records.append(
                [time_ns, id, offset, trace_id, some, *fields, attempts, topic.partition, kind]
            )
            self._told += some
            count -= some
            id, offset = id_at(id, some), offset + some
        self._next = (id, offset)

    def _place(self, named: Sequence[Tail | Window | Conn | None]) -> list[int]:
        """Room for a record. Its names."""
        if len(self._records) == TRACE_CHUNK_RECORDS or self._told == TRACE_CHUNK_EVENTS:
            self._cut()
        return [self._number(one) for one in named]

    def note_range(
        self, kind: int, time_ns: int, start: int, end: int, tail: Tail, window: Window
    ) -> None:
        while start < end:
            count = min(end - start, _COUNT_MAX)
            names = self._place((tail, window, None))
            self._records.append([time_ns, 0, start, 0, count, *names, 0, tail.partition, kind])
            self._told += 1
            self._next = None
            start += count

    def note_published(self, batch: Batch, tail: Tail, publishers: Publishers) -> None:
        told, client = 0, None
        for index in range(batch.count):
            while told < len(publishers) and publishers[told][0] <= index:
                client = publishers[told][1]
                told += 1
            special = batch.special(index)
            sampled = tail.trace_below and in_sample(special.id, tail.trace_below)
            if special.trace_id or sampled:
                self.note(
                    TraceKind.PUBLISHED,
                    batch.timestamp_ns,
                    special.id,
                    batch.base_offset + index,
                    special.attempts,
                    tail,
                    None,
                    client,
                    special.trace_id,
                )
