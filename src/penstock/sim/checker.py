"""Which promise did this history break? A judge without I/O, for simulations and real daemons alike.

`check` takes the events of one topic (`sim/history.py`) and returns what is broken, each with the
life of the message it is about. An empty answer is an acquittal of this one history only.

What is judged

- KEPT: every acknowledged message was delivered to every channel that it is owed to, or is stored
  there. Owed: the channel was known to exist before the publish was attempted, or it was the first
  and so gets the backlog.
- TRUE: a delivered body was published and not refused; an id has one body, a body one id.
- WHOLE: of the messages of one MPUB all are there or none, whatever the publisher was told.
- CALLED_FOR: a message comes to a channel again only after a requeue, a timeout, a disconnect, a
  crash or a stop.
- ATTEMPTS: each delivery counts one more than the one before. After a disconnect, a crash or a stop
  there may have been deliveries that nobody saw, so it may count more. After a crash the last count
  may come twice, because the kill fell between sending and journalling.
- FINISHED: what was finished and confirmed does not come back, whatever happens.
- ON_TIME: nothing comes before it is due; nor before its requeue delay is over, unless a crash may
  have forgotten the requeue.
- RISING: ids rise with the order of publishing, as far as clients can know that order: along one
  publisher, and from what was acknowledged to what was attempted after that.

What cannot be known is never held against the daemon. Two deliveries that may have been sent in the
other order than they were seen, by their times, are not compared. An unconfirmed finish binds
nobody once the connection is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from penstock.sim.history import (
    ChannelGone,
    ChannelMade,
    Crashed,
    Delivered,
    Disconnected,
    Event,
    FinishConfirmed,
    FinishSent,
    PublishAcknowledged,
    PublishAttempted,
    PublishFailed,
    PublishUnknown,
    RequeueSent,
    Restarted,
    SettleRefused,
    Stopped,
    StoredAtEnd,
)

LIVES_SHOWN_MAX = 5  # a report with every one of ten thousand lost messages helps nobody


class Promise(Enum):
    KEPT = "an acknowledged message is delivered to every channel, or is still stored"
    TRUE = "nothing is delivered that was not published, and ids and bodies belong together"
    WHOLE = "of one MPUB all messages are stored, or none"
    CALLED_FOR = "a message comes again only after a requeue, a timeout, a disconnect or a crash"
    ATTEMPTS = "attempts rise by one with each delivery, and never fall"
    FINISHED = "a message whose finish was confirmed does not come back"
    ON_TIME = "nothing is delivered before it is due"
    RISING = "ids rise along a partition"


class Broken(NamedTuple):
    promise: Promise
    body: bytes  # the message
    channel: str  # "" when it is about no channel
    reason: str
    life: tuple[Event, ...]  # all that happened to the message, in order


class HistoryInvalid(Exception):
    """The history contradicts itself, or lacks what is needed to judge it: a fault of the test."""


@dataclass(slots=True)
class _Publish:
    attempt: PublishAttempted
    number: int  # its place among the events
    outcome: Event | None = None
    id_floor: bytes = b""  # the highest id that was acknowledged before the attempt


@dataclass(slots=True)
class _Channel:
    made_number: int
    gets_backlog: bool
    gone_number: int = -1
    stored: frozenset[bytes] | None = None
    seen: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Course:
    """What is known of one message in one channel."""

    last: Delivered | None = None
    breaks: int = 0  # crashes, stops and disconnects when it was last delivered
    crashes: int = 0
    held_until_ns: int = 0  # a requeue's delay
    requeued: bool = False
    confirmed: bool = False


class Checker:
    """Feed it events with `take`, then ask `verdict` once."""

    def __init__(self, clock_slack_ns: int = 0) -> None:
        """`clock_slack_ns`: by how much the observer's clock may differ from the daemon's."""
        self._slack_ns = clock_slack_ns
        self._events: list[Event] = []
        self._publishes: dict[int, _Publish] = {}
        self._publish_of: dict[bytes, _Publish] = {}  # by body
        self._channels: dict[str, _Channel] = {}
        self._courses: dict[tuple[str, bytes], _Course] = {}
        self._body_of: dict[bytes, bytes] = {}  # by id
        self._id_of: dict[bytes, bytes] = {}  # by body
        self._disconnects: dict[tuple[str, str], int] = {}
        self._channel_disconnects: dict[str, int] = {}
        self._crashes = 0
        self._stops = 0
        self._broken: list[tuple[Promise, bytes, str, str]] = []
        self._takers: dict[type, Callable[[Any], None]] = {
            PublishAttempted: self._take_attempt,
            PublishAcknowledged: self._take_outcome,
            PublishFailed: self._take_outcome,
            PublishUnknown: self._take_outcome,
            ChannelMade: self._take_channel,
            ChannelGone: self._take_gone,
            Delivered: self._take_delivery,
            FinishSent: self._take_nothing,
            FinishConfirmed: self._take_confirmed,
            RequeueSent: self._take_requeue,
            SettleRefused: self._take_refused,
            Disconnected: self._take_disconnect,
            Crashed: self._take_crash,
            Stopped: self._take_stop,
            Restarted: self._take_nothing,
            StoredAtEnd: self._take_stored,
        }

    def take(self, event: Event) -> None:
        self._events.append(event)
        self._takers[type(event)](event)

    def verdict(self) -> list[Broken]:
        for name, channel in self._channels.items():
            if channel.stored is None:
                raise HistoryInvalid(f"channel {name}: nothing says what is stored at the end")
        self._judge_kept()
        self._judge_whole()
        self._judge_rising()
        return [
            Broken(promise, body, channel, reason, self._life(body))
            for promise, body, channel, reason in self._broken
        ]

    def _break(self, promise: Promise, body: bytes, channel: str, reason: str) -> None:
        self._broken.append((promise, body, channel, reason))

    # --- publishing ---

    def _take_attempt(self, event: PublishAttempted) -> None:
        if event.publish in self._publishes:
            raise HistoryInvalid(f"publish {event.publish} is attempted twice")
        publish = _Publish(event, len(self._events))
        self._publishes[event.publish] = publish
        for body in event.bodies:
            if body in self._publish_of:
                raise HistoryInvalid(f"the body {body[:40]!r} is published twice")
            self._publish_of[body] = publish

    def _take_outcome(self, event: PublishAcknowledged | PublishFailed | PublishUnknown) -> None:
        publish = self._publishes.get(event.publish)
        if publish is None or publish.outcome is not None:
            raise HistoryInvalid(f"{event} does not belong to an open attempt")
        publish.outcome = event

    # --- channels ---

    def _take_channel(self, event: ChannelMade) -> None:
        known = self._channels.get(event.channel)
        if known is None:
            self._channels[event.channel] = _Channel(len(self._events), event.gets_backlog)

    def _channel(self, name: str) -> _Channel:
        channel = self._channels.get(name)
        if channel is None:
            raise HistoryInvalid(f"nothing says that there is a channel {name}")
        return channel

    def _take_gone(self, event: ChannelGone) -> None:
        self._channel(event.channel).gone_number = len(self._events)

    def _take_stored(self, event: StoredAtEnd) -> None:
        self._channel(event.channel).stored = event.bodies

    # --- delivery ---

    def _take_delivery(self, event: Delivered) -> None:
        self._channel(event.channel).seen.add(event.body)
        self._judge_true(event)
        course = self._courses.setdefault((event.channel, event.message_id), _Course())
        if course.confirmed:
            self._break(
                Promise.FINISHED, event.body, event.channel, "it came after its finish was confirmed"
            )
        if not _may_be_older(event, course.last):
            self._judge_again(event, course)
            self._judge_attempts(event, course)
            self._judge_time(event, course)
        if course.last is None or event.attempts >= course.last.attempts:
            course.last = event
            course.breaks = self._breaks(event.channel)
            course.crashes = self._crashes
            course.requeued = False
            course.held_until_ns = 0

    def _breaks(self, channel: str) -> int:
        """How often deliveries to this channel may have been lost on their way."""
        return self._crashes + self._stops + self._channel_disconnects.get(channel, 0)

    def _judge_true(self, event: Delivered) -> None:
        def wrong(reason: str) -> None:
            self._break(Promise.TRUE, event.body, event.channel, reason)

        publish = self._publish_of.get(event.body)
        if publish is None:
            wrong("nobody has published this body")
        elif isinstance(publish.outcome, PublishFailed):
            wrong("its publisher was told that it was not stored")
        known_body = self._body_of.setdefault(event.message_id, event.body)
        if known_body != event.body:
            wrong(f"id {event.message_id!r} came with the body {known_body[:40]!r} before")
        known_id = self._id_of.setdefault(event.body, event.message_id)
        if known_id != event.message_id:
            wrong(f"this body came with the id {known_id!r} before, now {event.message_id!r}")

    def _judge_again(self, event: Delivered, course: _Course) -> None:
        last = course.last
        if last is None or course.requeued or self._breaks(event.channel) > course.breaks:
            return
        kept_ns = event.at_ns - last.sent_after_ns
        if not last.timeout_ns or kept_ns + self._slack_ns < last.timeout_ns:
            self._break(
                Promise.CALLED_FOR,
                event.body,
                event.channel,
                f"it came again {kept_ns / 1e6:.1f} ms after attempt {last.attempts}, uncalled",
            )

    def _judge_attempts(self, event: Delivered, course: _Course) -> None:
        last_attempts = course.last.attempts if course.last is not None else 0
        lowest = last_attempts + 1
        if course.last is not None and self._crashes > course.crashes:
            lowest = last_attempts
        highest = None if self._breaks(event.channel) > course.breaks else lowest
        if event.attempts < lowest or (highest is not None and event.attempts > highest):
            self._break(
                Promise.ATTEMPTS,
                event.body,
                event.channel,
                f"attempt {event.attempts} came after attempt {last_attempts}",
            )

    def _judge_time(self, event: Delivered, course: _Course) -> None:
        publish = self._publish_of.get(event.body)
        due_ns = publish.attempt.due_ns if publish is not None else 0
        if self._crashes == course.crashes:
            due_ns = max(due_ns, course.held_until_ns)
        early_ns = due_ns - event.at_ns
        if early_ns > self._slack_ns:
            reason = f"attempt {event.attempts} came {early_ns / 1e6:.1f} ms early"
            self._break(Promise.ON_TIME, event.body, event.channel, reason)

    # --- what consumers say, and what ends them ---

    def _course(self, channel: str, message_id: bytes) -> _Course:
        course = self._courses.get((channel, message_id))
        if course is None:
            raise HistoryInvalid(f"{message_id!r} was settled in {channel} and never delivered")
        return course

    def _take_confirmed(self, event: FinishConfirmed) -> None:
        self._course(event.channel, event.message_id).confirmed = True

    def _take_requeue(self, event: RequeueSent) -> None:
        course = self._course(event.channel, event.message_id)
        course.requeued = True
        course.held_until_ns = event.at_ns + event.delay_ns if event.delay_ns else 0

    def _take_refused(self, event: SettleRefused) -> None:
        self._course(event.channel, event.message_id).held_until_ns = 0

    def _take_disconnect(self, event: Disconnected) -> None:
        count = self._channel_disconnects.get(event.channel, 0)
        self._channel_disconnects[event.channel] = count + 1

    def _take_crash(self, event: Crashed) -> None:
        self._crashes += 1

    def _take_stop(self, event: Stopped) -> None:
        self._stops += 1

    def _take_nothing(self, event: Event) -> None:
        """It matters only when a life is told."""

    # --- judged at the end ---

    def _judge_kept(self) -> None:
        for publish in self._publishes.values():
            if not isinstance(publish.outcome, PublishAcknowledged):
                continue
            for name, channel in self._channels.items():
                owed = channel.gets_backlog or publish.number > channel.made_number
                if not owed or publish.number < channel.gone_number:
                    continue
                for body in publish.attempt.bodies:
                    if body not in channel.seen and body not in (channel.stored or ()):
                        reason = "it was acknowledged, and is neither delivered nor stored"
                        self._break(Promise.KEPT, body, name, reason)

    def _judge_whole(self) -> None:
        there: set[bytes] = set()
        for channel in self._channels.values():
            if channel.gets_backlog:
                there |= channel.seen | (channel.stored or frozenset())
        for publish in self._publishes.values():
            bodies = publish.attempt.bodies
            missing = [body for body in bodies if body not in there]
            if missing and len(missing) < len(bodies):
                reason = f"{len(missing)} of the {len(bodies)} messages of its MPUB are not there"
                self._break(Promise.WHOLE, missing[0], "", reason)

    def _judge_rising(self) -> None:
        acknowledged = b""  # the highest id so far
        of_publisher: dict[str, bytes] = {}
        for event in self._events:
            if isinstance(event, PublishAttempted):
                self._publishes[event.publish].id_floor = acknowledged
                self._judge_publish_rising(event, of_publisher)
            elif isinstance(event, PublishAcknowledged):
                for body in self._publishes[event.publish].attempt.bodies:
                    acknowledged = max(acknowledged, self._id_of.get(body, b""))

    def _judge_publish_rising(
        self, event: PublishAttempted, of_publisher: dict[str, bytes]
    ) -> None:
        floor = self._publishes[event.publish].id_floor
        for body in event.bodies:
            message_id = self._id_of.get(body)
            if message_id is None:
                continue
            before = of_publisher.get(event.publisher, b"")
            if message_id <= floor:
                reason = f"its id is not above {floor!r}, which was acknowledged before"
                self._break(Promise.RISING, body, "", reason)
            elif message_id <= before:
                reason = f"its id is not above {before!r}, which the same publisher sent before"
                self._break(Promise.RISING, body, "", reason)
            of_publisher[event.publisher] = message_id

    # --- telling ---

    def _life(self, body: bytes) -> tuple[Event, ...]:
        """All events about a message, and those that were about everybody."""
        publish = self._publish_of.get(body)
        number = publish.attempt.publish if publish is not None else None
        message_id = self._id_of.get(body)
        return tuple(
            event
            for event in self._events
            if isinstance(event, Crashed | Stopped | Restarted)
            or (number is not None and getattr(event, "publish", None) == number)
            or (message_id is not None and getattr(event, "message_id", None) == message_id)
            or getattr(event, "body", None) == body
        )


def _may_be_older(event: Delivered, last: Delivered | None) -> bool:
    """Two consumers' sockets are not read at one instant: the delivery seen later may have been the
    earlier one."""
    return (
        last is not None
        and event.consumer != last.consumer
        and event.attempts < last.attempts
        and event.sent_after_ns < last.at_ns
    )


def check(history: Iterable[Event], clock_slack_ns: int = 0) -> list[Broken]:
    """What is broken in `history`. Raises HistoryInvalid."""
    checker = Checker(clock_slack_ns)
    for event in history:
        checker.take(event)
    return checker.verdict()


def report(broken: Sequence[Broken]) -> str:
    """For people: each broken promise, how often, and the lives of the first few messages."""
    if not broken:
        return "no promise is broken"
    lines = []
    for promise in Promise:
        cases = [case for case in broken if case.promise is promise]
        if not cases:
            continue
        lines.append(f"BROKEN {len(cases)} times: {promise.value}")
        for case in cases[:LIVES_SHOWN_MAX]:
            where = f" in channel {case.channel}" if case.channel else ""
            lines.append(f"  {case.body[:60]!r}{where}: {case.reason}")
            lines += [f"    {_told(event)}" for event in case.life]
    return "\n".join(lines)


def _told(event: Event) -> str:
    values = event._asdict()
    at_ns = values.pop("at_ns")
    if isinstance(event, PublishAttempted):
        values["bodies"] = f"{len(event.bodies)} messages"
    shown = ", ".join(
        f"{name}={value[:60] if isinstance(value, bytes) else value!r}"
        for name, value in values.items()
    )
    return f"{at_ns / 1e9:.6f} {type(event).__name__}({shown})"
