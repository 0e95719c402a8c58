"""What the kernel notes of messages that are traced. The kinds are those of trace/events.py."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from typing_extensions import Buffer


class TraceKind(IntEnum):
    """What happened to a message."""

    PUBLISHED = 1
    SENT = 2
    FINISHED = 3
    REQUEUED = 4
    TIMED_OUT = 5
    TOUCHED = 6
    DELAYED = 7
    RELEASED = 8
    DEAD_LETTERED = 9
    SKIPPED = 10
    FILTERED = 11
    DISCONNECTED = 12
    EMPTIED = 13
    CORRUPT = 16  # 14 and 15 are about no message, and not of the kernel


TRACE_ALL = (1 << 64) - 1  # of `trace_below`: every message


class Noted(Protocol):
    """The events that an engine has noted. Somebody takes them every few milliseconds."""

    @property
    def trace_pending(self) -> bool: ...  # is there anything for `take_trace`?
    # is there a whole chunk, so that waiting for more saves nothing?
    @property
    def trace_full(self) -> bool: ...

    def take_trace(self) -> list[tuple[list[Any], bytes]]:
        """Records in chunks: what they name by number from 1, and they as in docs/formats.md."""
        ...

    def tell_time(self, wall_ns: int) -> None: ...  # for events outside of a turn


class TraceFunctions(Protocol):
    """Module-level functions of `kernel.traceruns` (both forms). A record with a message id and a
    count of N is a run of N events, which differ in offset and id alone."""

    def expand_events(self, records: Buffer, events_max: int) -> Buffer:
        """Each event by itself: `records` themselves when there is no run among them. Raises
        ValueError for half a record, and for more events than that."""
        ...

    def pick_events(
        self, records: Buffer, message_id: int, trace_id: int, events_max: int
    ) -> bytes:
        """The events of one message, and of all with this trace id (0: not asked for), each by
        itself. For both 0: those without a message id. Raises ValueError likewise."""
        ...


class NotedTail(Protocol):
    """What of a tail's messages is noted."""

    traceable: bool  # off at first; then messages with trace ids are traced, here and in windows
    trace_below: int  # and those whose id's hash is below it: 0 none, TRACE_ALL all (publishes)

    def note_stored(self, data: Buffer) -> None:
        """One whole, sound batch was published, and stands in the log without having been here
        (`adopt` follows). Raises ValueError for anything else."""
        ...
