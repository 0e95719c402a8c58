"""A channel that an operator skips: nothing is delivered, and its cursor follows the end.

It is as with a maximum age of nothing (`age.py`): what the channel is given, what waits to be sent
again and what is delayed is done at once, traced as skipped, and not delivered when the skipping
ends. What is in flight may still be finished; when it comes back, it is dropped, too. The state
is in topic.json, so a start goes on skipping.

Messages are handed to channels by the kernel; the cursor follows in the broker's next turn, within
a second at most, and always before somebody reads the depth.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.broker.channel import Channel


class Skips:
    def __init__(self, channel: Channel) -> None:
        self.on = False
        self._channel = channel
        self._counted = 0  # before the present skipping
        self._dropped_before = 0  # by the channel, when that began

    @property
    def count(self) -> int:
        """Messages that were skipped, since the start of the daemon."""
        return self._counted + self._counting

    @property
    def _counting(self) -> int:
        return self._channel.dropped_count - self._dropped_before if self.on else 0

    def restore(self, on: bool) -> None:
        """As topic.json has it. The windows come later."""
        if on:
            self._set(True)

    def begin(self) -> None:
        """Raises StorageError, and then nothing has changed."""
        self._change(True)

    def end(self) -> None:
        self._change(False)

    def _change(self, on: bool) -> None:
        if on == self.on:
            return
        topic = self._channel.topic
        topic.tell_time()
        self.sweep()  # what was handed over before it ends is skipped
        self._set(on)
        topic.store_or(lambda: self._set(not on))
        self.sweep()
        topic.store_cursors()

    def _set(self, on: bool) -> None:
        channel = self._channel
        self._counted = self.count
        self.on = on
        self._dropped_before = channel.dropped_count
        if on:
            channel.topic.skipping[channel] = None
        else:
            channel.topic.skipping.pop(channel, None)
        channel.refresh_held()

    def sweep(self) -> None:
        """Let the cursor follow."""
        channel = self._channel
        if channel.deleted:
            channel.topic.skipping.pop(channel, None)
        elif self.on:
            for window in channel.windows.values():
                window.outdate(window.tail.handed_end)
