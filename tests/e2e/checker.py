"""Which promise did this history break? A judge without I/O, of real daemons.

`check` takes the events of one topic (`history.py`) and returns what is broken, each with the
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

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

from .history import (
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

EVERYBODY = (Crashed, Stopped, Restarted)  # events that touch every message
NEVER = 1 << 62  # no event has this number
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
    incarnation: tuple[Event, ...]  # all that happened to the message, in order


class HistoryInvalid(Exception):
    """The history contradicts itself, or lacks what is needed to judge it: a fault of the test."""


@dataclass(slots=True)
class _Publish:
    attempt: PublishAttempted
    number: int  # its place among the events
    outcome: Event | None = None


@dataclass(slots=True)
class _Channel:
    made_number: int
    gets_backlog: bool
    stored: frozenset[bytes] | None = None
    seen: set[bytes] = field(default_factory=set)


@dataclass(slots=True)
class _Course:
    """What is known of one message in one channel."""

    number: int  # of the event that it is judged from: the last delivery, or the publish
    last: Delivered | None = None
    unseen: set[int] = field(default_factory=set)  # attempts below the last
    missing: set[int] = field(default_factory=set)  # those of them that nothing can have lost
    requeues: int = 0  # sent, and not yet the cause of a delivery
    requeued_ns: int = 0
    held_until_ns: int = 0  # a requeue's delay
    confirmed_ns: int = 0


class Checker:
    """Feed it events with `take`, then ask `verdict` once."""

    def __init__(self, clock_slack_ns: int = 0, send_slack_ns: int = 0) -> None:
        """`clock_slack_ns`: by how much the observer's clock may differ from the daemon's.
        `send_slack_ns`: how long a delivery may take from the moment that its timeout counts from
        until it is really sent; on a busy machine others run in between."""
        self._clock_slack_ns = clock_slack_ns
        self._send_slack_ns = send_slack_ns
        self._events: list[Event] = []
        self._publishes: dict[int, _Publish] = {}
        self._publish_of: dict[bytes, _Publish] = {}  # by body
        self._channels: dict[str, _Channel] = {}
        self._courses: dict[tuple[str, bytes], _Course] = {}
        self._body_of: dict[bytes, bytes] = {}  # by id
        self._id_of: dict[bytes, bytes] = {}  # by body
        # The numbers of the last events of their kind.
        self._crash_number = -1
        self._end_number = -1  # a crash or a stop
        self._disconnect_numbers: dict[tuple[str, str], int] = {}  # by channel and consumer
        self._lossy_numbers: dict[str, int] = {}  # by channel: any of its consumers
        self._broken: list[tuple[Promise, bytes, str, str]] = []
        self._takers: dict[type, Callable[[Any], None]] = {
            PublishAttempted: self._take_attempt,
            PublishAcknowledged: self._take_outcome,
            PublishFailed: self._take_outcome,
            PublishUnknown: self._take_outcome,
            ChannelMade: self._take_channel,
            ChannelGone: self._take_gone,
            Delivered: self._take_delivery,
            FinishSent: self._take_finish,
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
        self._judge_missing()
        self._judge_kept()
        self._judge_failed()
        self._judge_whole()
        self._judge_rising()
        incarnations = self._incarnations({body for _, body, _, _ in self._broken})
        return [
            Broken(promise, body, channel, reason, incarnations[body])
            for promise, body, channel, reason in self._broken
        ]

    def _break(self, promise: Promise, body: bytes, channel: str, reason: str) -> None:
        self._broken.append((promise, body, channel, reason))

    @property
    def _number(self) -> int:
        """Of the event at hand."""
        return len(self._events) - 1

    # --- publishing ---

    def _take_attempt(self, event: PublishAttempted) -> None:
        if event.publish in self._publishes:
            raise HistoryInvalid(f"publish {event.publish} is attempted twice")
        publish = _Publish(event, self._number)
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
            self._channels[event.channel] = _Channel(self._number, event.gets_backlog)
        elif known.made_number == NEVER:
            known.made_number = self._number

    def _channel(self, name: str) -> _Channel:
        channel = self._channels.get(name)
        if channel is None:
            raise HistoryInvalid(f"nothing says that there is a channel {name}")
        return channel

    def _take_gone(self, event: ChannelGone) -> None:
        channel = self._channel(event.channel)
        channel.made_number, channel.gets_backlog = NEVER, False

    def _take_stored(self, event: StoredAtEnd) -> None:
        self._channel(event.channel).stored = event.bodies

    # --- delivery ---

    def _take_delivery(self, event: Delivered) -> None:
        self._channel(event.channel).seen.add(event.body)
        self._judge_true(event)
        course = self._courses.get((event.channel, event.message_id))
        if course is None:
            publish = self._publish_of.get(event.body)
            course = _Course(publish.number if publish is not None else 0)
            self._courses[event.channel, event.message_id] = course
        if course.confirmed_ns and event.sent_after_ns >= course.confirmed_ns:
            reason = f"attempt {event.attempts} came after the finish was confirmed"
            self._break(Promise.FINISHED, event.body, event.channel, reason)
        if _is_older(event, course):
            course.unseen.remove(event.attempts)
            course.missing.discard(event.attempts)
            return
        self._judge_time(event, course)
        self._judge_again(event, course)
        self._judge_attempts(event, course)
        course.last, course.number, course.held_until_ns = event, self._number, 0

    def _judge_true(self, event: Delivered) -> None:
        def wrong(reason: str) -> None:
            self._break(Promise.TRUE, event.body, event.channel, reason)

        if event.body not in self._publish_of:
            wrong("nobody has published this body")
        known_body = self._body_of.setdefault(event.message_id, event.body)
        if known_body != event.body:
            wrong(f"id {event.message_id!r} came with the body {known_body[:40]!r} before")
        known_id = self._id_of.setdefault(event.body, event.message_id)
        if known_id != event.message_id:
            wrong(f"this body came with the id {known_id!r} before, now {event.message_id!r}")

    def _judge_again(self, event: Delivered, course: _Course) -> None:
        last = course.last
        if last is None:
            return
        holder = (event.channel, last.consumer)
        if (
            self._end_number > course.number
            or self._disconnect_numbers.get(holder, -1) > course.number
            or self._timed_out(event, last)
        ):
            # A requeue that was sent before this delivery may call the next one: of two deliveries
            # that were answered late, the first answer calls the third, and the second answer,
            # still under way, the fourth. Only with a stop or a crash all that was under way ends.
            if self._end_number > course.number:
                course.requeues = 0
        elif course.requeues:
            course.requeues -= 1
        else:
            kept_ms = (event.at_ns - last.at_ns) / 1e6
            reason = f"it came again {kept_ms:.1f} ms after attempt {last.attempts}, uncalled"
            self._break(Promise.CALLED_FOR, event.body, event.channel, reason)

    def _timed_out(self, event: Delivered, last: Delivered) -> bool:
        """Whether it may be so: `last` was sent after `sent_after_ns`, this one before `at_ns`."""
        slack_ns = self._clock_slack_ns + self._send_slack_ns
        return 0 < last.timeout_ns <= event.at_ns - last.sent_after_ns + slack_ns

    def _judge_attempts(self, event: Delivered, course: _Course) -> None:
        last_attempts = course.last.attempts if course.last is not None else 0
        crashed = self._crash_number > course.number
        lossy = max(self._end_number, self._lossy_numbers.get(event.channel, -1)) > course.number
        lowest = max(last_attempts, 1) if crashed else last_attempts + 1
        if event.attempts < lowest:
            reason = f"attempt {event.attempts} came after attempt {last_attempts}"
            self._break(Promise.ATTEMPTS, event.body, event.channel, reason)
        course.unseen.update(range(lowest, event.attempts))
        if not lossy:
            course.missing.update(range(lowest, event.attempts))

    def _judge_time(self, event: Delivered, course: _Course) -> None:
        publish = self._publish_of.get(event.body)
        due_ns = publish.attempt.due_ns if publish is not None else 0
        # After a crash the requeue may be forgotten, after a timeout it came too late.
        last = course.last
        binding = last is not None and not self._timed_out(event, last)
        if binding and self._crash_number <= course.number:
            due_ns = max(due_ns, course.held_until_ns)
        early_ns = due_ns - event.at_ns
        if early_ns > self._clock_slack_ns:
            reason = f"attempt {event.attempts} came {early_ns / 1e6:.1f} ms early"
            self._break(Promise.ON_TIME, event.body, event.channel, reason)

    # --- what consumers say, and what ends them ---

    def _course(self, channel: str, message_id: bytes) -> _Course:
        course = self._courses.get((channel, message_id))
        if course is None:
            raise HistoryInvalid(f"{message_id!r} was settled in {channel} and never delivered")
        return course

    def _take_finish(self, event: FinishSent) -> None:
        self._course(event.channel, event.message_id)  # it binds nobody until it is confirmed

    def _take_confirmed(self, event: FinishConfirmed) -> None:
        self._course(event.channel, event.message_id).confirmed_ns = event.at_ns

    def _take_requeue(self, event: RequeueSent) -> None:
        course = self._course(event.channel, event.message_id)
        course.requeues += 1
        course.requeued_ns = event.at_ns
        course.held_until_ns = event.at_ns + event.delay_ns if event.delay_ns else 0

    def _take_refused(self, event: SettleRefused) -> None:
        self._course(event.channel, event.message_id).held_until_ns = 0

    def _take_disconnect(self, event: Disconnected) -> None:
        self._disconnect_numbers[event.channel, event.consumer] = self._number
        self._lossy_numbers[event.channel] = self._number

    def _take_crash(self, event: Crashed) -> None:
        self._crash_number = self._end_number = self._number

    def _take_stop(self, event: Stopped) -> None:
        self._end_number = self._number

    def _take_nothing(self, event: Event) -> None:
        """It matters only when an incarnation is told."""

    # --- judged at the end ---

    def _judge_missing(self) -> None:
        for (channel, message_id), course in self._courses.items():
            if course.missing:
                numbers = ", ".join(str(attempts) for attempts in sorted(course.missing)[:9])
                reason = f"nobody saw attempt {numbers}"
                self._break(Promise.ATTEMPTS, self._body_of[message_id], channel, reason)

    def _judge_kept(self) -> None:
        for publish in self._publishes.values():
            if not isinstance(publish.outcome, PublishAcknowledged):
                continue
            for name, channel in self._channels.items():
                if not channel.gets_backlog and publish.number < channel.made_number:
                    continue
                for body in publish.attempt.bodies:
                    if body not in channel.seen and body not in (channel.stored or ()):
                        reason = "it was acknowledged, and is neither delivered nor stored"
                        self._break(Promise.KEPT, body, name, reason)

    def _judge_failed(self) -> None:
        for publish in self._publishes.values():
            if not isinstance(publish.outcome, PublishFailed):
                continue
            for name, channel in self._channels.items():
                for body in publish.attempt.bodies:
                    if body in channel.seen or body in (channel.stored or ()):
                        reason = "its publisher got the answer that it was not stored"
                        self._break(Promise.TRUE, body, name, reason)

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
                self._judge_publish_rising(event, acknowledged, of_publisher)
            elif isinstance(event, PublishAcknowledged):
                for body in self._publishes[event.publish].attempt.bodies:
                    acknowledged = max(acknowledged, self._id_of.get(body, b""))

    def _judge_publish_rising(
        self, event: PublishAttempted, acknowledged: bytes, of_publisher: dict[str, bytes]
    ) -> None:
        for body in event.bodies:
            message_id = self._id_of.get(body)
            if message_id is None:
                continue
            before = of_publisher.get(event.publisher, b"")
            if message_id <= acknowledged:
                reason = f"its id is not above {acknowledged!r}, which was acknowledged before"
                self._break(Promise.RISING, body, "", reason)
            elif message_id <= before:
                reason = f"its id is not above {before!r}, which the same publisher sent before"
                self._break(Promise.RISING, body, "", reason)
            of_publisher[event.publisher] = max(before, message_id)

    # --- telling ---

    def _incarnations(self, bodies: set[bytes]) -> dict[bytes, tuple[Event, ...]]:
        """For each message all events about it, and those that were about everybody."""
        incarnations: dict[bytes, list[Event]] = {body: [] for body in bodies}
        for event in self._events:
            for body in incarnations if isinstance(event, EVERYBODY) else self._about(event):
                if body in incarnations:
                    incarnations[body].append(event)
        return {body: tuple(incarnation) for body, incarnation in incarnations.items()}

    def _about(self, event: Event) -> tuple[bytes, ...]:
        if isinstance(event, PublishAttempted):
            return event.bodies
        if isinstance(event, PublishAcknowledged | PublishFailed | PublishUnknown):
            return self._publishes[event.publish].attempt.bodies
        if isinstance(event, Delivered):
            return (event.body,)
        if isinstance(event, FinishSent | FinishConfirmed | RequeueSent | SettleRefused):
            return (self._body_of[event.message_id],)
        return ()


def _is_older(event: Delivered, course: _Course) -> bool:
    """Two consumers' sockets are not read at one instant: the delivery seen later may have been the
    earlier one."""
    last = course.last
    return (
        last is not None
        and event.attempts in course.unseen
        and event.consumer != last.consumer
        and event.sent_after_ns < last.at_ns
    )


def check(
    history: Iterable[Event], clock_slack_ns: int = 0, send_slack_ns: int = 0
) -> list[Broken]:
    """What is broken in `history`. Raises HistoryInvalid."""
    checker = Checker(clock_slack_ns, send_slack_ns)
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
            lines += [f"    {_told(event)}" for event in case.incarnation]
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
