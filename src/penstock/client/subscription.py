"""One connection of a consumer: counts what is in flight on it and turns settled messages into
bytes. What concerns the whole consumer goes to its `Keeper`."""

from __future__ import annotations

import logging
from functools import partial
from typing import Protocol

from penstock.client import framing
from penstock.client.framing import FrameReader
from penstock.client.headed import EnvelopedMessage, HeadedMessage
from penstock.client.link import Link
from penstock.client.message import Message
from penstock.client.options import ConsumerOptions
from penstock.client.share import Seat
from penstock.errors import ServerRefused
from penstock.wire.frames import CLOSE_WAIT, HEARTBEAT, Frame, FrameType

log = logging.getLogger("penstock.client")

# A message that nsqd has timed out meanwhile: it is being delivered again, and nothing is wrong.
_LATE = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})


class Keeper(Protocol):
    def deliver(self, subscription: Subscription, messages: list[Message]) -> None: ...

    def settled(self, subscription: Subscription, finished: bool, backoff: bool) -> None: ...

    def touched(self) -> None: ...

    def refused(self, error: ServerRefused) -> None: ...

    def closing(self, subscription: Subscription) -> None: ...


class Held:
    """When a message came and when it is to be touched next."""

    __slots__ = ("came_s", "due_s", "message")

    def __init__(self, message: Message, came_s: float, due_s: float) -> None:
        self.message = message
        self.came_s = came_s
        self.due_s = due_s


class Subscription:
    """`partition`: the only one that it has, None for all."""

    def __init__(
        self,
        link: Link,
        keeper: Keeper,
        topic: str,
        partition: int | None,
        options: ConsumerOptions,
        now_s: float,
    ) -> None:
        self.link = link
        self.topic = topic
        self.partition = partition
        self.seat = Seat(link.negotiated.rdy_count_max, now_s)
        self.close_wait = False  # nsqd has confirmed that it sends no more
        self._keeper = keeper
        make = _message_type(link, options)
        self._reader: FrameReader[Message] = FrameReader(partial(make, self))
        self._auto_touch = options.auto_touch
        self._held: dict[bytes, Held] = {}
        self._now_s = now_s

    @property
    def address(self) -> str:
        return self.link.address

    @property
    def lost(self) -> bool:
        return self.link.lost

    # --- in ---

    def received(self, data: bytes) -> None:
        messages, frames = self._reader.feed(data)
        if messages:
            seat = self.seat
            seat.in_flight += len(messages)
            seat.heard_s = self._now_s = self.link.heard_s
            if self._auto_touch:
                self._hold(messages)
            self._keeper.deliver(self, messages)
        for frame in frames:
            self._on_frame(frame)

    def _hold(self, messages: list[Message]) -> None:
        due_s = self._now_s + self.link.negotiated.message_timeout_s / 2
        for message in messages:
            self._held[message.id] = Held(message, self._now_s, due_s)

    def _on_frame(self, frame: Frame) -> None:
        if frame.type == FrameType.ERROR:
            error = ServerRefused(self.address, frame.data)
            if error.code not in _LATE:
                self.link.reason = error.reason
            self._keeper.refused(error)
        elif frame.data == HEARTBEAT:
            self.link.write(framing.NOP)
        elif frame.data == CLOSE_WAIT:
            self.close_wait = True
            self._keeper.closing(self)

    # --- out ---

    def set_rdy(self, count: int, now_s: float) -> None:
        seat = self.seat
        if count == seat.rdy or self.lost:
            return
        if (count == 0) != (seat.rdy == 0):
            seat.changed_s = now_s
        seat.rdy = count
        self.link.write(framing.rdy(count))

    def close_soon(self) -> None:
        """Ask nsqd to send no more."""
        self.seat.rdy = 0
        self.link.write(framing.CLS)

    def finish(self, message: Message) -> None:
        self._settle(message, b"FIN %b\n" % message.id, True, False)

    def requeue(self, message: Message, delay_ms: int, backoff: bool) -> None:
        self._settle(message, framing.req(message.id, delay_ms), False, backoff)

    def _settle(self, message: Message, command: bytes, finished: bool, backoff: bool) -> None:
        if self.link.lost:
            return
        self.seat.in_flight -= 1
        if self._auto_touch:
            self._held.pop(message.id, None)
        self.link.write(command)
        self._keeper.settled(self, finished, backoff)

    def touch(self, message: Message) -> None:
        if not self.link.lost:
            self.link.write(framing.touch(message.id))
            self._keeper.touched()

    def touch_due(self, now_s: float) -> None:
        """Touch what has been here for half of its timeout. What has been here for all the time
        that nsqd allows is let go."""
        negotiated = self.link.negotiated
        gone = []
        for message_id, held in self._held.items():
            if now_s < held.due_s:
                continue
            if now_s - held.came_s >= negotiated.message_timeout_max_s:
                gone.append(message_id)
                continue
            held.due_s = now_s + negotiated.message_timeout_s / 2
            self.touch(held.message)
        for message_id in gone:
            del self._held[message_id]
            log.warning("%s: message %r is held for too long to be touched", self.address, gone)


def _message_type(link: Link, options: ConsumerOptions) -> type[Message]:
    """By what its frames have in front of the body."""
    if link.negotiated.envelope:
        return EnvelopedMessage
    return HeadedMessage if options.headers else Message
