"""Several queues of nsqd become one log: the stored copy of each message, and the channels that
want it.

nsqd keeps a copy of each message for each channel. Here a message is stored once, and what a
channel does not want of the log is a range that counts as finished. The rules:

- Two records are the same message when id, timestamp and body are the same. Ids alone prove
  nothing: nsqd may give one twice after its clock was set back.
- Twice in one queue is once. It happens when nsqd was killed after a requeue: the record that had
  been read is read again, and the requeued one follows. The higher attempts count.
- Channels share a copy when they agree about its attempts, which are stored with it. Where they do
  not, each count has a copy of its own.
- What is in the topic's own queue is for all channels, later, when it is handed over. What is there
  and in a channel's queue too had been handed over when nsqd was killed: it goes to all channels
  now, for some of them perhaps for the second time.

Every channel gets its messages in the order of its files. Queues are laid out one after the other,
the largest first, and what a channel shares with those before it is what stands in the same order
in both (`Alignment`); the rest it stores again. The topic's own queue stands at the end. In the
common case, where one channel is behind another, nothing is stored twice, and what a channel does
not want are few and long ranges. In the worst case (two channels that want every other message) the
ranges would be as many as the messages. So each channel has a part of `RANGES_MAX`, and beyond it
takes copies of its own, which is what nsqd did.

Memory: two bytes for each record, four more in queues that share a message with one before them.

**The layout** keeps each queue's own order. The log grows queue by queue. What a new queue has in
common with it comes as runs of records that follow one another in the queue and where they are
stored. The heaviest set of runs that stand in the same order in both is shared (the longest
increasing subsequence, weighted by length). The rest of the queue is stored again, between the runs
where it stood: two queues that disagree about the order of some messages each keep a copy of those.

Each shared run costs a channel at most one finished range more, and what is stored again before it
costs every other channel at most one. `add` shares no more runs than it is allowed, the longest.
"""

from __future__ import annotations

import heapq
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, takewhile
from typing import NamedTuple

from penstock.log.fold import ChannelState, normalised


class Run(NamedTuple):
    """Records of a queue that another queue stores."""

    at: int  # ordinal of the first in the queue
    owner: int  # the queue that stores them
    first: int  # ordinal of the first there
    length: int

    @property
    def at_end(self) -> int:
        return self.at + self.length

    @property
    def first_end(self) -> int:
        return self.first + self.length


class Segment(NamedTuple):
    """The records [start, end) that a queue stores itself, together in the log."""

    queue: int
    start: int
    end: int


class RecordPosition(NamedTuple):
    """A record's position in the log. Positions compare as in the log."""

    segment: int
    ordinal: int


class Alignment:
    def __init__(self) -> None:
        self.segments: list[Segment] = []  # in the order of the log

    def choose(self, runs: Iterable[Run], runs_max: int) -> list[Run]:
        """The records that a queue can share: in its order, which is the log's too. They may be
        interrupted by other records in the log."""
        longest = heapq.nlargest(runs_max, runs, key=lambda run: run.length)
        index = _Index(self.segments)
        placed = [one for run in sorted(longest) for one in index.cut(run)]
        return _in_order(placed)

    def add(self, queue: int, size: int, shared: list[Run], own: Iterable[tuple[int, int]]) -> None:
        """Insert the records that `queue` stores itself: [start, end) for each of `own`, which are
        gaps between the runs in `shared`."""
        followers = {run.at: run for run in shared}
        index = _Index(self.segments)
        inserted: list[tuple[RecordPosition, Segment]] = []
        last: list[Segment] = []
        for start, end in own:
            segment = Segment(queue, start, end)
            if end == size:
                last.append(segment)
            else:
                run = followers[end]
                inserted.append((index.position(run.owner, run.first), segment))
        self.segments = [*_insert(self.segments, inserted), *last]


class _Index:
    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._starts: dict[int, list[int]] = {}
        self._numbers: dict[int, list[int]] = {}
        for number, segment in enumerate(segments):
            self._starts.setdefault(segment.queue, []).append(segment.start)
            self._numbers.setdefault(segment.queue, []).append(number)

    def position(self, queue: int, ordinal: int) -> RecordPosition:
        at = bisect_right(self._starts[queue], ordinal) - 1
        return RecordPosition(self._numbers[queue][at], ordinal)

    def cut(self, run: Run) -> Iterable[tuple[RecordPosition, Run]]:
        """The run in pieces that each lie in one segment."""
        at, owner, first, left = run
        while left:
            position = self.position(owner, first)
            length = min(left, self._segments[position.segment].end - first)
            yield position, Run(at, owner, first, length)
            at, first, left = at + length, first + length, left - length


