"""The usage of topics and channels: idle ones may be deleted, and bytes are counted by the hour.

**Idle** topics and channels are deleted as if by hand; off unless asked for. A channel is in use
while it has a consumer; a topic while one of its channels is, and when it is published to. Who was
not in use for as long as the options say is deleted. That loses messages, so it happens only where
none are left, unless the options say otherwise. What is paused or skipped stays: somebody has set
it aside. Use is remembered in memory only, so a restart begins to count again.

**Hourly** figures: how many bytes were published to each topic in each of the last 24 hours. The
tails count what was published; once an hour the counts are taken down. Hours are those of the
clock, in UTC; the present one is what came since it began.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.topics.topic import Topic
from penstock.durations import format_duration
from penstock.errors import StorageError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker


_log = logging.getLogger("penstock.broker")


Seen = dict[Topic | Channel, tuple[Any, int]]  # its use, and since when no more


class IdleSweep:
    def __init__(self, broker: Broker) -> None:
        options = broker.context.options
        self._broker = broker
        self._topic_ns = options.idle_topic_delete_ns
        self._channel_ns = options.idle_channel_delete_ns
        self._backlog_too = options.idle_delete_backlog
        self._before: Seen = {}  # as of the last sweep
        self._seen: Seen = {}
        chosen = [ns for ns in (self._topic_ns, self._channel_ns) if ns]
        self._pause_ns = min(min(chosen, default=0) // 16, limits.IDLE_SWEEP_NS)
        self._next_ns = 0 if chosen else 1 << 62

    def sweep(self, mono_ns: int) -> None:
        if mono_ns < self._next_ns:
            return
        self._next_ns = mono_ns + self._pause_ns
        self._before, self._seen = self._seen, {}
        for topic in list(self._broker.topics.values()):
            self._sweep_topic(topic, mono_ns)

    def _sweep_topic(self, topic: Topic, mono_ns: int) -> None:
        channels = list(topic.channels.values())
        for channel in channels:
            busy = bool(channel.consumers)
            idle_ns = self._idle_ns(channel, busy, channel.subscriptions, mono_ns)
            if 0 < self._channel_ns <= idle_ns and self._may_go(channel):
                delete = partial(topic.delete_channel, channel.name)
                _delete(f"{topic.name}:{channel.name}", "no consumer", idle_ns, delete)
        busy = any(channel.consumers for channel in channels)
        use = (topic.message_count, len(channels), sum(one.subscriptions for one in channels))
        idle_ns = self._idle_ns(topic, busy, use, mono_ns)
        if 0 < self._topic_ns <= idle_ns and self._may_all_go(topic):
            delete = partial(self._broker.delete_topic, topic.name)
            _delete(topic.name, "no publish and no consumer", idle_ns, delete)

    def _idle_ns(self, one: Topic | Channel, busy: bool, use: Any, mono_ns: int) -> int:
        use_then, since_ns = self._before.get(one, (None, mono_ns))
        if busy or use != use_then:
            since_ns = mono_ns
        self._seen[one] = (use, since_ns)
        return mono_ns - since_ns

    def _may_go(self, channel: Channel) -> bool:
        if channel.topic.replicated and not channel.ephemeral:
            return False  # another node may have its consumers
        return not channel.is_held and (self._backlog_too or channel.unfinished == 0)

    def _may_all_go(self, topic: Topic) -> bool:
        if (
            topic.internal
            or topic.replicated
            or topic.paused
            or self._broker.topics.get(topic.name) is not topic
        ):
            return False
        if self._broker.context.staged[topic.name, topic.identity]:
            return False  # they are on their way into it
        return all(self._may_go(channel) for channel in topic.channels.values()) and (
            self._backlog_too or not (topic.depth or topic.uncommitted)
        )


def _delete(name: str, lacks: str, idle_ns: int, act: Callable[[], None]) -> None:
    since = format_duration(idle_ns // limits.SECOND * limits.SECOND)
    _log.info("%s: %s for %s: it is deleted", name, lacks, since)
    try:
        act()
    except StorageError as error:
        _log.error("%s", error)  # the next sweep tries again


HOURS = 24
_HOUR_NS = 3600 * limits.SECOND


class Hourly:
    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        self._hour = 0
        self._totals: dict[str, dict[int, deque[int]]] = {}  # at the ends of hours; by partition

    def begin(self, wall_ns: int) -> None:
        """All topics are back; earlier publishes to them are not counted."""
        self._hour = wall_ns // _HOUR_NS
        for name, topic in self._topics.items():
            self._totals[name] = {
                leader.number: deque([leader.tail.message_bytes], HOURS) for leader in topic.leaders
            }

    def housekeeping(self, wall_ns: int) -> None:
        hour = wall_ns // _HOUR_NS
        passed = min(max(hour - self._hour, 0), HOURS)
        self._hour = hour
        if not passed:
            return
        self._totals = {name: self._totals.get(name, {}) for name in self._topics}
        for name, topic in self._topics.items():
            for leader in topic.leaders:
                totals = self._totals[name].setdefault(leader.number, deque([0], HOURS))
                totals.extend([leader.tail.message_bytes] * passed)

    def of(self, topic: Topic, partition: int) -> list[int]:
        """The present hour last."""
        total = topic.leader(partition).tail.message_bytes
        known = self._totals.get(topic.name, {}).get(partition, ())
        before = [one for one in known if one <= total] or [0]  # more: the topic was made again
        counts = [after - start for start, after in pairwise([*before, total])]
        return ([0] * HOURS + counts)[-HOURS:]
