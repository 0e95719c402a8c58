"""What the kernel notes of messages that are traced. The kinds are those of log/traceevents.py."""

from __future__ import annotations

from enum import IntEnum


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
