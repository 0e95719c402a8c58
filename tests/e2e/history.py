"""What happened to one topic, as its clients saw it: the events that a checker judges.

A history is a list of events in the order in which one observer learned of them. It is about one
topic with one partition. Bodies are the identity of a message until its id is known, so a test
publishes no body twice. A message id is compared as its 16 hex characters, which sort as the
numbers do.

An outcome is what the publisher was told. `PublishFailed` is a refusal: the daemon said that the
messages were not stored. Where an answer never came, or says that nobody knows (a failed fsync),
the right event is `PublishUnknown`.

Times are nanoseconds of one clock. A delivery has two: it was sent after `sent_after_ns` (the
observer looked then, and it was not there yet), and it had come by `at_ns`.
"""

from typing import NamedTuple


class PublishAttempted(NamedTuple):
    """One PUB, DPUB or MPUB is about to be sent. Those of one publisher go over one connection at a
    time, in this order."""

    at_ns: int
    publish: int  # names this publish in the history
    publisher: str
    bodies: tuple[bytes, ...]
    due_ns: int = 0  # not to be delivered before; 0: at once


class PublishAcknowledged(NamedTuple):
    at_ns: int
    publish: int


class PublishFailed(NamedTuple):
    at_ns: int
    publish: int


class PublishUnknown(NamedTuple):
    at_ns: int
    publish: int


class ChannelMade(NamedTuple):
    """From now on the channel is known to exist. The first one of a topic gets the backlog."""

    at_ns: int
    channel: str
    gets_backlog: bool


class ChannelGone(NamedTuple):
    """Deleted: nothing is owed to it. One that was emptied is gone, and made again."""

    at_ns: int
    channel: str


class Delivered(NamedTuple):
    at_ns: int
    channel: str
    consumer: str
    message_id: bytes
    attempts: int
    body: bytes
    sent_after_ns: int
    timeout_ns: int  # how long the consumer may keep it


class FinishSent(NamedTuple):
    at_ns: int
    channel: str
    message_id: bytes


class FinishConfirmed(NamedTuple):
    """The finish is known to have been processed and journalled; it was not refused."""

    at_ns: int
    channel: str
    message_id: bytes


class RequeueSent(NamedTuple):
    at_ns: int
    channel: str
    message_id: bytes
    delay_ns: int


class SettleRefused(NamedTuple):
    """A finish or a requeue was refused: the message was not in flight with that consumer."""

    at_ns: int
    channel: str
    message_id: bytes


class Disconnected(NamedTuple):
    """The consumer's connection ended; what had been sent to it may never have been seen."""

    at_ns: int
    channel: str
    consumer: str


class Crashed(NamedTuple):
    """The daemon was killed. All connections are gone, unconfirmed finishes may be forgotten."""

    at_ns: int


class Stopped(NamedTuple):
    """The daemon ended in order. All connections are gone, and nothing is forgotten."""

    at_ns: int


class Restarted(NamedTuple):
    at_ns: int


class StoredAtEnd(NamedTuple):
    """What the channel still has to deliver when the history ends."""

    at_ns: int
    channel: str
    bodies: frozenset[bytes]


Event = (
    PublishAttempted
    | PublishAcknowledged
    | PublishFailed
    | PublishUnknown
    | ChannelMade
    | ChannelGone
    | Delivered
    | FinishSent
    | FinishConfirmed
    | RequeueSent
    | SettleRefused
    | Disconnected
    | Crashed
    | Stopped
    | Restarted
    | StoredAtEnd
)
