"""A strictly ordered channel of a partition that other nodes have, too: the next message goes out
when the set knows that the one before it is done.

Else a leader could die between the two, and its successor, which never saw the FIN, would send the
earlier message again while the later one is being worked on.

| the gate of a channel | closes | opens |
|---|---|---|
| open | with each record about the channel: a message went out, came back, was settled by hand | |
| closed | | when the set has the last record about it, and nothing of it is in flight |

A turn writes its record after what it has sent, and hears consumers before it sends. So the gate is
closed before a FIN can come, and a FIN is in a record before the gate opens again. While it is
closed the window delivers nothing, as if it were paused. Records are one a turn and partition, and
so are the syncs that they wait for. No other channel waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.settings import ChannelOrder

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.errors import PenstockError

WhenHeld = Callable[[Callable[["PenstockError | None"], None]], None]


class OrderGates:
    """Of one partition, in one office. `channels`: those of the topic. `has_others`: is another
    node to have the partition?"""

    def __init__(
        self,
        partition: int,
        channels: Callable[[], Iterable[Channel]],
        when_held: WhenHeld,
        has_others: Callable[[], bool],
    ) -> None:
        self._partition = partition
        self._channels = channels
        self._when_held = when_held
        self._has_others = has_others
        self._said: dict[Channel, int] = {}  # records about it, while it has this order

    def note(self, numbers: set[int]) -> None:
        """A record is written about the channels with these numbers, or would have been: what the
        disk refuses counts as said, and is held when it could be written."""
        for channel in self._channels():
            if channel.number not in numbers or self._partition not in channel.windows:
                continue
            if channel.settings.order != ChannelOrder.STRICT or not self._has_others():
                self._said.pop(channel, None)
                channel.open_gate(self._partition)
                continue
            said = self._said[channel] = self._said.get(channel, 0) + 1
            channel.close_gate(self._partition)
            self._when_held(partial(self._held, channel, said))

    def _held(self, channel: Channel, said: int, error: PenstockError | None) -> None:
        window = channel.windows.get(self._partition)
        if error is not None or window is None or self._said.get(channel) != said:
            return  # the office is over, or more was said since
        if not window.in_flight and not window.journal_dirty:
            channel.open_gate(self._partition)
