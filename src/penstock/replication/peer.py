"""A replica on another node, as its leader sees it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.replication.record import PartitionRecord

UNMATCHED = -1  # in place of an offset: it is not known yet what this replica has


class Peer:
    """The replica on one node, in one session of the link."""

    def __init__(self, session: int, complete: bool = True) -> None:
        self.session = session
        self.complete = complete  # it has what is kept beside the log
        self.replica = 0
        self.generation = 0
        self.counted = UNMATCHED  # what it has acknowledged, as the topic's durability counts
        self.synced = 0
        self.sent = UNMATCHED
        self.admitted: PartitionRecord | None = None  # in which it is known to be a member
