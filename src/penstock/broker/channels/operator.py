"""Commands of an operator on messages of a channel: on one of them, or on all that are delayed.

**One message.** In flight it belongs to a consumer: it is finished or requeued in that one's name,
and what the consumer says of it later is an error to it, as after a timeout. Waiting to be sent
again, or delayed, it has no owner. A new one, which the channel has not come to yet, can be
finished where it lies, and not requeued. All is in the channel journal before the answer is given.
Those that are on their way to the dead letters can't be settled.

**All delayed ones.** They are listed once, and settled a piece at a time, so that others have their
turn. What was settled meanwhile by somebody else is not counted. Delayed messages beyond those that
a channel has at hand (`PARKED_MAX`) are not reached: they come to hand within seconds, when there
is room.
"""

from collections.abc import Callable, Generator, Iterable, Sequence

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.topics.settings import Poison
from penstock.errors import NotFound
from penstock.kernel import Held, Stray, StrayRecord, Window

_DONE = -1  # a due time that means: finished
_NOW = 0


def finish(channel: Channel, id: int, partitions: Iterable[int] | None = None) -> None:
    """In these partitions, if this node still leads them, or in all. Raises NotFound."""
    channel.topic.set_time()
    windows = channel.windows
    numbers = windows if partitions is None else [one for one in partitions if one in windows]
    _settled(channel, id, any(_finish(windows[number], id) for number in numbers))


def finish_ahead(channel: Channel, partition: int, offset: int) -> bool:
    """False: the channel has reached it, or this node does not lead the partition any more."""
    window = channel.windows.get(partition)
    if window is None or channel.deleted or offset < window.next:
        return False
    channel.topic.set_time()
    window.skip(offset, offset + 1)
    channel.topic.store_cursors()
    return True


def _finish(window: Window, id: int) -> bool:
    """False: the message was not found."""
    holder = window.holder(id)
    if holder:
        return window.finish(holder, id) == Held.DONE
    if window.settle_stray(id, _DONE):
        return True
    is_held = window.owner.settings.poison == Poison.HOLD
    return is_held and window.settle_exhausted(id, done=True)


def requeue(channel: Channel, id: int, delay_ns: int, wall_ns: int) -> None:
    """Send again, or for the first time, after `delay_ns`. Raises NotFound."""
    channel.topic.set_time()
    windows = channel.windows.values()
    _settled(channel, id, any(_requeue(window, id, delay_ns, wall_ns) for window in windows))


def _requeue(window: Window, id: int, delay_ns: int, wall_ns: int) -> bool:
    holder = window.holder(id)
    if holder:
        return window.requeue(holder, id, delay_ns, wall_ns) == Held.DONE
    return window.settle_stray(id, wall_ns + delay_ns if delay_ns else _NOW)


def _settled(channel: Channel, id: int, done: bool) -> None:
    if not done:
        raise NotFound("message", f"{id:016x}")
    channel.topic.store_cursors()


Work = Generator[None, None, int]  # returns how many messages


def finish_delayed(channel: Channel, partitions: Sequence[int]) -> Work:
    """Finish all messages delayed by their publish or by a REQ."""
    return _settle(channel, partitions, lambda record: True, _DONE)


def finish_retried(channel: Channel, partitions: Sequence[int]) -> Work:
    """Finish messages that a consumer had, and requeued with a delay."""
    return _settle(channel, partitions, lambda record: record.attempts > 0, _DONE)


def release(channel: Channel, partitions: Sequence[int], until_ns: int) -> Work:
    """Send the messages due by then now."""
    return _settle(channel, partitions, lambda record: record.due_ns <= until_ns, _NOW)


def _settle(
    channel: Channel, partitions: Sequence[int], wanted: Callable[[StrayRecord], bool], due_ns: int
) -> Work:
    settled = 0
    for number in partitions:
        window = channel.windows.get(number)
        if window is None:  # led here no more: a leadership may end while this goes on
            continue
        records = window.stray_records(Stray.DELAYED, limits.PARKED_MAX)
        ids = [record.id for record in records if wanted(record)]
        for first in range(0, len(ids), limits.SETTLED_TOGETHER):
            if channel.deleted or not channel.has(window):
                return settled
            channel.topic.set_time()
            piece = ids[first : first + limits.SETTLED_TOGETHER]
            settled += sum(window.settle_stray(id, due_ns) for id in piece)
            channel.topic.store_cursors()
            yield
    return settled
