"""A stop that first lets consumers finish: publishes are refused, deliveries continue, and when
nothing is left the daemon ends by itself, in order and with exit code 0.

Left is what a channel has not delivered, has in flight or delayed, and what a paused topic has not
handed over. A delayed message is durable and due at some time, so a drain waits for it unless it is
told not to; it comes again after the next start. Messages of a topic without a channel have nobody
who could take them, and dead letters wait for a person: both are reported, and waited for only on
demand. What gives up meanwhile still becomes a dead letter. A channel that is paused or has no
consumer keeps a drain waiting, and the report says which.

A node of a cluster first hands over what it leads: others go on with that, and no publish is
refused for it. What no other node has is drained as on a single node.

A drain belongs to this run of the daemon: a restart knows nothing of it. It can be called off, but
not in a cluster, where the others have taken over.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from penstock import limits
from penstock.broker.broker import Broker
from penstock.broker.channels.channel import Channel
from penstock.broker.channels.dead_letters import REDRIVE_CHANNEL
from penstock.broker.topics.topic import Topic
from penstock.net.api import GET_POST, POST, HttpError, json_response
from penstock.net.tasks import Tasks
from penstock.nsqd.http.arguments import names_of
from penstock.nsqd.http.deps import Act, Call

log = logging.getLogger("penstock.nsqd")


@dataclass(eq=False)
class Drain:
    """`end` is called once, when nothing is left."""

    _broker: Broker
    _loop: asyncio.AbstractEventLoop
    _tasks: Tasks
    _end: Callable[[], None]
    state: str = "off"  # then draining, then done
    waits_for_delayed: bool = True
    waits_for_topics: bool = False  # those without channels, and dead letters
    hand_over: Callable[[], Coroutine[Any, Any, None]] | None = None  # in a cluster
    _handing: asyncio.Task[None] | None = None
    _timer: asyncio.TimerHandle | None = None
    _report_at: float = 0.0

    def begin(self, delayed: bool = True, topics: bool = False) -> None:
        """A second call changes what the drain waits for."""
        self.waits_for_delayed, self.waits_for_topics = delayed, topics
        if self.state != "off":
            return
        self.state = "draining"
        if self.hand_over is None:
            self._refuse()
        else:
            log.info("DRAIN: what this node leads is handed over to others")
            self._handing = self._tasks.begin(self._leave(self.hand_over))

    async def _leave(self, hand_over: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await hand_over()
        self._refuse()

    def _refuse(self) -> None:
        self._broker.refuse(draining=True)
        self._report_at = 0.0
        log.info("DRAIN: publishes are refused; deliveries go on until no messages are left")
        self._look_later()

    def cancel(self) -> None:
        if self.hand_over is not None and self.state != "off":
            rule = "others have taken over what this node led: restart it"
            raise HttpError(409, f"FAILED a drain is not called off in a cluster, {rule}")
        self.stop()
        if self.state == "draining":
            self.state = "off"
            self._broker.refuse(draining=False)
            log.info("DRAIN: cancelled, publishes are accepted again")

    def stop(self) -> None:
        """The daemon ends, for this reason or another."""
        for waiting in (self._timer, self._handing):
            if waiting is not None:
                waiting.cancel()
        self._timer = self._handing = None

    def _look_later(self, seconds_min: float = 0.0) -> None:
        seconds = max(limits.DRAIN_POLL_NS / limits.SECOND, seconds_min)
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        self._timer = None
        began = self._loop.time()
        left = self._left_total()
        if not left:
            self.state = "done"
            log.info("DRAIN: no messages are left")
            self._end()
            return
        now = self._loop.time()
        if now >= self._report_at:
            self._report_at = now + limits.DRAIN_REPORT_NS / limits.SECOND
            log.info("DRAIN: %d messages are left", left)
        # ten thousand topics take a while to look at: no more than a tenth of the time
        self._look_later(10 * (self._loop.time() - began))

    # --- the remaining messages ---

    def _dead_letter_topics(self) -> set[str]:
        return {
            channel.dead_letter_topic
            for topic in self._broker.topics.values()
            for channel in topic.channels.values()
            if channel.settings.max_attempts
        }

    def _waits_for(self, channel: Channel, dead: set[str]) -> bool:
        is_dead = channel.name == REDRIVE_CHANNEL and channel.topic.name in dead
        return self.waits_for_topics or not is_dead

    def _waits_for_own(self, topic: Topic) -> bool:
        return self.waits_for_topics or bool(topic.channels)

    def _left_total(self) -> int:
        dead, left = self._dead_letter_topics(), 0
        for topic in self._broker.topics.values():
            if topic.internal:
                continue
            left += topic.uncommitted + (topic.depth if self._waits_for_own(topic) else 0)
            for channel in topic.channels.values():
                if self._waits_for(channel, dead):
                    left += channel.depth + channel.in_flight
                    left += channel.delayed if self.waits_for_delayed else 0
        return left

    def report(self) -> dict[str, Any]:
        topics = sorted(self._broker.topics.values(), key=lambda topic: topic.name)
        dead = self._dead_letter_topics()
        return {
            "state": self.state,
            "waits_for_delayed": self.waits_for_delayed,
            "waits_for_topics": self.waits_for_topics,
            "left": self._left_total(),
            "channels": [
                _channel_row(channel, self._waits_for(channel, dead))
                for topic in topics
                for _, channel in sorted(topic.channels.items())
                if channel.unfinished
            ],
            "topics": [
                {
                    "topic_name": topic.name,
                    "depth": topic.depth,
                    "paused": topic.paused,
                    "channel_count": len(topic.channels),
                    "waited_for": self._waits_for_own(topic),
                }
                for topic in topics
                if topic.depth
            ],
        }


def _channel_row(channel: Channel, waited_for: bool) -> dict[str, Any]:
    return {
        **names_of(channel),
        "depth": channel.depth,
        "in_flight_count": channel.in_flight,
        "deferred_count": channel.delayed,
        "client_count": len(channel.consumers),
        "paused": channel.paused,
        "waited_for": waited_for,
    }


def drain_routes(drain: Drain) -> dict[str, tuple[tuple[str, ...], Act]]:
    def serve(call: Call) -> None:
        if call.request.method == "POST":
            drain.begin(call.flag("delayed", default="true"), call.flag("topics"))
        call.answer(json_response(drain.report()))

    def cancel(call: Call) -> None:
        drain.cancel()
        call.answer(json_response(drain.report()))

    return {"/drain": (GET_POST, serve), "/drain/cancel": (POST, cancel)}
