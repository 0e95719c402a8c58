"""The writing end of one partition, as both forms of the kernel have it.

Three ends of a tail, all offsets: `written_end` (sealed), `committed_end` (safe), `handed_end`
(given to channels; it stands still while the topic is paused or has no channel). `handed_end <=
committed_end <= written_end`.

Batch life: open (gathering) -> sealed (in a queue, being written and synced) -> committed (kept in
memory while there is room, newest first) -> dropped, or -> failed. With `sealed_max` batches in the
queue the open one gathers on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from penstock.kernel.trace_interface import NotedTail

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.kernel.interface import Conn


class Tail(NotedTail, Protocol):
    """The writing end of one partition: open batch, sealed batches, newest committed batches."""

    @property
    def topic(self) -> bytes: ...

    @property
    def partition(self) -> int: ...  # its number

    owner: Any
    refusing: bool  # PUB and MPUB come out as REFUSED
    append_end_max: int  # so does what would end above it, whole (0: no bound)
    handing: bool  # handed_end follows committed_end

    @property
    def open_count(self) -> int: ...
    @property
    def open_bytes(self) -> int: ...
    @property
    def sealed_count(self) -> int: ...  # messages of sealed batches: written_end - committed_end
    @property
    def sealed_batches(self) -> int: ...

    # Bytes of publishes that wait for room in the open batch. The kernel counts those of its
    # connections, until there is room again; the broker adds and takes off what it keeps itself.
    waiting_bytes: int
    waiting_bytes_max: (
        int  # what would go above it is CROWDED; one publish may always wait (0: no bound)
    )

    sealed_max: int  # with so many sealed batches, `dirty_tails` leaves the tail out

    @property
    def written_end(self) -> int: ...
    @property
    def committed_end(self) -> int: ...

    handed_end: int  # may be set lower once, before the first window exists (a restart's backlog)

    @property
    def memory_start(self) -> int: ...  # first offset still in memory (== committed_end when none)
    @property
    def message_count(self) -> int: ...  # appended since start
    @property
    def message_bytes(self) -> int: ...

    def append(
        self,
        body: bytes,
        due_ns: int = 0,
        sections: Mapping[int, int | bytes] | None = None,
        by: Conn | None = None,
    ) -> None:
        """One message into the open batch. `due_ns` 0: at once. `sections`: what else the trailer
        is to say of it, by `Section`. `by`: who publishes it. The caller sees to the limits."""
        ...

    def append_parts(self, parts: list[Buffer]) -> None:
        """One message, due at once, whose body comes in pieces."""

    def count_pack(self, pack: int, body: Buffer, count_max: int, message_bytes_max: int) -> int:
        """How many messages `body` holds, all of them right; or BAD_COUNT or BAD_MESSAGE."""
        ...

    def append_pack(self, pack: int, body: Buffer, due_ns: int = 0) -> int:
        """All messages of `body` into the open batch, in order; none when one is malformed
        (ValueError). The caller has seen to the limits (`count_pack`). Returns their count."""
        ...

    def seal(
        self, base_id: int, timestamp_ns: int, synced_end: int, leader_epoch: int = 0
    ) -> list[Buffer]:
        """Close the open batch; base offset is `written_end`. Returns the buffers to write, in
        order; they stay valid until the batch is committed or fails. RuntimeError when
        `sealed_max` batches are sealed already."""
        ...

    def seal_batch(self, data: bytes) -> list[Buffer]:
        """The same for a whole batch from elsewhere (`encode_batch`, base offset `written_end`).
        The open batch stays open. As part of a row that is begun, it needs no room. ValueError for
        what is not such a batch."""
        ...

    def adopt(self, count: int, size: int) -> None:
        """This many messages, with `size` bytes of bodies, stand in the log behind what was written
        before, and are safe. They are visible from now on and have to be read from there: none
        of the tail is in memory any more. Nothing may be sealed; the open batch stays open."""

    def commit_to(self, offset: int) -> None:
        """Every sealed batch that ends at or below `offset` is safe: visible to windows, and its
        publishers get OK at the next flush. ValueError when `offset` lies inside a batch or above
        `written_end`; nothing happens when it is committed already."""

    def fail_from(self, offset: int) -> None:
        """The sealed batch at `offset` was not stored, and so none behind it: `written_end` goes
        back to `offset`, publishers get PUB_FAILED. ValueError when no sealed batch begins there,
        unless it is the end of all."""

    def commit(self) -> None:
        """`commit_to` the written end. RuntimeError when nothing is sealed."""

    def fail(self) -> None:
        """`fail_from` the committed end: all sealed batches. RuntimeError when there is none."""

    def hand(self) -> None:
        """Set handed_end to committed_end once (unpause, first channel)."""

    def begin_at(self, offset: int) -> None:
        """What lies below `offset` and was not handed is dropped, and does not count as handed.
        The caller has the windows step over it."""

    def drop_open(self) -> None:
        """Refuse what is in the open batch: its publishers get PUB_FAILED."""

    def validate(self) -> None: ...
