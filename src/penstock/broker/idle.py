"""Topics and channels that nobody uses any more, deleted as if by hand. Off unless asked for.

A channel is in use while it has a consumer; a topic while one of its channels is, and when it is
published to. Who was not in use for as long as the options say is deleted. That loses messages, so
it happens only where none are left, unless the options say otherwise. What is paused or skipped
stays: somebody has set it aside. Use is remembered in memory only, so a restart begins to count
again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.broker.channel import Channel
from penstock.broker.topic import Topic
from penstock.durations import format_duration
from penstock.errors import StorageError

if TYPE_CHECKING:
    from penstock.broker.broker import Broker
    from penstock.broker.options import BrokerOptions

_log = logging.getLogger("penstock.broker")


class IdleSweep:
    def __init__(self, broker: Broker, options: BrokerOptions) -> None:
        self._broker = broker
        self._topic_ns = options.idle_topic_delete_ns
        self._channel_ns = options.idle_channel_delete_ns
        self._backlog_too = options.idle_delete_backlog
        self._seen: dict[Topic | Channel, tuple[Any, int]] = {}  # its use, and since when no more
        chosen = [ns for ns in (self._topic_ns, self._channel_ns) if ns]
        self._pause_ns = min(min(chosen, default=0) // 16, limits.IDLE_SWEEP_NS)
        self._next_ns = 0 if chosen else 1 << 62

    def sweep(self, mono_ns: int) -> None:
        """Called about once a second."""
        if mono_ns < self._next_ns:
            return
        self._next_ns = mono_ns + self._pause_ns
        before, self._seen = self._seen, {}
        for topic in list(self._broker.topics.values()):
            self._sweep_topic(topic, before, mono_ns)

    def _sweep_topic(self, topic: Topic, before: dict[Any, tuple[Any, int]], mono_ns: int) -> None:
        channels = list(topic.channels.values())
        for channel in channels:
            busy = bool(channel.consumers)
            idle_ns = self._idle_ns(channel, busy, channel.subscriptions, before, mono_ns)
            if 0 < self._channel_ns <= idle_ns and self._may_go(channel):
                self._delete_channel(channel, idle_ns)
        busy = any(channel.consumers for channel in channels)
        use = (topic.message_count, len(channels), sum(one.subscriptions for one in channels))
        idle_ns = self._idle_ns(topic, busy, use, before, mono_ns)
        if 0 < self._topic_ns <= idle_ns and self._may_all_go(topic):
            self._delete_topic(topic, idle_ns)

    def _idle_ns(
        self,
        one: Topic | Channel,
        busy: bool,
        use: Any,
        before: dict[Any, tuple[Any, int]],
        mono_ns: int,
    ) -> int:
        use_then, since_ns = before.get(one, (None, mono_ns))
        if busy or use != use_then:
            since_ns = mono_ns
        self._seen[one] = (use, since_ns)
        return mono_ns - since_ns

    def _may_go(self, channel: Channel) -> bool:
        if channel.topic.hosted and not channel.ephemeral:
            return False  # another node may have its consumers
        return not channel.is_held and (self._backlog_too or channel.unfinished == 0)

    def _may_all_go(self, topic: Topic) -> bool:
        if (
            topic.internal
            or topic.hosted
            or topic.paused
            or self._broker.topics.get(topic.name) is not topic
        ):
            return False
        if any(replica.stages for replica in topic.replicas.values()):
            return False  # they are on their way into it
        return all(self._may_go(channel) for channel in topic.channels.values()) and (
            self._backlog_too or not (topic.depth or topic.uncommitted)
        )

    def _delete_channel(self, channel: Channel, idle_ns: int) -> None:
        topic = channel.topic
        since = format_duration(idle_ns // limits.SECOND * limits.SECOND)
        _log.info("%s:%s: no consumer for %s: it is deleted", topic.name, channel.name, since)
        try:
            topic.delete_channel(channel.name)
        except StorageError as error:
            _log.error("%s", error)  # the next sweep tries again

    def _delete_topic(self, topic: Topic, idle_ns: int) -> None:
        since = format_duration(idle_ns // limits.SECOND * limits.SECOND)
        _log.info("%s: no publish and no consumer for %s: it is deleted", topic.name, since)
        try:
            self._broker.delete_topic(topic.name)
        except StorageError as error:
            _log.error("%s", error)
