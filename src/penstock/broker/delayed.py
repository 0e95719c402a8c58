"""What an operator does to all delayed messages of a channel at once.

The messages are listed once, and settled a piece at a time, so that others have their turn. What
was settled meanwhile by somebody else is not counted. Delayed messages beyond those that a channel
has at hand (`PARKED_MAX`) are not reached: they come to hand within seconds, when there is room.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from penstock import limits
from penstock.broker.channel import Channel
from penstock.kernel import Stray, StrayRecord

_DONE = -1  # a due time that means: finished
_NOW = 0
Work = Generator[None, None, int]  # returns how many messages


def finish(channel: Channel, partitions: Sequence[int]) -> Work:
    """All that are delayed, by their publish or by a REQ."""
    return _settle(channel, partitions, lambda record: True, _DONE)


def finish_retried(channel: Channel, partitions: Sequence[int]) -> Work:
    """Those that a consumer has had, and requeued with a delay."""
    return _settle(channel, partitions, lambda record: record.attempts > 0, _DONE)


def release(channel: Channel, partitions: Sequence[int], until_ns: int) -> Work:
    """Those that are due by then are sent now."""
    return _settle(channel, partitions, lambda record: record.due_ns <= until_ns, _NOW)


def _settle(
    channel: Channel,
    partitions: Sequence[int],
    wanted: Callable[[StrayRecord], bool],
    due_ns: int,
) -> Work:
    settled = 0
    for number in partitions:
        window = channel.windows.get(number)
        if window is None:  # led here no more: an office may end while this goes on
            continue
        records = window.stray_records(Stray.DELAYED, limits.PARKED_MAX)
        ids = [record.id for record in records if wanted(record)]
        for first in range(0, len(ids), limits.SETTLED_TOGETHER):
            if channel.deleted or not channel.has(window):
                return settled
            channel.topic.tell_time()
            piece = ids[first : first + limits.SETTLED_TOGETHER]
            settled += sum(window.settle_stray(id, due_ns) for id in piece)
            channel.topic.store_cursors()
            yield
    return settled