def _in_order(placed: list[tuple[RecordPosition, Run]]) -> list[Run]:
    """The heaviest selection whose positions rise. `placed` is in the order of the queue."""
    ends: list[RecordPosition] = []  # of selections of which none is lighter than one before it
    best: list[tuple[int, int]] = []  # the weight of each, and the number of its last
    before: list[int] = []  # the one that goes before each in the best selection that ends with it
    for number, (position, run) in enumerate(placed):
        at = bisect_left(ends, position)
        weight, previous = best[at - 1] if at else (0, -1)
        weight += run.length
        before.append(previous)
        behind = at  # these end later, and weigh no more
        while behind < len(best) and best[behind][0] <= weight:
            behind += 1
        ends[at:behind], best[at:behind] = [position], [(weight, number)]
    chosen: list[Run] = []
    last = best[-1][1] if best else -1
    while last >= 0:
        chosen.append(placed[last][1])
        last = before[last]
    return chosen[::-1]


def _insert(
    segments: list[Segment], inserted: list[tuple[RecordPosition, Segment]]
) -> list[Segment]:
    """Insert each of `inserted`, whose positions rise, before the record at its position."""
    joined: list[Segment] = []
    number, start = 0, segments[0].start if segments else 0
    for position, segment in inserted:
        while number < position.segment:
            joined.append(Segment(segments[number].queue, start, segments[number].end))
            number += 1
            start = segments[number].start
        if position.ordinal > start:
            joined.append(Segment(segments[number].queue, start, position.ordinal))
            start = position.ordinal
        joined.append(segment)
    if number < len(segments):
        joined.append(Segment(segments[number].queue, start, segments[number].end))
        joined += segments[number + 1 :]
    return joined


RANGES_MAX = 8192  # of a topic's channels together: 256 KiB in each snapshot of the journal
NOBODY = 0xFFFF  # the owner of a record that is stored nowhere
QUEUES_MAX = NOBODY


class Entry(NamedTuple):
    """One record: its identity, and its position."""

    id: int
    digest: int  # of timestamp and body
    queue: int  # of channels by number; the topic's own comes last
    ordinal: int  # in its queue
    attempts: int


class Layout(NamedTuple):
    segments: list[Segment]
    handed_end: int  # from here on stands what is the topic's own
    end: int
    states: list[ChannelState]  # by channel


