"""A topic's tails, and which of them takes the next publish that names no partition.

All publishes of a turn go to one tail, so that they share one batch and one write. When its open
batch is sealed the route moves on to the next number, so that rows are spread over the partitions.
Large rows stay with a tail for some more of them: a log costs most where one begins with it again,
with buffers, pages and syncs that others have pushed out meanwhile. How much that is, and how long,
is bounded, so that bytes are spread as well.

A tail that refuses is passed by, and one that has as many sealed batches as it may is taken only
where all are like that: its open batch would wait for them. When another tail can write before
that, the route goes on to it.

Nothing tells the route of a seal: it compares the promise of the open batch with the one it chose.

A key decides on the partition of its messages, for good: by its hash, modulo a number that is fixed
when the topic is made, however many partitions it gets later.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from penstock import limits
from penstock.kernel.pure.murmur3 import murmur3_32

if TYPE_CHECKING:
    from penstock.kernel.pure.tail import Tail

ANY_PARTITION = -1  # none is named, or -1
NO_PARTITION = -2  # a number that none can have
_DIGITS_MAX = 20  # int() refuses thousands of digits
_number = re.compile(rb"([+-]?)0*([0-9]*)(?<=[0-9])").fullmatch


def partition_of(word: bytes) -> int:
    """The partition that a word behind the topic names. What is no number is ignored, as NSQ
    ignores it; -1 is any."""
    found = _number(word)
    if found is None or word == b"-1":
        return ANY_PARTITION
    sign, digits = found.groups()
    value = int(digits[:_DIGITS_MAX] or b"0")
    return value if sign != b"-" and value < limits.PARTITIONS_MAX else NO_PARTITION


def accepts(tail: Tail, count: int) -> bool:
    """May so many messages be published to it now?"""
    return not tail.refusing and tail.has_room(count)


class Route:
    def __init__(self, tail: Tail) -> None:
        self.tails = [tail]  # by number
        self.hash_partitions = 0  # by which keys are spread; 0: as many as there are tails
        self.extended = False  # its messages may have any headers
        self.placed = False  # publishes must name a partition or a key
        self._choose(tail)

    def _choose(self, tail: Tail) -> Tail:
        self._current, self._promise = tail, tail.promise
        self._rows, self._bytes_before = 1, tail.message_bytes
        self._until_ns = tail.mono_ns + limits.ROUTE_STAY_NS
        return tail

    def _begin_row(self, tail: Tail) -> Tail:
        self._promise = tail.promise
        self._rows += 1
        return tail

    def _goes_on(self, tail: Tail) -> bool:
        """Does the next row go to the same tail?"""
        size = tail.message_bytes - self._bytes_before
        are_large = size >= self._rows * limits.ROUTE_ROW_BYTES_MIN
        return are_large and size < limits.ROUTE_STAY_BYTES and tail.mono_ns < self._until_ns

    def add(self, tail: Tail) -> None:
        self.tails.append(tail)
        self.tails.sort(key=lambda tail: tail.partition)

    def remove(self, tail: Tail) -> None:
        place = self.tails.index(tail)
        del self.tails[place]
        if tail is self._current and self.tails:
            self._choose(self.tails[place % len(self.tails)])

    def find(self, partition: int) -> Tail | None:
        return next((tail for tail in self.tails if tail.partition == partition), None)

    def place_of_key(self, key: bytes) -> int:
        """The number of the partition for messages with this key."""
        return murmur3_32(key) % (self.hash_partitions or len(self.tails))

    def pick(self, count: int) -> Tail:
        """The tail for so many messages. When all refuse: the one that would be next."""
        current = self._current
        accepted = accepts(current, count)
        stays = accepted and current.promise is self._promise
        if stays and current.can_seal:
            return current
        if accepted and current.can_seal and self._goes_on(current):
            return self._begin_row(current)
        first = self.tails.index(current) + 1
        willing = [tail for tail in self.tails[first:] + self.tails[:first] if accepts(tail, count)]
        free = next((tail for tail in willing if tail.can_seal), None)
        if free is None and (stays or not willing):
            return current
        return self._choose(free or willing[0])
