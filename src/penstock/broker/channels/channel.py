"""One channel: a name, settings, consumers, and the kernel's windows that hold its cursors.

There is a window for each partition that is led here. A request about the channel is carried out on
all of them, and numbers are sums; a position in a log (`seek`) is a position in one partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import limits
from penstock.broker.channels.latency import Latency, Oldest, unfinished_of
from penstock.broker.channels.reading import check_offset
from penstock.broker.channels.skips import ANY, Skips
from penstock.broker.topics.settings import (
    ORDERS,
    AutoAck,
    ChannelOrder,
    ChannelSettings,
    Poison,
    auto_ack,
    sample_below,
)
from penstock.errors import PartitionElsewhere, Refused
from penstock.kernel import Conn, Window
from penstock.wire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.topics.topic import Topic


NOT_KEPT = 0  # the number of a channel that no file knows


class _Sum:
    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, channel: Channel, kind: type[Channel]) -> int:
        return sum(getattr(window, self._name) for window in channel.windows.values())


def default_dead_letter_topic(topic: str, channel: str) -> str:
    return f"{topic}.{channel}.dead"


class Channel:
    def __init__(self, topic: Topic, name: str, number: int, created_ns: int) -> None:
        self.topic = topic
        self.name = name
        self.number = number
        self.windows: dict[int, Window] = {}  # by partition
        self.created_ns = created_ns
        self.partitions_then = limits.PARTITIONS_MAX  # that its topic had when a cluster made it
        self.ephemeral = is_ephemeral(name)
        self.consumers: list[Conn] = []
        self._chosen: dict[Conn, int] = {}  # consumers of one partition alone
        self.subscriptions = 0  # how many there have been since the start
        self.deleted = False
        self.paused = False
        self.skips = Skips(self)
        self.rate = RateLimit(self)
        self._gated: set[int] = set()  # partitions whose next message waits (`leader.py`)
        self._begun = False  # its trace rate is in force
        self._delivered_to_gone = 0  # to consumers that have left
        self.settings = ChannelSettings()
        self.latency = Latency(topic.context.options.latency_quantiles)
        self.oldest: dict[int, Oldest] = {}  # by partition
        self.dead_letter_count = 0  # since the start
        self._trim_ends: dict[int, int] = {}

    def attach(self, partition: int, window: Window) -> None:
        window.owner = self
        self._set_bounds(window)
        window.paused = self.holds(partition)
        window.skips_tests = self.skips.state.tests
        window.touch_max_ns = self.topic.context.options.message_timeout_max_ns
        self.windows[partition] = window
        self._trim_ends[partition] = window.tail.handed_end
        self.latency.measure(window)
        self.oldest[partition] = Oldest(window)
        self.refresh_trace()  # what is stepped over from now on is in the trace, too

    def detach(self, partition: int) -> None:
        """The partition has another leader; messages in flight are forgotten here."""
        window = self.windows.pop(partition)
        del self._trim_ends[partition]
        self._gated.discard(partition)
        self.latency.forget(window)
        del self.oldest[partition]

    def has(self, window: Window) -> bool:
        """Does this node lead the partition of the window, in the same leadership?"""
        return self.windows.get(window.tail.partition) is window

    # --- consumers ---

    def subscribe(self, conn: Conn, consumers_max: int = 0, partition: int = ANY) -> None:
        """To one partition, or to all, later ones included. `consumers_max` 0: no limit."""
        self.check_room(consumers_max)
        if partition != ANY and partition not in self.windows:
            raise PartitionElsewhere(self.topic.name, partition)
        self.consumers.append(conn)
        self.subscriptions += 1
        if partition != ANY:
            self._chosen[conn] = partition
            conn.subscribe(self.windows[partition])
            return
        for window in self.windows.values():
            conn.subscribe(window)

    def check_room(self, consumers_max: int) -> None:
        """Check the limit for one more consumer. Raises Refused."""
        if self.deleted:
            raise Refused(f"channel {self.topic.name}:{self.name} is being deleted")
        if consumers_max and len(self.consumers) >= consumers_max:
            raise Refused(
                f"consumers for {self.topic.name}:{self.name} exceeds limit of {consumers_max}"
            )

    def partition_of(self, conn: Conn) -> int:
        """The partition of a consumer; ANY: all of them."""
        return self._chosen.get(conn, ANY)

    def consumer_count_of(self, partition: int) -> int:
        """Consumers of this partition, and of all partitions."""
        chosen = sum(1 for one in self._chosen.values() if one == partition)
        return len(self.consumers) - len(self._chosen) + chosen

    def follow(self, partition: int) -> None:
        """A partition was added: consumers of all partitions, or of this one, get it."""
        for conn in self.consumers:
            if self._chosen.get(conn, partition) == partition:
                conn.subscribe(self.windows[partition])

    def leave(self, conn: Conn) -> None:
        """Remove the consumer; an ephemeral channel goes with its last one. Idempotent."""
        if conn not in self.consumers:
            return
        self.consumers.remove(conn)
        self._chosen.pop(conn, None)
        self._delivered_to_gone += conn.message_count
        for window in self.windows.values():
            conn.leave(window)
        if self.ephemeral and not self.consumers and not self.deleted:
            self.topic.delete_channel(self.name)

    # --- settings ---

    def adopt(self, settings: ChannelSettings) -> None:
        self.settings = settings
        if settings.order != ChannelOrder.STRICT:
            for partition in list(self._gated):
                self.open_gate(partition)
        for window in self.windows.values():
            self._set_bounds(window)

    def _set_bounds(self, window: Window) -> None:
        window.attempts_max = self.settings.max_attempts
        window.order = ORDERS[self.settings.order]
        bounds = self.auto_ack
        window.auto_ack_attempts, window.auto_ack_age_ns = bounds if all(bounds) else (0, 0)

    @property
    def held(self) -> int:
        """Messages that have used their attempts and stay, by its setting."""
        if self.settings.poison != Poison.HOLD:
            return 0
        return sum(window.exhausted for window in self.windows.values())

    @property
    def auto_ack(self) -> AutoAck:
        return auto_ack(self.settings, self.topic.context.options)

    @property
    def trace_rate(self) -> float:
        own = self.settings.trace_rate
        return self.topic.trace_rate if own is None or self.topic.internal else own

    def refresh_trace(self) -> None:
        below, switched = sample_below(self.trace_rate), False
        for window in self.windows.values():
            switched |= below != window.trace_below
            window.trace_below = below
        if self._begun and switched:
            self.topic.context.switched(self.topic, self)
        self._begun = True

    def configure(self, changes: Mapping[str, Any]) -> None:
        """By name. Raises Refused and StorageError, and then nothing has changed."""
        self.check_own()
        before, changed = self.settings, self.check(changes)
        self.settings = changed
        self.topic.store_or(lambda: setattr(self, "settings", before))
        self.adopt(changed)
        self.refresh_trace()
        self.topic.store_cursors()

    def check(self, changes: Mapping[str, Any]) -> ChannelSettings:
        """The settings with these changes. Raises Refused."""
        changed = msgspec.structs.replace(self.settings, **changes)
        no_dead_letters = self.ephemeral or self.topic.ephemeral
        if changed.max_attempts and no_dead_letters and changed.poison != Poison.HOLD:
            raise Refused("an ephemeral topic or channel has no dead letters")
        self._check_name(changed)
        return changed

    def check_own(self) -> None:
        if self.number != NOT_KEPT:
            self.topic.check_own()

    def _check_name(self, settings: ChannelSettings) -> None:
        name = settings.dead_letter_topic
        if name and not is_valid_name(name):
            raise Refused(f"dead_letter_topic {name!r} is no valid name of a topic")
        if name and (is_ephemeral(name) or name == self.topic.name):
            raise Refused(
                f"dead_letter_topic {name!r} must not be ephemeral, nor the channel's own topic"
            )
        default = default_dead_letter_topic(self.topic.name, self.name)
        is_named = bool(name) or settings.poison == Poison.HOLD
        if settings.max_attempts and not is_named and not is_valid_name(default):
            raise Refused(
                f"the dead-letter topic would be {default!r}, which has {len(default)} characters: "
                f"a name has {limits.NAME_BYTES_MAX} at most. Name another with dead_letter_topic"
            )

    @property
    def dead_letter_topic(self) -> str:
        default = default_dead_letter_topic(self.topic.name, self.name)
        return self.settings.dead_letter_topic or default

    # --- operators ---

    def set_paused(self, paused: bool) -> None:
        if paused == self.paused:
            return
        self.check_own()
        self._apply_paused(paused)
        self.topic.store_or(lambda: self._apply_paused(not paused))

    def _apply_paused(self, paused: bool) -> None:
        self.paused = paused
        self.refresh_held()

    @property
    def is_held(self) -> bool:
        """Is delivery held back, in one partition at least?"""
        return self.paused or self.skips.state.some

    def holds(self, partition: int) -> bool:
        is_silent = partition in self.topic.silent
        is_gated = partition in self._gated
        return self.paused or is_silent or is_gated or self.skips.state.covers(partition)

    def close_gate(self, partition: int) -> None:
        """The next message of its order waits for other replicas."""
        if partition not in self._gated:
            self._gated.add(partition)
            self.windows[partition].paused = True

    def open_gate(self, partition: int) -> None:
        if partition in self._gated:
            self._gated.discard(partition)
            self.windows[partition].paused = self.holds(partition)

    def refresh_held(self) -> None:
        for partition, window in self.windows.items():
            window.paused = self.holds(partition)
            window.skips_tests = self.skips.state.tests

    def empty(self) -> None:
        self.topic.set_time()
        for window in self.windows.values():
            window.empty()
        self.topic.store_cursors()

    def seek(self, offsets: Mapping[int, int]) -> None:
        """Deliver these partitions from their offsets on, including finished messages; all of them
        or none. Messages in flight, requeued or delayed are forgotten, and come again if they lie
        above. Raises OffsetGone and OffsetBeyondEnd."""
        topic = self.topic
        for partition, offset in offsets.items():
            leader = topic.leader(partition)
            check_offset(offset, leader.log.start_offset, leader.tail.handed_end)
        topic.set_time()
        for partition, offset in offsets.items():
            self.windows[partition].seek(offset)
        topic.age_bound.set(topic.effective.max_age_ns)  # what is too old is to be looked up anew
        topic.depth_bound.renew()
        topic.store_cursors()

    # --- the bound of ephemeral channels ---

    def trim(self, fresh_too: bool = False) -> None:
        """At most `mem_queue_size` messages stay; as in NSQ, later ones are dropped. Messages since
        the last call stay, unless `fresh_too`: consumers are served first."""
        for partition, window in self.windows.items():
            self._trim(partition, window, fresh_too)

    def _trim(self, partition: int, window: Window, fresh_too: bool) -> None:
        handed_end = window.tail.handed_end
        end = handed_end if fresh_too else max(self._trim_ends[partition], window.next)
        self._trim_ends[partition] = handed_end
        excess = window.depth - (handed_end - end) - self.topic.context.options.mem_queue_size
        while excess > 0 and end > window.next:
            start, depth = max(end - excess, window.next), window.depth
            window.skip(start, end)
            end, excess = start, excess - (depth - window.depth)  # some were delayed, or skipped

    # --- numbers ---

    @property
    def depth(self) -> int:
        self.skips.sweep()
        if self.ephemeral:
            self.trim(fresh_too=True)
        return sum(window.depth + window.exhausted for window in self.windows.values())

    @property
    def backend_depth(self) -> int:
        """The part of `depth` that has to be read from disk."""
        return sum(map(backend_depth_of, self.windows.values()))

    @property
    def delivery_count(self) -> int:
        """Messages sent to consumers since the start, those sent again counted again."""
        return self._delivered_to_gone + sum(conn.message_count for conn in self.consumers)

    in_flight = _Sum("in_flight")
    delayed = _Sum("delayed")
    requeue_count = _Sum("requeue_count")
    timeout_count = _Sum("timeout_count")
    message_count = _Sum("message_count")
    finish_count = _Sum("finish_count")
    auto_ack_count = _Sum("auto_ack_count")  # done because sent too often, and too old
    dropped_count = _Sum("expired_count")  # grew too old, or were skipped

    @property
    def unfinished(self) -> int:
        self.skips.sweep()
        return sum(map(unfinished_of, self.windows.values()))

    @property
    def expired_count(self) -> int:
        return self.dropped_count - self.skips.count

    @property
    def oldest_age_s(self) -> float | None:
        """The age of its oldest message; None when all are finished, or the logs do not tell."""
        wall_ns = self.topic.wall_ns
        ages = [one.age_s(wall_ns) for one in self.oldest.values()]
        return max((age for age in ages if age is not None), default=None)

    def validate(self) -> None:
        for partition, window in self.windows.items():
            window.validate()
            if window.owner is not self:
                raise RuntimeError(f"{self.topic.name}:{self.name}: a window belongs to another")
            if window.paused != self.holds(partition):
                what = f"{self.topic.name}:{self.name}: partition {partition}"
                raise RuntimeError(f"{what} is paused or skipped, and its window says otherwise")
        if self.deleted and self.consumers:
            raise RuntimeError(f"{self.topic.name}:{self.name}: deleted, but has consumers")
        if not self.deleted and self.topic.channels.get(self.name) is not self:
            raise RuntimeError(f"{self.topic.name}:{self.name}: its topic does not know it")


def backend_depth_of(window: Window) -> int:
    below_memory = min(window.tail.memory_start, window.tail.handed_end) - window.next
    return max(0, min(below_memory, window.depth))


def refill(context: Context) -> None:
    for channel in list(context.limited):
        channel.rate.refill(context.clock.mono_ns())


class RateLimit:
    """How fast a channel is sent to its consumers, in bytes a second. Off unless an operator says
    so, and until the next start.

    It is a bucket of bytes that fills with time and holds a few seconds' worth. The windows of the
    channel's partitions share it: each time it is filled up, all of it is dealt out to them evenly
    (`Window.allowance`). A window sends while it has some left; the last piece that it sends may be
    more than that, and is paid back first. A channel without a rate has more than is ever sent.
    """

    def __init__(self, channel: Channel) -> None:
        self.bytes_per_second = 0  # 0: no bound
        self._channel = channel
        self._filled_ns = 0

    def set(self, bytes_per_second: int, mono_ns: int) -> None:
        channel = self._channel
        self.bytes_per_second = bytes_per_second
        self._filled_ns = mono_ns
        if bytes_per_second:
            channel.topic.context.limited[channel] = None
            self._deal(bytes_per_second)
        else:
            channel.topic.context.limited.pop(channel, None)
            self._deal(limits.ALLOWANCE_ALL * len(channel.windows))

    def refill(self, mono_ns: int) -> None:
        channel, passed_ns = self._channel, mono_ns - self._filled_ns
        if channel.deleted:
            channel.topic.context.limited.pop(channel, None)
        elif passed_ns >= limits.RATE_REFILL_NS:
            self._filled_ns = mono_ns
            left = sum(window.allowance for window in channel.windows.values())
            more = self.bytes_per_second * passed_ns // limits.SECOND
            self._deal(min(left + more, self.bytes_per_second * limits.RATE_BURST))

    def _deal(self, total: int) -> None:
        windows = self._channel.windows.values()
        if not windows:  # no partition is led here at present
            return
        share, rest = divmod(total, len(windows))
        for number, window in enumerate(windows):
            window.allowance = share + (number < rest)
