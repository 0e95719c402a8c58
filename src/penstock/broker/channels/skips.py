"""A channel that an operator skips: nothing is delivered, and its cursor follows the end.

It is as with a maximum age of nothing (`retention.py`): what the channel is given, what waits to be
sent again and what is delayed is done at once, traced as skipped, and not delivered when the
skipping ends. What is in flight may still be finished; when it comes back, it is dropped, too. The
state is in topic.json, so a start goes on skipping.

One partition may be skipped by itself. When all that there are have been skipped one by one, the
channel is: partitions to come are skipped as well.

Messages are handed to channels by the kernel; the cursor follows in the broker's next turn, within
a second at most, and always before somebody reads the depth.

Messages of load tests (`zan_test`) may be skipped alone. These the kernel leaves out at a
consumer's turn, as a filter does, so until then they count as depth.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import msgspec

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.topics.topic_file import ChannelEntry

ANY = -1  # partition: all of them


class Skipped(NamedTuple):
    whole: bool = False  # partitions to come included
    chosen: frozenset[int] = frozenset()  # partitions, where it is not the whole
    tests: bool = False  # messages of load tests

    @property
    def some(self) -> bool:
        return self.whole or bool(self.chosen)

    def covers(self, partition: int) -> bool:
        return self.whole or partition in self.chosen

    def begun(self, partition: int, partitions: int) -> Skipped:
        """This partition, too; ANY: all. `partitions`: their number in the topic."""
        chosen = self.chosen | {partition}
        if partition == ANY or self.whole or chosen.issuperset(range(partitions)):
            return self._replace(whole=True, chosen=frozenset())
        return self._replace(chosen=chosen)

    def ended(self, partition: int, partitions: int) -> Skipped:
        """Without this partition, or without any."""
        rest = frozenset(range(partitions)) if self.whole else self.chosen
        rest = frozenset() if partition == ANY else rest - {partition}
        return self._replace(whole=False, chosen=rest)


class Skips:
    def __init__(self, channel: Channel) -> None:
        self.state = Skipped()
        self._channel = channel
        self._counted = 0  # before the present skipping
        self._dropped_before: dict[int, int] = {}  # by partition, when that began

    @property
    def count(self) -> int:
        """Since the start of the daemon; load tests are not counted, as with filters."""
        return self._counted + sum(
            window.expired_count - self._dropped_before.get(number, 0)
            for number, window in self._channel.windows.items()
            if self.state.covers(number)
        )

    # --- as it is kept ---

    def restore(self, entry: ChannelEntry) -> None:
        """From topic.json. The windows come later."""
        self._set(skipped_of(entry))

    def follow(self, entry: ChannelEntry) -> None:
        """From the metadata of a cluster."""
        if (state := skipped_of(entry)) != self.state:
            self._pass_to(state)

    def change(self, state: Skipped) -> None:
        """A change by an operator. Raises StorageError, and then nothing has changed."""
        before, channel = self.state, self._channel
        if state == before:
            return
        channel.check_own()
        self._pass_to(state, lambda: channel.topic.store_or(lambda: self._set(before)))

    def _pass_to(self, state: Skipped, store: Callable[[], None] = lambda: None) -> None:
        topic = self._channel.topic
        topic.set_time()
        self.sweep()  # what was handed over before it ends is skipped
        self._set(state)
        store()
        self.sweep()
        topic.store_cursors()

    def _set(self, state: Skipped) -> None:
        channel = self._channel
        self._counted = self.count
        self.state = state
        self._dropped_before = {
            number: window.expired_count for number, window in channel.windows.items()
        }
        if state.some:
            channel.topic.context.skipping[channel] = None
        else:
            channel.topic.context.skipping.pop(channel, None)
        channel.refresh_held()

    def sweep(self) -> None:
        """Let the cursor follow."""
        channel = self._channel
        if channel.deleted:
            channel.topic.context.skipping.pop(channel, None)
            return
        for number, window in channel.windows.items():
            if self.state.covers(number):
                window.outdate(window.tail.handed_end)


def skipped_of(entry: ChannelEntry) -> Skipped:
    chosen = entry.skipped_partitions
    numbers = frozenset() if chosen is msgspec.UNSET else frozenset(chosen)
    return Skipped(entry.skipped is True, numbers, entry.skips_tests is True)
