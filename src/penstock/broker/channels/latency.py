"""The delay of a channel: end-to-end latency, and the age of its oldest message.

**End-to-end latency** is how long messages took from their timestamp to their FIN, as percentiles.

The kernel counts in buckets whose middle is off by 1.6 % at most (`Window.take_latencies`). Here
the counts of a channel go into a sliding window of two halves: the current one, and the one before.
When half the window's time has gone by, the older half is dropped. So what is shown is never older
than the window, and never less than half of it. A topic's figures are those of its channels, added.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.errors import PenstockError
from penstock.kernel import Section, Stray
from penstock.kernel.layout import FLAG_TRAILER

if TYPE_CHECKING:
    from penstock.broker.partition.leader import Leader
    from penstock.broker.topics.topic import Topic
    from penstock.kernel import Window


Row = dict[str, Any]
Counts = dict[int, int]  # by bucket

_LOWEST_BITS = 10  # below 2 ** 10 ns all is bucket 0
_STEP_BITS = 5  # then each power of two has 2 ** 5


def middle_ns(bucket: int) -> int:
    if bucket == 0:
        return 1 << _LOWEST_BITS - 1
    power, step = divmod(bucket - 1, 1 << _STEP_BITS)
    width = 1 << _LOWEST_BITS + power - _STEP_BITS
    return ((1 << _STEP_BITS) + step) * width + width // 2


def latency_row(counts: Counts, quantiles: Collection[float]) -> Row:
    """NSQ's form. All values are 0 while there is nothing to go by; none without quantiles."""
    ordered = sorted(counts.items())
    sums = list(accumulate(count for _, count in ordered))
    total = sums[-1] if sums else 0

    def value(quantile: float) -> int:
        rank = ceil(quantile * total)
        index = next((i for i, below in enumerate(sums) if below >= rank), None)
        return 0 if index is None else middle_ns(ordered[index][0])

    # Go prints a whole float without a fraction.
    found = [{"quantile": 1 if one == 1 else one, "value": value(one)} for one in quantiles]
    return {"count": total, "percentiles": found or None}


def _add(to: Counts, counts: Mapping[int, int]) -> None:
    for bucket, count in counts.items():
        to[bucket] = to.get(bucket, 0) + count


class Latency:
    """The sliding window of one channel. `quantiles` empty: nothing is measured."""

    def __init__(self, quantiles: tuple[float, ...]) -> None:
        self.quantiles = quantiles
        self._windows: list[Window] = []
        self._now: Counts = {}
        self._before: Counts = {}

    def measure(self, window: Window) -> None:
        if self.quantiles:
            window.measures_latency = True
            self._windows.append(window)

    def forget(self, window: Window) -> None:
        if self.quantiles:
            _add(self._now, window.take_latencies())
            self._windows.remove(window)

    def _take(self) -> None:
        for window in self._windows:
            _add(self._now, window.take_latencies())

    def turn(self) -> None:
        """Half the time of the window has passed."""
        self._take()
        self._before, self._now = self._now, {}

    @property
    def counts(self) -> Counts:
        self._take()
        counts = dict(self._before)
        _add(counts, self._now)
        return counts

    def row(self) -> Row:
        return latency_row(self.counts, self.quantiles)


def topic_latency_row(topic: Topic) -> Row:
    counts: Counts = {}
    quantiles: tuple[float, ...] = ()
    for channel in topic.channels.values():
        quantiles = channel.latency.quantiles
        if quantiles:
            _add(counts, channel.latency.counts)
    return latency_row(counts, quantiles)


class LatencyTurns:
    """Turns the windows of all channels over, together."""

    def __init__(self, topics: Mapping[str, Topic], window_ns: int, mono_ns: int) -> None:
        self._topics = topics
        self._half_ns = window_ns // 2
        self._next_ns = mono_ns + self._half_ns

    def housekeeping(self, mono_ns: int) -> None:
        if mono_ns < self._next_ns:
            return
        passed, self._next_ns = mono_ns - self._next_ns, mono_ns + self._half_ns
        rounds = 2 if passed >= self._half_ns else 1  # the machine slept
        for topic in self._topics.values():
            for channel in topic.channels.values():
                for _ in range(rounds):
                    channel.latency.turn()


_DUE = (Stray.WAITING, Stray.IN_FLIGHT, Stray.EXHAUSTED, Stray.BEHIND)


class Oldest:
    """The oldest message that a channel has not finished. Its age counts from the time of its
    batch, or from when it was due, if it was published for later: what is not due yet has no age,
    and makes no channel late. A look into the log finds that time, and costs a read; so what was
    found holds for the whole batch, and a channel that moves on from batch to batch is looked up
    every few seconds only. Then the answer may be too high by as much.

    While some messages are delayed, the lowest unfinished one may be one of them. Then the first of
    each kind that is not are looked at.
    """

    def __init__(self, window: Window) -> None:
        self._window = window
        self._start = self._end = 0  # offsets of the batch that was found
        self._timestamp_ns: int | None = None  # None: it could not be read
        self._look_ns = 0  # the next look is not before

    def age_s(self, wall_ns: int) -> float | None:
        window = self._window
        if not unfinished_of(window) - window.delayed:
            return None
        if window.delayed:
            if wall_ns >= self._look_ns or self._start < self._end:
                self._find(wall_ns)
                self._look_ns = wall_ns + limits.OLDEST_LOOK_NS
        else:
            offset = window.floor
            moved_on = offset >= self._end
            if offset < self._start or (moved_on and wall_ns >= self._look_ns):
                self._look(offset)
                self._look_ns = wall_ns + limits.OLDEST_LOOK_NS
        if self._timestamp_ns is None:
            return None
        return max(wall_ns - self._timestamp_ns, 0) / limits.SECOND

    def _find(self, wall_ns: int) -> None:
        """Find the oldest message, without delayed ones."""
        window = self._window
        offsets = [one.offset for state in _DUE for one in window.stray_records(state, 1)]
        if window.low < window.next:
            offsets.append(window.low)
        found = [self._timestamp_ns for at in offsets if self._look(at)]
        at, end = window.next, min(window.tail.handed_end, window.next + limits.OLDEST_WALK)
        while at < end and self._look(at):  # what was not sent yet, without what is not due
            if self._timestamp_ns is not None and self._timestamp_ns <= wall_ns:
                found.append(self._timestamp_ns)
                break
            at = self._end
        self._start = self._end = 0  # it holds for no other offset
        self._timestamp_ns = min((one for one in found if one is not None), default=None)

    def _look(self, offset: int) -> bool:
        """Since when the message there is due; False when that cannot be read."""
        window = self._window
        leader: Leader = window.owner.topic.leader(window.tail.partition)
        self._start, self._end, self._timestamp_ns = offset, offset + 1, None
        if not leader.log.start_offset <= offset < leader.tail.committed_end:
            return False
        leader.topic.touch()
        try:
            header = leader.log.header_of(offset)
            self._timestamp_ns = header.timestamp_ns
            if header.flags & FLAG_TRAILER:  # each of its messages may have its own time
                due_ns = leader.log.message(offset).sections.get(Section.DUE)
                if isinstance(due_ns, int):
                    self._timestamp_ns = max(due_ns, header.timestamp_ns)
                    return True
        except PenstockError:
            self._timestamp_ns = None
            return False  # damage and failing disks are told of elsewhere
        self._start = header.base_offset
        self._end = header.base_offset + header.count
        return True


def unfinished_of(window: Window) -> int:
    """All messages handed to it that are not finished."""
    return window.depth + window.in_flight + window.delayed + window.exhausted
