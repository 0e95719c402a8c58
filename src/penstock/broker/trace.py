"""The topic `_trace`: where the events about traced messages are kept.

The kernel notes events in its buffers. Every few milliseconds (`net/turn.py` says when), and at an
orderly stop, what it has is published here as messages of many events each (`log/traceevents.py`),
and written. So a kill loses the last few milliseconds of events, and no message. The topic is an
ordinary one but for this:

- Nobody else publishes to it, and it is not traced itself.
- It is made with the first event, and is not registered with nsqlookupd.
- It acknowledges nobody, so it is synced by count and time (durability `os`) and not by turn: a
  power loss may cost the events of the last two seconds. `/topic/config` can make it `disk`.
- It keeps no queue while it has no channel: a channel made later begins at the end. What no channel
  wants is kept for a time and size of its own.

Events are for looking back. When they cannot be stored (a full disk, a stopped partition) they are
dropped and counted, and nothing else waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from penstock import limits
from penstock.broker.channel import Channel
from penstock.broker.context import Context
from penstock.broker.health import Trouble
from penstock.broker.settings import TopicSettings
from penstock.broker.topic import Topic
from penstock.errors import PenstockError
from penstock.log import traceevents

SETTINGS = TopicSettings(
    durability="os",
    retain_age_ns=limits.TRACE_RETAIN_AGE_NS,
    retain_bytes=limits.TRACE_RETAIN_BYTES,
)


class TraceLog:
    def __init__(
        self, context: Context, topics: dict[str, Topic], make: Callable[[str], Topic]
    ) -> None:
        self.client_name: Callable[[Any], str] = lambda conn: f"client {conn.serial}"
        self.lost_count = 0  # chunks of events that could not be stored, since the start
        self._context = context
        self._topics = topics
        self._make = make
        self._failing = False

    def write(self) -> None:
        """Store what the kernel has noted."""
        context = self._context
        chunks = context.engine.take_trace()
        try:
            topic = self._topics.get(traceevents.TOPIC) or self._begin()
        except PenstockError as error:
            self._fail(len(chunks), str(error))
            return
        trouble = context.disk_refusal or topic.partition.refusal
        if trouble or topic.partition.held_count > limits.TRACE_HELD_MAX:
            self._fail(len(chunks), trouble or "the disk is too slow")
            return
        for named, events in chunks:
            parts = traceevents.parts_of([self._name(one) for one in named], events)
            append = partial(topic.tail.append_parts, parts)
            topic.partition.publish_by(append, 1, self._stored)
        topic.partition.write(context.clock.wall_ns())

    def _begin(self) -> Topic:
        topic = self._make(traceevents.TOPIC)
        topic.configure(msgspec.structs.asdict(SETTINGS))
        return topic

    def _name(self, one: Any) -> str:
        """Of a tail, a window or a connection. The topic may be gone by now, its name is not."""
        owner = one.owner
        return owner.name if isinstance(owner, Topic | Channel) else self.client_name(one)

    def _stored(self, error: PenstockError | None) -> None:
        if error is not None:
            self._fail(1, str(error))
        elif self._failing:
            self._failing = False
            self._context.health.clear(traceevents.TOPIC, Trouble.TRACE)

    def _fail(self, count: int, reason: str) -> None:
        self.lost_count += count
        if not self._failing and not self._context.exiting:
            self._failing = True
            self._context.health.report(
                traceevents.TOPIC, Trouble.TRACE, f"trace events are lost: {reason}"
            )