class Merge:
    """`settle` all records that may be the same message together; then `layout`, once."""

    def __init__(self, channel_sizes: Sequence[int], topic_size: int) -> None:
        self._channels = len(channel_sizes)
        self._sizes = [*channel_sizes, topic_size]
        if len(self._sizes) > QUEUES_MAX:
            raise ValueError(f"{self._channels} channels: a topic can have {QUEUES_MAX - 1}")
        # by queue: whose copy each record is stored as
        self.owners = [array("H", [queue]) * size for queue, size in enumerate(self._sizes)]
        self._links: dict[int, array[int]] = {}  # by queue: the record's ordinal at its owner
        # by channel and owner: ordinals [start, end) that the channel wants of what the owner has
        self._wanted: list[dict[int, list[tuple[int, int]]]] = [{} for _ in channel_sizes]

    # --- stored copies ---

    def settle(self, entries: Iterable[Entry]) -> None:
        messages: dict[tuple[int, int], Entry | list[Entry]] = {}
        several: list[list[Entry]] = []
        for entry in entries:
            known = messages.setdefault(entry[:2], entry)
            if known is entry:
                continue
            if isinstance(known, list):
                known.append(entry)
            else:
                messages[entry[:2]] = pair = [known, entry]
                several.append(pair)
        for same in several:
            self._settle_one(same)

    def _settle_one(self, same: list[Entry]) -> None:
        holders: dict[int, Entry] = {}
        for entry in sorted(same, key=lambda one: (one.queue, -one.attempts, one.ordinal)):
            if holders.setdefault(entry.queue, entry) is not entry:
                self.owners[entry.queue][entry.ordinal] = NOBODY
        topic = holders.pop(self._channels, None)
        if not holders:
            return
        owners: dict[int, Entry] = {}  # by attempts
        for channel, entry in holders.items():
            owner = owners.setdefault(entry.attempts, entry)
            if owner is not entry:
                self.owners[channel][entry.ordinal] = owner.queue
                self._links_of(channel)[entry.ordinal] = owner.ordinal
        if topic is not None:
            self.owners[topic.queue][topic.ordinal] = NOBODY
            owner = owners.get(topic.attempts) or next(iter(owners.values()))
            for channel in range(self._channels):
                if channel not in holders:
                    self._want(channel, owner.queue, owner.ordinal, owner.ordinal + 1)

    def _links_of(self, queue: int) -> array[int]:
        links = self._links.get(queue)
        if links is None:
            links = self._links[queue] = array("I", [0]) * self._sizes[queue]
        return links

    def _want(self, channel: int, owner: int, start: int, end: int) -> None:
        self._wanted[channel].setdefault(owner, []).append((start, end))

    # --- in which order ---

    def layout(self) -> Layout:
        alignment = Alignment()
        left = RANGES_MAX
        for channel in range(self._channels):
            runs_max = max(left // (self._channels - channel) // self._channels, 1)
            left -= self._assign(alignment, channel, runs_max)
        handed_end = sum(self._stored(*one) for one in alignment.segments)
        own = Segment(self._channels, 0, self._sizes[-1])
        states = [self._state(channel, alignment.segments) for channel in range(self._channels)]
        segments = [*alignment.segments, own]
        return Layout(segments, handed_end, handed_end + self._stored(*own), states)

    def _assign(self, alignment: Alignment, channel: int, runs_max: int) -> int:
        """Share as many as possible, and store the rest. Returns the cost in ranges."""
        shared = alignment.choose(self._runs(channel), runs_max)
        own = [gap for gap in self._gaps(channel, shared) if self._own(channel, *gap)]
        alignment.add(channel, self._sizes[channel], shared, own)
        for run in shared:
            self._want(channel, run.owner, run.first, run.first_end)
        self._want(channel, channel, 0, self._sizes[channel])
        return len(shared) + len(own) * (self._channels - 1)

    def _runs(self, channel: int) -> Iterator[Run]:
        """The channel's records that another queue stores."""
        at, owner, first, count = 0, channel, 0, 0
        links = self._links.pop(channel, ())  # not needed after this
        for ordinal, (stored_by, link) in enumerate(zip(self.owners[channel], links, strict=False)):
            if count and stored_by == owner and link == first + count:
                count += 1
                continue
            if count:
                yield Run(at, owner, first, count)
            at, owner, first = ordinal, stored_by, link
            count = stored_by not in (channel, NOBODY)
        if count:
            yield Run(at, owner, first, count)

    def _gaps(self, channel: int, shared: list[Run]) -> Iterator[tuple[int, int]]:
        """Ordinals [start, end) between the runs."""
        start = 0
        for run in shared:
            yield start, run.at
            start = run.at_end
        yield start, self._sizes[channel]

    def _own(self, channel: int, start: int, end: int) -> bool:
        """Have the channel store its records [start, end). Returns whether there are any."""
        owners = self.owners[channel]
        found = False
        for ordinal in range(start, end):
            if owners[ordinal] != NOBODY:
                owners[ordinal] = channel
                found = True
        return found

    # --- the outcome ---

    def _stored(self, queue: int, start: int, end: int) -> int:
        return self.owners[queue][start:end].count(queue)

    def _state(self, channel: int, segments: Iterable[Segment]) -> ChannelState:
        wanted = {owner: sorted(ranges) for owner, ranges in self._wanted[channel].items()}
        finished: list[tuple[int, int]] = []
        offset = done = 0  # `done`: what stands between it and `offset` is not wanted
        for queue, start, end in segments:
            at = start
            for first, last in _within(wanted.get(queue, ()), start, end):
                offset += self._stored(queue, at, first)
                if offset > done:
                    finished.append((done, offset))
                offset = done = offset + self._stored(queue, first, last)
                at = last
            offset += self._stored(queue, at, end)
        if offset > done:
            finished.append((done, offset))
        return normalised(0, 0, finished, ())


def _within(ranges: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[tuple[int, int]]:
    """The parts in [start, end) of ranges that rise and lie apart."""
    behind = bisect_right(ranges, start, key=lambda one: one[1])
    for first, last in takewhile(lambda one: one[0] < end, islice(ranges, behind, None)):
        yield max(first, start), min(last, end)
