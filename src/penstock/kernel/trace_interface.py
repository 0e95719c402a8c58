"""What the kernel notes of messages that are traced. The kinds are those of log/traceevents.py."""

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


TRACE_ALL = (1 << 64) - 1  # of `trace_below`: every message


class Noted(Protocol):
    """The events that an engine has noted. Somebody takes them every few milliseconds."""

    trace_pending: bool  # is there anything for `take_trace`?
    trace_full: bool  # is there a whole chunk, so that waiting for more saves nothing?

    def take_trace(self) -> list[tuple[list[Any], bytes]]:
        """Events in chunks: what they name by number from 1, and they as in docs/formats.md."""
        ...

    def tell_time(self, wall_ns: int) -> None: ...  # for events outside of a turn


class NotedTail(Protocol):
    """What of a tail's messages is noted."""

    traceable: bool  # off at first; then messages with trace ids are traced, here and in windows
    trace_below: int  # and those whose id's hash is below it: 0 none, TRACE_ALL all (publishes)

    def note_stored(self, data: Buffer) -> None:
        """One whole, sound batch was published, and stands in the log without having been here
        (`adopt` follows). Raises ValueError for anything else."""
        ...
