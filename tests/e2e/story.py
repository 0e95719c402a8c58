"""A history written down in the words of a test."""

from typing import Self

from .checker import Broken, Promise, check
from .history import (
    ChannelMade,
    Crashed,
    Delivered,
    Disconnected,
    Event,
    FinishConfirmed,
    FinishSent,
    PublishAcknowledged,
    PublishAttempted,
    RequeueSent,
    Restarted,
    Stopped,
    StoredAtEnd,
)

MS = 1_000_000
TIMEOUT_NS = 1000 * MS


def id_of(number: int) -> bytes:
    return b"%016x" % (0x18A2_0000_0000_0000 + number)


class Story:
    """Events written down in the words of a test. Each one comes a millisecond after the last."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.now_ns = 10_000 * MS
        self._publishes = 0
        self.made("ch")

    def add(self, event: Event) -> Self:
        self.events.append(event)
        return self.wait(1)

    def wait(self, ms: int) -> Self:
        self.now_ns += ms * MS
        return self

    def made(self, channel: str, gets_backlog: bool = True) -> Self:
        return self.add(ChannelMade(self.now_ns, channel, gets_backlog))

    def attempt(self, *bodies: bytes, publisher: str = "p", delay_ms: int = 0) -> int:
        self._publishes += 1
        due_ns = self.now_ns + delay_ms * MS if delay_ms else 0
        self.add(PublishAttempted(self.now_ns, self._publishes, publisher, bodies, due_ns))
        return self._publishes

    def acknowledged(self, publish: int) -> Self:
        return self.add(PublishAcknowledged(self.now_ns, publish))

    def publish(self, *bodies: bytes, publisher: str = "p", delay_ms: int = 0) -> Self:
        return self.acknowledged(self.attempt(*bodies, publisher=publisher, delay_ms=delay_ms))

    def delivered(
        self,
        number: int,
        body: bytes,
        attempts: int = 1,
        channel: str = "ch",
        consumer: str = "c",
        late_ms: int = 0,
    ) -> Self:
        """`late_ms`: so long the observer had not looked."""
        sent_after_ns = self.now_ns - late_ms * MS
        id, at_ns = id_of(number), self.now_ns
        return self.add(
            Delivered(at_ns, channel, consumer, id, attempts, body, sent_after_ns, TIMEOUT_NS)
        )

    def finish_sent(self, number: int, channel: str = "ch") -> Self:
        return self.add(FinishSent(self.now_ns, channel, id_of(number)))

    def finished(self, number: int, channel: str = "ch") -> Self:
        self.finish_sent(number, channel)
        return self.add(FinishConfirmed(self.now_ns, channel, id_of(number)))

    def requeued(self, number: int, delay_ms: int = 0) -> Self:
        return self.add(RequeueSent(self.now_ns, "ch", id_of(number), delay_ms * MS))

    def disconnected(self, consumer: str = "c") -> Self:
        return self.add(Disconnected(self.now_ns, "ch", consumer))

    def crashed(self) -> Self:
        return self.add(Crashed(self.now_ns)).add(Restarted(self.now_ns))

    def stopped(self) -> Self:
        return self.add(Stopped(self.now_ns)).add(Restarted(self.now_ns))

    def verdict(self, **stored: frozenset[bytes]) -> list[Broken]:
        """What is stored at the end by channel; nothing where it is not said."""
        channels = [event.channel for event in self.events if isinstance(event, ChannelMade)]
        ends = [StoredAtEnd(self.now_ns, c, stored.get(c, frozenset())) for c in channels]
        return check([*self.events, *ends])

    def broken(self, **stored: frozenset[bytes]) -> list[tuple[Promise, bytes]]:
        return [(case.promise, case.body) for case in self.verdict(**stored)]
