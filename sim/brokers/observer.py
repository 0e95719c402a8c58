"""What the clients of a cluster see, and what must hold of it.

| promise | |
|---|---|
| I17 | a message has one id, and an id one message |
| I18 | a channel gets every message that was answered OK |
| I19 | what comes was published, to this topic |
| I23 | a channel that was made late gets all that was published after its making was answered |
| I24 | nothing that a deleted topic has stored comes from the one that was made under its name |
| I27 | nothing comes before it is due |
| I30, I31 | a publish is stored once, or not at all |
| I36 | what was refused is never stored; every publish is answered |
| L-d | in the end every channel has finished all of it |

The identity of a message is its body: no two are the same.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from penstock.errors import NotFound, PenstockError, Refused, WriteRefused
from sim.brokers.clients import Message
from sim.histories import Breach


class Feed(NamedTuple):
    """A channel, in one life of its topic."""

    topic: str
    incarnation: int  # of the topic: how often it was made before
    channel: str


class Publish:
    """`done` is what its broker answers to."""

    def __init__(
        self,
        topic: str,
        incarnation: int,
        bodies: Sequence[bytes],
        due_ns: int,
        now: Callable[[], int],
    ) -> None:
        self.topic, self.incarnation = topic, incarnation
        self.begun_ns, self._now = now(), now
        self.answered_ns: int | None = None
        self.bodies = tuple(bodies)
        self.due_ns = due_ns
        self.answers: list[PenstockError | None] = []
        self.is_cut = False  # its connection ended before an answer came

    def done(self, error: PenstockError | None) -> None:
        self.answers.append(error)
        self.answered_ns = self._now()

    def was_answered(self, now_ns: int) -> bool:
        """One that was not may be stored by the next topic of the same name."""
        return self.answered_ns is not None and self.answered_ns < now_ns

    @property
    def is_ok(self) -> bool:
        return self.answers == [None]

    @property
    def is_refused(self) -> bool:
        return bool(self.answers) and is_refusal(self.answers[0])

    @property
    def waits(self) -> bool:
        return not self.answers and not self.is_cut


def is_refusal(error: PenstockError | None) -> bool:
    """It says that nothing was stored. Other errors do not know."""
    return isinstance(error, Refused | WriteRefused | NotFound)


class Seen:
    """By one feed."""

    def __init__(self) -> None:
        self.received: dict[bytes, int] = {}  # how often
        self.finished: set[bytes] = set()


class Observer:
    def __init__(self) -> None:
        self.publishes: dict[bytes, Publish] = {}
        self.feeds: dict[Feed, Seen] = {}
        self.since_ns: dict[Feed, int] = {}  # where it gets what was published later only
        self._bodies: dict[
            tuple[str, int, bytes], bytes
        ] = {}  # by topic, its incarnation and the id
        self._ids: dict[tuple[str, bytes], bytes] = {}

    def publishing(self, publish: Publish) -> None:
        for body in publish.bodies:
            self.publishes[body] = publish

    def seen(self, feed: Feed) -> Seen:
        return self.feeds.setdefault(feed, Seen())

    def came(self, feed: Feed, message: Message, wall_ns: int, made_ns: int) -> None:
        """`made_ns`: when the topic was made that the feed belongs to."""
        body = message.body
        publish = self.publishes.get(body)
        if publish is None or publish.topic != feed.topic:
            raise Breach("I19", f"{feed.channel} got {body!r}, which {feed.topic} was never sent")
        if publish.incarnation != feed.incarnation and publish.was_answered(made_ns):
            raise Breach("I24", f"{feed.channel} got {body!r} of a topic that was deleted")
        if publish.is_refused:
            raise Breach("I36", f"{feed.channel} got {body!r}, whose publish was refused")
        if wall_ns < publish.due_ns:
            raise Breach("I27", f"{body!r} came {publish.due_ns - wall_ns} ns before it was due")
        self._has_one_id(feed, message)
        received = self.seen(feed).received
        received[body] = received.get(body, 0) + 1

    def _has_one_id(self, feed: Feed, message: Message) -> None:
        body, key = message.body, (feed.topic, feed.incarnation, message.id)
        if self._bodies.setdefault(key, body) != body:
            raise Breach("I17", f"{message.id!r} is {self._bodies[key]!r} and {body!r}")
        if self._ids.setdefault((feed.topic, body), message.id) != message.id:
            raise Breach("I30", f"{body!r} is stored twice, at least")

    def finished(self, feed: Feed, message: Message) -> None:
        self.seen(feed).finished.add(message.body)

    # --- the end ---

    def answered(self) -> Iterator[tuple[bytes, Publish]]:
        return (pair for pair in self.publishes.items() if pair[1].is_ok)

    def owed(self, feed: Feed) -> set[bytes]:
        since_ns = self.since_ns.get(feed, 0)
        return {
            body
            for body, publish in self.answered()
            if (publish.topic, publish.incarnation) == (feed.topic, feed.incarnation)
            and publish.begun_ns >= since_ns
        }

    def check_kept(self, feed: Feed) -> None:
        seen = self.seen(feed)
        if missing := self.owed(feed) - seen.received.keys():
            some = sorted(missing)[:3]
            promise = "I23" if feed in self.since_ns else "I18"
            raise Breach(promise, f"{feed.channel} never got {len(missing)} messages, as {some!r}")
        if refused := [body for body in seen.received if self.publishes[body].is_refused]:
            raise Breach("I36", f"{feed.channel} got {refused[0]!r}, whose publish was refused")

    def unfinished(self, feed: Feed) -> set[bytes]:
        return self.owed(feed) - self.seen(feed).finished

    def check_answered(self) -> None:
        for body, publish in self.publishes.items():
            if len(publish.answers) > 1:
                raise Breach("I36", f"the publish of {body!r} was answered {publish.answers!r}")
            if publish.waits:
                raise Breach("L-g", f"the publish of {body!r} was never answered")
