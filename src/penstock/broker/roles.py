"""The roles that a replica of several plays with its files, and its place in the record.

| role | frames of a leader | commits wait for it | it believes |
|---|---|---|---|
| Unassigned | a hello makes it one of the next two | – | as its file says |
| Learner | are followed | no | its own mark alone |
| Follower | are followed | yes, as the record lists it | headers, once it is in sync |
| Elected | a hello of a higher epoch ends its office | no publish is taken yet | the same |
| Leading | the same | publishers and consumers are served | the same |
| Stopped | are dropped | – | nothing: it is copied again, as another replica |

A role is an object that is replaced as a whole. A learner that the record begins to list becomes a
follower without being matched again, and goes on with the same `Followed`: it was level.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from penstock.replica.record import Seat

if TYPE_CHECKING:
    from penstock.broker.followed import Followed
    from penstock.broker.office import Office
    from penstock.replica.record import Record


class Served(Protocol):
    """What an office serves publishers and consumers with."""

    @property
    def busy(self) -> bool:
        """A sync thread holds the log's files."""
        ...


class Unassigned:
    """The files are open, and nothing is served."""


class Learner:
    def __init__(self, followed: Followed) -> None:
        self.followed = followed


class Follower:
    def __init__(self, followed: Followed) -> None:
        self.followed = followed


class Elected:
    def __init__(self, office: Office) -> None:
        self.office = office


class Leading:
    def __init__(self, office: Office, served: Served) -> None:
        self.office = office
        self.served = served


class Stopped:
    def __init__(self, reason: str) -> None:
        self.reason = reason


Role = Unassigned | Learner | Follower | Elected | Leading | Stopped


class Place(IntEnum):
    """Of a replica in its partition's record."""

    LEADER = 1
    MEMBER = 2
    OTHER = 3


def place_in(record: Record, seat: Seat) -> Place:
    """`seat`: the replica, on its node, in its process. A leader's seat of another life is an
    office that is over."""
    if record.leader == seat:
        return Place.LEADER
    return Place.MEMBER if record.has(seat.node, seat.replica) else Place.OTHER
