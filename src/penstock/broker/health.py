"""Troubles by topic and kind: the text behind /ping and the stats.

Most trouble means that something cannot be done now, and /ping is not OK while it lasts. A warning
is about what was stored before: readers miss it, publishing and delivering go on, and so a load
balancer that asks /ping must not take the node out.
"""

import logging
from enum import IntEnum, unique

from penstock import limits

_log = logging.getLogger("penstock.broker")


@unique
class Trouble(IntEnum):
    """Kinds of trouble. STOPPED, DAMAGED, LEFTOVERS and SET_ASIDE stay until a restart, those of a
    replica until its cluster has moved it or made it anew; the others end with the next success,
    CORRUPT when retention has removed the corrupt batches, MISSING when every channel is past
    them, JOURNAL_CORRUPT when the file was begun again."""

    WRITE = 1  # the last write was not done
    JOURNAL = 2  # channel state could not be stored
    STOPPED = 3  # a failed fsync: the partition takes no more
    DAMAGED = 4  # the end of a log is corrupt: the partition takes no more
    DISK_LOW = 5  # free disk is below the watermark
    CLEANUP = 6  # files that should be gone could not be removed
    DEAD_LETTERS = 8  # messages wait because their dead-letter topic takes none
    COMMIT = 9  # a commit that is decided cannot be finished
    TRACE = 10  # trace events are dropped
    READ = 7  # a channel waits for messages that cannot be read just now
    TOPIC_FILE = 16  # a topic.json could not be written: changes of settings and channels
    PRODUCERS = 17  # the table of idempotent producers could not be written
    STAGE_WRITE = 18  # a stage could not be written
    STAGE_REMOVAL = 19  # unused stages could not be removed
    CORRUPT = 11  # stored messages are corrupt: readers skip them
    MISSING = 12  # messages that a channel had not finished are gone from the log's beginning
    JOURNAL_CORRUPT = 13  # a part of a channel journal is corrupt
    MARK = 14  # the mark could not be written
    CLOCK = 15  # ids and timestamps are ahead of the clock
    CLOCK_LEAP = 25  # at the start the clock was far ahead of all that is stored
    CLOCK_STEP = 32  # the clock has gone far ahead while nsqd runs
    CLOCK_DIFFERS = 34  # most of the cluster's clocks say another time
    CLUSTER = 33  # the node cannot do its part in the cluster
    CREATION = 21  # a topic could not be made
    DELETION = 22  # files of a deleted topic could not be removed
    COMMIT_RECORD = 23  # the record of a commit could not be written
    STAGE_READ = 24  # a stage could not be read
    HELD = 26  # a channel holds messages that have used their attempts, as it is set to
    LEFTOVERS = 27  # the start found files that should be gone and could not remove them
    INDEX = 28  # an index of a log could not be written
    SYNC = 31  # a sync that lost nothing failed and is tried again: publishes wait
    LEDGER = 29  # what this node promises could not be made durable
    CONCEDED = 30  # no replica has some stored messages: readers skip them
    SET_ASIDE = 20  # a topic could not be opened; it is as it was until the next start


WARNINGS = frozenset((
    Trouble.CORRUPT, Trouble.CONCEDED, Trouble.MISSING, Trouble.JOURNAL_CORRUPT, Trouble.CLOCK,
    Trouble.CLOCK_LEAP, Trouble.CLOCK_STEP, Trouble.CLOCK_DIFFERS, Trouble.HELD, Trouble.LEFTOVERS,
    Trouble.INDEX,
))  # fmt: skip


class Health:
    def __init__(self) -> None:
        self._reasons: dict[tuple[str, Trouble], str] = {}

    def report(self, topic: str, trouble: Trouble, reason: str) -> None:
        if self._reasons.get((topic, trouble)) != reason:
            _log.error("%s: %s", topic or "data path", reason)
        self._reasons[topic, trouble] = reason

    def clear(self, topic: str, trouble: Trouble) -> None:
        if self._reasons.pop((topic, trouble), None) is not None:
            _log.info("%s: %s trouble is over", topic or "data path", trouble.name.lower())

    def show(self, topic: str, trouble: Trouble, reason: str) -> None:
        if reason:
            self.report(topic, trouble, reason)
        else:
            self.clear(topic, trouble)

    def forget(self, topic: str) -> None:
        for key in [key for key in self._reasons if key[0] == topic]:
            del self._reasons[key]

    def reason(self, topic: str, trouble: Trouble) -> str:
        return self._reasons.get((topic, trouble), "")

    @property
    def failing(self) -> bool:
        """Is there more than warnings?"""
        return any(trouble not in WARNINGS for _, trouble in self._reasons)

    @property
    def text(self) -> str:
        """As in NSQ: "OK", or "NOK - " and the troubles, warnings last. "OK - warning: " with
        warnings only."""
        if not self._reasons:
            return "OK"
        named = sorted(self._reasons.items(), key=lambda item: item[0][1] in WARNINGS)
        shown = [
            f"topic {topic}: {reason}" if topic else reason
            for (topic, _), reason in named[: limits.PING_REASONS_MAX]
        ]
        left = len(named) - len(shown)
        listed = "; ".join(shown) + (f"; and {left} more" if left else "")
        return f"NOK - {listed}" if self.failing else f"OK - warning: {listed}"
