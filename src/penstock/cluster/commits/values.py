"""What the parties of a commit name."""

from __future__ import annotations

from typing import NamedTuple


class Share(NamedTuple):
    """The partitions of one topic, in one of its lives."""

    topic: str
    identity: int
    numbers: tuple[int, ...]


class Part(NamedTuple):
    """One partition's messages of a commit."""

    topic: str
    identity: int
    number: int


class Prepare(NamedTuple):
    """What stands under a prepare key: a commit that may still be decided."""

    app: str
    version: int
    opened_ns: int  # on the clock of whoever opened it: such keys are removed when they are old
    shares: tuple[Share, ...]


class Decision(NamedTuple):
    """The newest commit of an app. Its place among all is the revision in which it was decided."""

    app: str
    version: int
    transaction: int  # random
    shares: tuple[Share, ...]
    closed: bool  # all parts are done, or their topic's life is over


class Pin(NamedTuple):
    """A leader's promise to store these stages, should the transaction be decided."""

    transaction: int
    stages: tuple[str, ...]
    messages: int
    end: int  # of the log, when it was promised: no message of the part is below
    revision: int  # in which the prepare key began


def parts_of(shares: tuple[Share, ...]) -> tuple[Part, ...]:
    return tuple(
        Part(share.topic, share.identity, number) for share in shares for number in share.numbers
    )
