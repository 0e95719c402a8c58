"""One connection of a consumer: counts its messages in flight and turns settled messages into
bytes. The consumer does the rest.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client import framing
from penstock.client.framing import FrameBroken, FrameReader
from penstock.client.link import Link
from penstock.client.message import Message
from penstock.client.options import ConsumerOptions
from penstock.errors import ServerRefused
from penstock.wire.frames import CLOSE_WAIT, HEARTBEAT, Frame, FrameType

if TYPE_CHECKING:
    from penstock.client.consumer import Consumer

log = logging.getLogger("penstock.client")

# A message that nsqd has timed out meanwhile: it is being delivered again, and nothing is wrong.
LATE = frozenset({"E_FIN_FAILED", "E_REQ_FAILED", "E_TOUCH_FAILED"})


@dataclass(slots=True)
class InFlightMessage:
    message: Message
    came_s: float
    due_s: float  # when it is to be touched next


class Subscription:
    """`partition`: the only one that it has, None for all."""

    def __init__(
        self,
        link: Link,
        consumer: Consumer,
        topic: str,
        channel: str,
        partition: int | None,
        options: ConsumerOptions,
        now_s: float,
    ) -> None:
        self.link = link
        self.topic = topic
        self.channel = channel
        self.partition = partition
        self.state = RdyState(link.negotiated.rdy_count_max, now_s)
        self.close_wait = False  # nsqd has confirmed that it sends no more
        self._consumer = consumer
        make = _message_type(link, options)
        self._reader: FrameReader[Message] = FrameReader(partial(make, self))
        self._auto_touch = options.auto_touch
        self._held: dict[bytes, InFlightMessage] = {}
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
            state = self.state
            state.in_flight += len(messages)
            state.received_s = self._now_s = self.link.received_s
            if self._auto_touch:
                self._hold(messages)
            self._consumer.deliver(self, messages)
        for frame in frames:
            self._on_frame(frame)

    def _hold(self, messages: list[Message]) -> None:
        due_s = self._now_s + self.link.negotiated.message_timeout_s / 2
        for message in messages:
            self._held[message.raw_id] = InFlightMessage(message, self._now_s, due_s)

    def _on_frame(self, frame: Frame) -> None:
        if frame.type == FrameType.ERROR:
            error = ServerRefused(self.address, frame.data)
            if error.code not in LATE:
                self.link.reason = error.reason
            self._consumer.refused(error)
        elif frame.data == HEARTBEAT:
            self.link.write(framing.NOP)
        elif frame.data == CLOSE_WAIT:
            self.close_wait = True
            self._consumer.check_drained()

    # --- out ---

    def set_rdy(self, count: int, now_s: float) -> None:
        state = self.state
        if count == state.rdy or self.lost:
            return
        if (count == 0) != (state.rdy == 0):
            state.changed_s = now_s
        state.rdy = count
        self.link.write(b"RDY %d\n" % count)

    def close_soon(self) -> None:
        """Ask nsqd to send no more."""
        self.state.rdy = 0
        self.link.write(b"CLS\n")

    def finish(self, message: Message) -> None:
        self._settle(message, b"FIN %b\n" % message.raw_id, True, False)

    def requeue(self, message: Message, delay_ms: int, backoff: bool) -> None:
        self._settle(message, b"REQ %b %d\n" % (message.raw_id, delay_ms), False, backoff)

    def _settle(self, message: Message, command: bytes, finished: bool, backoff: bool) -> None:
        if self.link.lost:
            return
        self.state.in_flight -= 1
        if self._auto_touch:
            self._held.pop(message.raw_id, None)
        self.link.write(command)
        self._consumer.settled(message, finished, backoff)

    def touch(self, message: Message) -> None:
        if not self.link.lost:
            self.link.write(b"TOUCH %b\n" % message.raw_id)
            self._consumer.counts.touched += 1

    def touch_due(self, now_s: float) -> None:
        """Touch messages that have been here for half of their timeout. A message at the maximum
        time of nsqd is abandoned."""
        negotiated = self.link.negotiated
        for held in [one for one in self._held.values() if now_s >= one.due_s]:
            if now_s - held.came_s >= negotiated.message_timeout_max_s:
                del self._held[held.message.raw_id]
                notice = "%s: message %s is held for too long to be touched"
                log.warning(notice, self.address, held.message.id)
                continue
            held.due_s = now_s + negotiated.message_timeout_s / 2
            self.touch(held.message)


def _message_type(link: Link, options: ConsumerOptions) -> type[Message]:
    """According to the prefix of the body in its frames."""
    if link.negotiated.envelope:
        return EnvelopedMessage
    return HeadedMessage if options.headers else Message


_NONE, _KEY, _JSON = 0, 1, 4
_HEAD = struct.Struct(">BH")  # version, length
_PARTITION = struct.Struct(">H")


class HeadedMessage(Message):
    """A message that brings its headers: of a consumer that says `extend_support`, or asks for an
    `envelope`.

    In front of the body stands a byte: 0, or 4 and the length (2 bytes, big-endian) and text of a
    JSON object. An envelope begins with the partition (2 bytes, big-endian); the byte comes next,
    and is 1 where the length and a key follow: the key of a message without headers.
    """

    __slots__ = ("_value", "_version")
    _begin = 0
    _versions: tuple[int, ...] = (_NONE, _JSON)

    def __init__(
        self, subscription: Subscription, timestamp_ns: int, attempts: int, id: bytes, rest: bytes
    ) -> None:
        """Raises FrameBroken."""
        self._version, self._value, body = _split(rest, self._begin, self._versions)
        super().__init__(subscription, timestamp_ns, attempts, id, body)

    @property
    def headers(self) -> dict[str, Any]:
        return json.loads(self._value) if self._value and self._version == _JSON else {}


class EnvelopedMessage(HeadedMessage):
    __slots__ = ("_partition",)
    _begin = _PARTITION.size
    _versions = (_NONE, _KEY, _JSON)

    def __init__(
        self, subscription: Subscription, timestamp_ns: int, attempts: int, id: bytes, rest: bytes
    ) -> None:
        super().__init__(subscription, timestamp_ns, attempts, id, rest)
        (self._partition,) = _PARTITION.unpack_from(rest)

    @property
    def partition(self) -> int:
        return int(self._partition)

    @property
    def key(self) -> str | None:
        if self._version == _KEY:
            return self._value.decode("utf-8", "surrogateescape") or None
        return super().key


def _split(rest: bytes, begin: int, versions: Sequence[int]) -> tuple[int, bytes, bytes]:
    """The version of the headers, their value, and the body."""
    version = rest[begin] if len(rest) > begin else -1
    start = begin + _HEAD.size
    if version not in versions or (version != _NONE and len(rest) < start):
        raise FrameBroken(f"a message has headers of version {version}")
    if version == _NONE:
        return version, b"", rest[begin + 1 :]
    end = start + _HEAD.unpack_from(rest, begin)[1]
    if end > len(rest):
        raise FrameBroken(f"a message of {len(rest)} bytes has headers up to {end}")
    return version, rest[start:end], rest[end:]


@dataclass(slots=True)
class RdyState:
    """One connection, for the distribution of RDY. `changed_s`: when its RDY became, or ceased to
    be, zero; the lowest has waited or held longest."""

    rdy_max: int
    changed_s: float
    rdy: int = 0
    in_flight: int = 0
    received_s: float = 0.0  # when the last message came


@dataclass(frozen=True, slots=True)
class Turns:
    idle_s: float  # a turn without a message ends after this
    hold_s: float  # and any turn after this


def share(states: Sequence[RdyState], bound: int, now_s: float, turns: Turns) -> list[int]:
    """The RDY of each connection, in order, so that all together keep within one bound.

    With at least one message per connection the bound is divided evenly, the remainder going to the
    first ones. No connection gets more than its nsqd allows; the others get the rest. With fewer,
    connections take turns: as many as the bound allows hold RDY 1. One that has brought nothing for
    a while passes its turn on, a busy one does after a longer while, and the turn goes to the one
    that has waited longest. What is still in flight on connections without a turn counts against
    the bound.

    Back-off is the same rule with a bound of 0 or 1.
    """
    if bound >= len(states):
        return _evenly(states, bound)
    return _by_turns(states, bound, now_s, turns)


def take_turns(states: Sequence[RdyState], bound: int) -> bool:
    """Whether the answer of `share` depends on the time."""
    return 0 < bound < len(states)


def _evenly(states: Sequence[RdyState], bound: int) -> list[int]:
    counts = [0] * len(states)
    left = bound
    in_rising_order = sorted(range(len(states)), key=lambda index: states[index].rdy_max)
    for before, index in enumerate(in_rising_order):
        share_of_the_rest = -(-left // (len(states) - before))
        counts[index] = min(share_of_the_rest, states[index].rdy_max)
        left -= counts[index]
    return counts


def _by_turns(states: Sequence[RdyState], bound: int, now_s: float, turns: Turns) -> list[int]:
    holding = [index for index, state in enumerate(states) if state.rdy > 0]
    holding = [index for index in holding if not _over(states[index], now_s, turns)]
    holding.sort(key=lambda index: states[index].changed_s)
    kept = set(holding[max(len(holding) - bound, 0) :])
    taken = sum(state.in_flight for index, state in enumerate(states) if index not in kept)
    waiting = [index for index in range(len(states)) if index not in kept]
    waiting.sort(key=lambda index: (states[index].rdy > 0, states[index].changed_s))
    free = max(bound - len(kept) - taken, 0)
    chosen = kept.union(waiting[:free])
    return [int(index in chosen) for index in range(len(states))]


def _over(state: RdyState, now_s: float, turns: Turns) -> bool:
    idle_since_s = max(state.received_s, state.changed_s)
    return now_s - idle_since_s >= turns.idle_s or now_s - state.changed_s >= turns.hold_s
