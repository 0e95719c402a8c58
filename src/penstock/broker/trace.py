"""The topic `_trace`: where the events about traced messages are kept.

The kernel notes events in its buffers. Every few milliseconds (`net/turn.py` says when), and at an
orderly stop, what it has is published here as messages of many events each (`trace/events.py`),
and written. So a kill loses the last few milliseconds of events, and no message. The topic is one
of those that Penstock keeps for itself (`broker/topics/settings.py`), and:

- Nothing else publishes to it.
- It is made with the first event.
- No publisher waits for an answer, so it is synced by count and time (durability `os`) and not by
  turn: a power loss may cost the events of the last two seconds. `/topic/config` can make it
  `disk`: then each write is synced.
- What a reader has to know to judge by its events stands in it too: each start of the daemon, after
  which messages come again that were not given back, and each change of a trace rate.

Events are for looking back. When they cannot be stored (a full disk, a stopped partition) they are
dropped and counted, and nothing else waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.broker.channels.channel import Channel
from penstock.broker.context import Context
from penstock.broker.health import Trouble
from penstock.broker.topics.topic import Topic
from penstock.errors import PenstockError, Refused
from penstock.kernel import Tail
from penstock.trace import events as traceevents
from penstock.trace.events import Event, Kind

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.broker.partition.leader import Leader


class TraceLog:
    def __init__(self, context: Context, make: Callable[[str], Topic]) -> None:
        self.client_name: Callable[[Any], str] = lambda conn: f"client {conn.serial}"
        self._context = context
        self._make = make
        self._failing = False
        context.switched = self._switched

    def record_start(self) -> None:
        """Record the start of the daemon, with all rates. Nothing where nothing was ever traced."""
        if traceevents.TOPIC in self._context.topics:
            self._store(list(self._start_events()))

    def _start_events(self) -> Iterator[Event]:
        wall_ns = self._context.clock.wall_ns()
        yield Event(Kind.STARTED, wall_ns, traceevents.TOPIC, None, 0, 0, 0)
        for topic in self._context.topics.values():
            if not topic.internal:
                yield _switch(topic, None, wall_ns)
                for channel in topic.channels.values():
                    yield _switch(topic, channel, wall_ns)

    def _switched(self, topic: Topic, channel: Channel | None) -> None:
        if self._context.engine.trace_pending:
            self.write()  # what happened under the old rate
        self._store([_switch(topic, channel, self._context.clock.wall_ns())])

    def _store(self, events: list[Event]) -> None:
        chunk = limits.TRACE_CHUNK_EVENTS
        self._publish(
            [
                [traceevents.encode(events[start : start + chunk])]
                for start in range(0, len(events), chunk)
            ]
        )

    def write(self) -> None:
        self._publish(
            [
                traceevents.parts_of([self._name(one) for one in named], events)
                for named, events in self._context.engine.take_trace()
            ]
        )

    def _publish(self, bodies: Sequence[list[Buffer]]) -> None:
        """Each body in parts."""
        try:
            leader = self._leader()
        except PenstockError as error:
            self._fail(str(error))
            return
        for parts in bodies:
            append = partial(leader.tail.append_parts, parts)
            leader.group.publish(append, 1, 0, self._stored)  # its bytes have no bound
        leader.group.write(self._context.clock.wall_ns())

    def _leader(self) -> Leader:
        """Of the trace topic. Raises PenstockError where it takes nothing."""
        topic = self._context.topics.get(traceevents.TOPIC) or self._make(traceevents.TOPIC)
        leader = topic.leader()
        trouble = self._context.disk_refusal or leader.refusal
        if trouble or leader.group.held_count > limits.TRACE_HELD_MAX:
            raise Refused(trouble or "the disk is too slow")
        return leader

    def housekeeping(self) -> None:
        """The trouble is over once events would be stored, though there may be none any more."""
        with suppress(PenstockError):
            if self._failing and not self._leader().group.refused_bytes:
                self._stored(None)

    def _name(self, one: Any) -> str:
        """Of a tail, a window or a connection. The topic may be gone by now; its name is not."""
        owner = one.owner.topic if isinstance(one, Tail) else one.owner
        return owner.name if isinstance(owner, Topic | Channel) else self.client_name(one)

    def _stored(self, error: PenstockError | None) -> None:
        if error is not None:
            self._fail(str(error))
        elif self._failing:
            self._failing = False
            self._context.health.clear(traceevents.TOPIC, Trouble.TRACE)

    def _fail(self, reason: str) -> None:
        if not self._failing and not self._context.exiting:
            self._failing = True
            self._context.health.report(
                traceevents.TOPIC, Trouble.TRACE, f"trace events are lost: {reason}"
            )


def _switch(topic: Topic, channel: Channel | None, wall_ns: int) -> Event:
    rate = topic.trace_rate if channel is None else channel.trace_rate
    billionths = round(rate * traceevents.RATE_ALL)
    name = None if channel is None else channel.name
    return Event(Kind.SWITCHED, wall_ns, topic.name, name, 0, 0, 0, count=billionths)
