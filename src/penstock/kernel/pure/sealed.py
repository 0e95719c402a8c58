"""Sealed batches of one tail, in order: the queue between its committed and its written end.

Publishers wait for a batch through its `Promise`: each connection that published into it keeps a
reference, and looks at the outcome when the batch is through.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch
    from penstock.kernel.pure.conn import Conn
    from penstock.kernel.pure.tail import Tail
    from penstock.kernel.pure.trace import Publishers

PENDING = 0
STORED = 1
FAILED = 2


class Promise:
    """What the publishers of one batch wait for."""

    __slots__ = ("conns", "outcome", "tail")

    def __init__(self, tail: Tail) -> None:
        self.tail = tail
        self.conns: dict[Conn, None] = {}  # in the order of their first publish
        self.outcome = PENDING


@dataclass(slots=True)
class Sealed:
    """What is known of a batch until it is committed or has failed."""

    batch: Batch
    promise: Promise
    publishers: Publishers


def sealed_before(queue: Sequence[Sealed], start: int, offset: int) -> int:
    """How many batches of a queue that begins at `start` end at or below `offset`, where a batch
    has to begin or the queue to end."""
    count, end = 0, start
    while end < offset and count < len(queue):
        end = queue[count].batch.end
        count += 1
    if end != offset:
        raise ValueError(f"no sealed batch ends or begins at {offset}")
    return count


def validate(queue: Sequence[Sealed], start: int, end: int) -> None:
    for sealed in queue:
        if sealed.batch.base_offset != start:
            raise RuntimeError(f"a sealed batch at {sealed.batch.base_offset}, not at {start}")
        start = sealed.batch.end
    if start != end:
        raise RuntimeError(f"the sealed batches end at {start}, not at {end}")
