"""Several queues of nsqd become one log: which copy of a message is stored, and who wants it.

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

The log is laid out queue after queue, the largest first, the topic's own at the end: so each
channel's order is kept, and what it does not want are few and long ranges in the common case, where
one channel is behind another. In the worst case (two channels that want every other message) the
ranges would be as many as the messages. So a channel whose share of another's queue costs more
than its part of `RANGES_MAX` takes copies of its own from there, which is what nsqd did.

Memory: two bytes for each record, one bit more for each further channel that shares a queue.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.broker.fold import ChannelState, normalised

RANGES_MAX = 8192  # of a topic's channels together: 256 KiB in each snapshot of the journal
NOBODY = 0xFFFF  # the owner of a record that is stored nowhere
QUEUES_MAX = NOBODY


class Entry(NamedTuple):
    """One record: what it is, and where it stands."""

    id: int
    digest: int  # of timestamp and body
    queue: int  # of channels by number; the topic's own comes last
    ordinal: int  # in its queue
    attempts: int


class Layout(NamedTuple):
    """The log as it will be."""

    starts: list[int]  # offset of the first message of each queue
    handed_end: int  # from here on stands what is the topic's own
    end: int
    states: list[ChannelState]  # by channel


class Merge:
    """`settle` all records that may be the same message together; then `bound`, once."""

    def __init__(self, channel_sizes: Sequence[int], topic_size: int) -> None:
        self._channels = len(channel_sizes)
        self._sizes = [*channel_sizes, topic_size]
        if len(self._sizes) > QUEUES_MAX:
            raise ValueError(f"{self._channels} channels: a topic can have {QUEUES_MAX - 1}")
        # by queue: whose copy each record is stored as
        self.owners = [array("H", [queue]) * size for queue, size in enumerate(self._sizes)]
        # by owner and channel: which of the owner's records the channel wants, a bit for each
        self._shares: dict[tuple[int, int], bytearray] = {}
        self._handed: dict[tuple[int, int], list[int]] = {}  # those that the channel has no copy of
        self._ranges_max = max(RANGES_MAX // max(self._channels * (self._channels - 1), 1), 1)

    # --- who stores what ---

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
                self._share(owner, channel)
        if topic is not None:
            self.owners[topic.queue][topic.ordinal] = NOBODY
            owner = owners.get(topic.attempts) or next(iter(owners.values()))
            for channel in range(self._channels):
                if channel not in holders:
                    self._share(owner, channel)
                    self._handed.setdefault((owner.queue, channel), []).append(owner.ordinal)

    def _share(self, owner: Entry, channel: int) -> None:
        pair = owner.queue, channel
        if pair not in self._shares:
            self._shares[pair] = bytearray(self._sizes[owner.queue] // 8 + 1)
        self._shares[pair][owner.ordinal >> 3] |= 1 << (owner.ordinal & 7)

    def bound(self) -> None:
        """Where sharing would cost too many ranges, channels get copies of their own. In the order
        of owners: a copy more changes only the queues that come later."""
        for owner, channel in sorted(self._shares):
            ranges = len(self._unwanted(owner, channel, 0))
            if ranges > self._ranges_max:
                self._unshare(owner, channel)

    def _unshare(self, owner: int, channel: int) -> None:
        owners = self.owners[channel]
        for ordinal, stored_by in enumerate(owners):
            if stored_by == owner:
                owners[ordinal] = channel
        del self._shares[owner, channel]
        for ordinal in self._handed.get((owner, channel), ()):
            self._share(Entry(0, 0, owner, ordinal, 0), channel)

    # --- the outcome ---

    def layout(self) -> Layout:
        starts = []
        end = 0
        for queue, owners in enumerate(self.owners):
            starts.append(end)
            end += owners.count(queue)
        states = [self._state(channel, starts) for channel in range(self._channels)]
        return Layout(starts, starts[-1], end, states)

    def _state(self, channel: int, starts: list[int]) -> ChannelState:
        finished: list[tuple[int, int]] = []
        for owner in range(self._channels):
            if (owner, channel) in self._shares:
                finished += self._unwanted(owner, channel, starts[owner])
            elif owner != channel:
                finished.append((starts[owner], starts[owner + 1]))
        return normalised(0, 0, finished, ())

    def _unwanted(self, owner: int, channel: int, offset: int) -> list[tuple[int, int]]:
        """Ranges of what `owner` stores, from `offset` on, that `channel` does not want."""
        wanted = self._shares[owner, channel]
        ranges: list[tuple[int, int]] = []
        start = -1
        for ordinal, stored_by in enumerate(self.owners[owner]):
            if stored_by != owner:
                continue
            if wanted[ordinal >> 3] >> (ordinal & 7) & 1:
                if start >= 0:
                    ranges.append((start, offset))
                    start = -1
            elif start < 0:
                start = offset
            offset += 1
        if start >= 0:
            ranges.append((start, offset))
        return ranges
