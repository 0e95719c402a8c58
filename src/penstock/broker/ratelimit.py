"""How fast a channel is sent to its consumers, in bytes a second. Off unless an operator says so,
and until the next start.

It is a bucket of bytes that fills with time and holds a few seconds' worth. The windows of the
channel's partitions share it: each time it is filled up, all of it is dealt out to them evenly
(`Window.allowance`). A window sends while it has some left; the last piece that it sends may be
more than that, and is paid back first. A channel without a rate has more than is ever sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock import limits

if TYPE_CHECKING:
    from penstock.broker.channel import Channel
    from penstock.broker.context import Context


def refill(context: Context) -> None:
    """All that have a rate."""
    for channel in list(context.limited):
        channel.rate.refill(context.clock.mono_ns())


class RateLimit:
    def __init__(self, channel: Channel) -> None:
        self.bytes_per_second = 0  # 0: no bound
        self._channel = channel
        self._filled_ns = 0

    def set(self, bytes_per_second: int, mono_ns: int) -> None:
        """0: no bound."""
        channel = self._channel
        self.bytes_per_second = bytes_per_second
        self._filled_ns = mono_ns
        if bytes_per_second:
            channel.topic.limited[channel] = None
            self._deal(bytes_per_second)
        else:
            channel.topic.limited.pop(channel, None)
            self._deal(limits.ALLOWANCE_ALL * len(channel.windows))

    def refill(self, mono_ns: int) -> None:
        channel, passed_ns = self._channel, mono_ns - self._filled_ns
        if channel.deleted:
            channel.topic.limited.pop(channel, None)
        elif passed_ns >= limits.RATE_REFILL_NS:
            self._filled_ns = mono_ns
            left = sum(window.allowance for window in channel.windows.values())
            more = self.bytes_per_second * passed_ns // limits.SECOND
            self._deal(min(left + more, self.bytes_per_second * limits.RATE_BURST))

    def _deal(self, total: int) -> None:
        windows = self._channel.windows.values()
        share, rest = divmod(total, len(windows))
        for number, window in enumerate(windows):
            window.allowance = share + (number < rest)
