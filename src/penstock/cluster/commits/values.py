"""What the parties of a commit name."""

from __future__ import annotations

from typing import NamedTuple

from penstock import limits
from penstock.cluster.jsonform import FLAG, Form, hexadecimal, integer, list_of, parts, text


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


# --- their documents, as JSON ---

_RANDOM = hexadecimal(16)
_U63 = integer(0, (1 << 63) - 1)
_NUMBERS = list_of(integer(0, limits.PARTITIONS_MAX - 1), limits.PARTITIONS_MAX)
_SHARE = parts(
    Share,
    ("topic", text(limits.NAME_BYTES_MAX)),
    ("identity", _RANDOM),
    ("numbers", _NUMBERS),
)
_APP = ("app", text(limits.STAGE_NAME_CHARS_MAX))
_SHARES = ("shares", list_of(_SHARE, limits.COMMIT_TOPICS_MAX))

PREPARE = Form(Prepare, 1, (_APP, ("version", _U63), ("opened_ns", _U63), _SHARES))
DECISION = Form(
    Decision,
    1,
    (_APP, ("version", _U63), ("transaction", _RANDOM), _SHARES, ("closed", FLAG)),
)
