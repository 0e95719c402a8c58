"""Which consumers a message is for, where some have a tag.

A message names its tag in the header `##client_dispatch_tag`. While a consumer of the channel has
that tag, only such consumers get the message; else it is for those without a tag, as are messages
that name none. So the consumers fall into *classes*, one for each tag and the empty one for those
without, and a message belongs to one of them.

What a consumer's turn comes upon and belongs to another class is put aside: it is a waiting stray
(not finished: it counts, it is journalled, retention keeps it) in the queue of its class. What is
in the queue of all (that of `Strays`) has not been looked at; the first consumer that comes upon
one of those moves it to its class, unless it is its own. When a class comes or goes, a message may
belong to another: then all queues are one again, in the order in which they began to wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.kernel.pure.member import find_member, resolve

if TYPE_CHECKING:
    from penstock.kernel.pure.block import Batch
    from penstock.kernel.pure.strays import Queue, Strays

NAME = b"##client_dispatch_tag"
NO_TAG = b""


class Tags:
    def __init__(self) -> None:
        self._consumers: Counter[bytes] = Counter()  # of each tag
        self._queues: dict[bytes, Queue] = {}

    def __bool__(self) -> bool:
        """Has a consumer a tag?"""
        return bool(self._consumers)

    def __contains__(self, tag: bytes) -> bool:
        return tag in self._consumers

    def class_of(self, batch: Batch, index: int) -> bytes:
        raw = find_member(batch.headers(index), NAME)
        tag = NO_TAG if raw is None else resolve(raw)
        return tag if tag is not None and tag in self._consumers else NO_TAG

    def queue_of(self, tag: bytes) -> Queue:
        return self._queues.setdefault(tag, deque())

    @property
    def queues(self) -> Iterable[Queue]:
        return self._queues.values()

    def forget(self) -> None:
        """Nothing waits any more."""
        self._queues.clear()

    def join(self, strays: Strays, tag: bytes) -> None:
        if tag:
            if tag not in self._consumers:
                self._gather(strays)
            self._consumers[tag] += 1

    def leave(self, strays: Strays, tag: bytes) -> None:
        if tag:
            self._consumers[tag] -= 1
            if not self._consumers[tag]:
                self._gather(strays)
                del self._consumers[tag]

    def _gather(self, strays: Strays) -> None:
        for queue in self._queues.values():
            strays.queue.extend(queue)
        self._queues.clear()
        ordered = sorted(strays.queue, key=lambda place: place[1])
        strays.queue.clear()
        strays.queue.extend(ordered)
