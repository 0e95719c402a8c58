"""What happens to messages that are traced, as events of fixed size in one buffer.

An event is laid out here as it will lie in a message of the topic `_trace` (docs/formats.md).
Topics, channels and clients stand in it as numbers: an object gets its number with its first event
in a chunk, and the chunk is handed out with the list of its objects, to whom others give names.

A message is traced when its id is in the sample, the same one for all that happens to it; or when
it has a trace id. `hash(id) < below` is the sample; `below` 0 is none, and the highest is all.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from penstock.kernel.trace_interface import TRACE_ALL, TraceKind
from penstock.limits import TRACE_CHUNK_EVENTS

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch
    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.tail import Tail
    from penstock.kernel.pure.window import Window

_EVENT = struct.Struct("<qQqQIHHHHHBx")
_COUNT_MAX = (1 << 32) - 1
_U64 = (1 << 64) - 1

Publishers = list[tuple[int, "Conn | None"]]  # index of the first message, and who sent it


def in_sample(id: int, below: int) -> bool:
    """The end of splitmix64 spreads ids, which differ in few bits, over all numbers."""
    if below == TRACE_ALL:
        return True
    id = ((id ^ (id >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    id = ((id ^ (id >> 27)) * 0x94D049BB133111EB) & _U64
    return (id ^ (id >> 31)) < below


class Trace:
    def __init__(self) -> None:
        self._events: list[bytes] = []
        self._numbers: dict[Any, int] = {}
        self._chunks: list[tuple[list[Any], bytes]] = []

    @property
    def pending(self) -> bool:
        return bool(self._events or self._chunks)

    @property
    def full(self) -> bool:
        return bool(self._chunks)

    def take(self) -> list[tuple[list[Any], bytes]]:
        self._cut()
        chunks, self._chunks = self._chunks, []
        return chunks

    def _cut(self) -> None:
        if self._events:
            self._chunks.append((list(self._numbers), b"".join(self._events)))
            self._events, self._numbers = [], {}

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
        if len(self._events) == TRACE_CHUNK_EVENTS:
            self._cut()
        names = [self._number(named) for named in (topic, channel, client)]
        event = (time_ns, id, offset, trace_id, count, *names, attempts & 0xFFFF, 0, kind)
        self._events.append(_EVENT.pack(*event))

    def note_range(
        self, kind: int, time_ns: int, start: int, end: int, tail: Tail, window: Window
    ) -> None:
        while start < end:
            count = min(end - start, _COUNT_MAX)
            self.note(kind, time_ns, 0, start, 0, tail, window, None, count=count)
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
