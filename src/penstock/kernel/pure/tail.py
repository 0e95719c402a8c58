"""The writing end of one partition: open batch, sealed batches, newest committed batches.

memory [memory_start, committed_end) | sealed [.., written_end) | open (no offsets yet)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.kernel.batch_interface import BatchCheck, Section
from penstock.kernel.pure.batch import check_batch, decode_header, encode_batch
from penstock.kernel.pure.block import Batch
from penstock.kernel.pure.labels import Labels, check_label
from penstock.kernel.pure.memory import Memory
from penstock.kernel.pure.pack import ANY_SIZE, messages_of
from penstock.kernel.pure.sealed import FAILED, STORED, Promise, Sealed, sealed_before
from penstock.kernel.pure.sealed import validate as validate_sealed
from penstock.kernel.pure.trace import Publishers

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from typing_extensions import Buffer

    from penstock.kernel import interface
    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.engine import Engine
    from penstock.kernel.pure.window import Window


class Tail:
    def __init__(
        self, engine: Engine, topic: bytes, start: int, memory_bytes_max: int, partition: int
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.owner: Any = None
        self.refusing = False
        self.append_end_max = 0
        self.handing = False
        self.traceable = False
        self.trace_below = 0
        self.forgotten = False
        self.open_bytes = 0
        self.written_end = self.committed_end = start
        self._handed_end = start
        self.message_count = 0
        self.message_bytes = 0
        self.promise = Promise(self)  # of the open batch
        self.waiting_bytes = self.waiting_bytes_max = 0
        self._stalled_bytes = 0  # of the waiting ones, of these connections
        self.stalled: list[Conn] = []  # connections that wait for room in the open batch
        self.windows: list[Window] = []
        self._engine = engine
        self._open: list[bytes] = []
        self._labels = Labels()  # of the open batch
        self._publishers: Publishers = []  # of the open batch
        self._sealed: list[Sealed] = []  # from committed_end to written_end
        self._sealed_max = limits.SEALED_BATCHES_MAX
        self._memory = Memory(engine.memory, memory_bytes_max)

    @property
    def mono_ns(self) -> int:
        """Now, as far as the turn knows it."""
        return self._engine.mono_ns

    @property
    def open_count(self) -> int:
        return len(self._open)

    @property
    def sealed_count(self) -> int:
        return self.written_end - self.committed_end

    @property
    def sealed_batches(self) -> int:
        return len(self._sealed)

    @property
    def sealed_max(self) -> int:
        return self._sealed_max

    @sealed_max.setter
    def sealed_max(self, count: int) -> None:
        if count < 1:
            raise ValueError(f"{count} sealed batches are too few to write anything")
        self._sealed_max = count

    @property
    def can_seal(self) -> bool:
        return len(self._sealed) < self._sealed_max

    @property
    def memory_start(self) -> int:
        return self._memory.start(self.committed_end)

    @property
    def handed_end(self) -> int:
        return self._handed_end

    @handed_end.setter
    def handed_end(self, offset: int) -> None:
        self._handed_end = offset

    # --- gathering ---

    def append(
        self,
        body: Buffer,
        due_ns: int = 0,
        sections: Mapping[int, int | bytes] | None = None,
        by: interface.Conn | None = None,
    ) -> None:
        data = bytes(body)
        if not data:
            raise ValueError("an empty message cannot be stored")
        for section, value in (sections or {}).items():
            check_label(section, value)
        if sections:
            self._note_publisher(by)
        if due_ns:
            self._labels.put(Section.DUE, len(self._open), due_ns)
        for section, value in (sections or {}).items():
            self._labels.put(section, len(self._open), value)
        self.extend((data,), by)

    @property
    def open_size(self) -> int:
        """Of the open batch, trailer included, near enough for a bound."""
        return self.open_bytes + self._labels.size

    def stall(self, conn: Conn, length: int) -> bool:
        """The connection waits for room, with a publish of this length. False: too many do."""
        waiting = self.waiting_bytes
        if waiting and 0 < self.waiting_bytes_max < waiting + length:
            return False
        self.waiting_bytes += length
        self._stalled_bytes += length
        self.stalled.append(conn)
        return True

    def has_room(self, count: int) -> bool:
        """May so many messages be appended, as far as the bound says?"""
        end_max = self.append_end_max
        return not end_max or self.written_end + len(self._open) + count <= end_max

    def count_pack(self, pack: int, body: Buffer, count_max: int, message_bytes_max: int) -> int:
        found = messages_of(pack, bytes(body), count_max, message_bytes_max)
        return found if isinstance(found, int) else len(found)

    def append_parts(self, parts: list[Buffer]) -> None:
        self.append(b"".join(parts))

    def append_pack(self, pack: int, body: Buffer, due_ns: int = 0) -> int:
        bodies = messages_of(pack, bytes(body), ANY_SIZE, ANY_SIZE)
        if isinstance(bodies, int):
            raise ValueError("a malformed pack of messages")
        if due_ns:
            for index in range(len(self._open), len(self._open) + len(bodies)):
                self._labels.put(Section.DUE, index, due_ns)
        if bodies:
            self.extend(bodies)
        return len(bodies)

    def extend(self, bodies: Sequence[bytes], by: interface.Conn | None = None) -> None:
        """Several messages at once, none of them delayed."""
        if self.trace_below:
            self._note_publisher(by)
        if not self._open:
            self._engine.note_open(self)
        self._open += bodies
        size = sum(map(len, bodies))
        self.open_bytes += size
        self.message_count += len(bodies)
        self.message_bytes += size

    def _note_publisher(self, conn: interface.Conn | None) -> None:
        """The next message comes from `conn`; None: nobody that the kernel knows."""
        if not (self._publishers and self._publishers[-1][1] is conn):
            self._publishers.append((len(self._open), conn))

    def drop_open(self) -> None:
        """The topic goes away: what was gathering is refused, not lost silently."""
        if not self._open:
            return
        promise = self.promise
        self._start_open()
        self._settle(promise, FAILED)

    def _start_open(self) -> None:
        self._open = []
        self._publishers = []
        self._labels = Labels()
        self.open_bytes = 0
        self.promise = Promise(self)
        if self.stalled:
            self._engine.unstall(self.stalled)
            self.stalled = []
            self.waiting_bytes -= self._stalled_bytes
            self._stalled_bytes = 0

    # --- sealing and what comes of it ---

    def seal(
        self, base_id: int, timestamp_ns: int, synced_end: int, leader_epoch: int = 0
    ) -> list[Buffer]:
        if not self._open:
            raise RuntimeError("there is no open batch to seal")
        if not self.can_seal:
            raise RuntimeError(f"{len(self._sealed)} sealed batches wait already")
        data = encode_batch(
            self._open,
            self.written_end,
            base_id,
            timestamp_ns,
            synced_end,
            leader_epoch,
            sections=self._labels.tables,
        )
        self._sealed.append(Sealed(Batch(data, 0), self.promise, self._publishers))
        self.written_end += len(self._open)
        self._start_open()
        return [data]

    def seal_batch(self, data: bytes) -> list[Buffer]:
        if check_batch(data, 0) != (BatchCheck.SOUND, len(data)):
            raise ValueError("this is no whole batch")
        header = decode_header(data, 0)
        if header.base_offset != self.written_end:
            raise ValueError(f"a batch at {header.base_offset}, the tail is at {self.written_end}")
        self._sealed.append(Sealed(Batch(data, 0), Promise(self), []))
        self.written_end += header.count
        self.message_count += header.count
        self.message_bytes += header.bodies_length
        return [data]

    def note_stored(self, data: Buffer) -> None:
        if not self.traceable:
            return
        if check_batch(data, 0)[0] != BatchCheck.SOUND:
            raise ValueError("this is no whole batch")
        batch = Batch(bytes(data), 0)
        if self.trace_below or not batch.plain:
            self._engine.trace.note_published(batch, self, [])

    def adopt(self, count: int, size: int) -> None:
        if self._sealed:
            raise RuntimeError("a batch is sealed")
        if count < 1 or size < 1:
            raise ValueError(f"{count} messages of {size} bytes cannot be adopted")
        self._memory.clear()
        self.written_end += count
        self.committed_end = self.written_end
        self.message_count += count
        self.message_bytes += size
        if self.handing:
            self.hand()
        if self._open:
            self._engine.note_open(self)

    def commit_to(self, offset: int) -> None:
        if offset <= self.committed_end:
            return
        count = sealed_before(self._sealed, self.committed_end, offset)
        safe, self._sealed = self._sealed[:count], self._sealed[count:]
        for sealed in safe:
            batch = sealed.batch
            self.committed_end = batch.end
            if self.traceable and (self.trace_below or not batch.plain):
                self._engine.trace.note_published(batch, self, sealed.publishers)
            self._memory.keep(batch, self.handing)
            self._settle(sealed.promise, STORED)
        if self.handing:
            self.hand()

    def fail_from(self, offset: int) -> None:
        first = sealed_before(self._sealed, self.committed_end, offset)
        self._sealed, failed = self._sealed[:first], self._sealed[first:]
        self.written_end = offset
        for sealed in failed:
            self._settle(sealed.promise, FAILED)

    def commit(self) -> None:
        if not self._sealed:
            raise RuntimeError("there is no sealed batch to commit")
        self.commit_to(self.written_end)

    def fail(self) -> None:
        if not self._sealed:
            raise RuntimeError("there is no sealed batch to fail")
        self.fail_from(self.committed_end)

    def _settle(self, promise: Promise, outcome: int) -> None:
        self._engine.note_settled(promise, outcome)

    def hand(self) -> None:
        if self._handed_end < self.committed_end:
            self._handed_end = self.committed_end
            self._engine.note_handed(self)

    def begin_at(self, offset: int) -> None:
        count = offset - self._handed_end
        if count <= 0:
            return
        if offset > self.committed_end:
            raise ValueError(f"{offset} is beyond the committed end {self.committed_end}")
        self._handed_end = offset
        for window in self.windows:
            window.count_base += count
        self._engine.note_handed(self)

    # --- memory ---

    @property
    def trailer_end(self) -> int:
        """Of the newest batch in memory that has a trailer."""
        return self._memory.trailer_end

    def find(self, offset: int) -> Batch | None:
        """The batch in memory that holds `offset`."""
        return self._memory.find(offset)

    def trim(self) -> None:
        """Its windows were served: what all have read need not stay in memory."""
        self._memory.trim(self.windows, self.committed_end)

    def validate(self) -> None:
        if not self._handed_end <= self.committed_end <= self.written_end:
            raise RuntimeError(
                f"{self.topic!r}: ends out of order: handed {self._handed_end}, "
                f"committed {self.committed_end}, written {self.written_end}"
            )
        validate_sealed(self._sealed, self.committed_end, self.written_end)
        if self.open_bytes != sum(map(len, self._open)):
            raise RuntimeError(f"{self.topic!r}: bytes of the open batch do not add up")
        self._memory.validate(self.committed_end)
