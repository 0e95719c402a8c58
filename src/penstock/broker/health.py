"""What is wrong, by place and kind: the text behind /ping and the stats."""

from __future__ import annotations

import logging
from enum import IntEnum

_log = logging.getLogger("penstock.broker")


class Trouble(IntEnum):
    """Kinds of trouble. STOPPED and DAMAGED stay; the others go away with
    the next success."""

    WRITE = 1  # the last write was not done
    JOURNAL = 2  # channel state could not be stored
    STOPPED = 3  # a failed fsync: the partition takes no more
    DAMAGED = 4  # acknowledged data is hurt
    DISK_LOW = 5  # free disk is below the watermark
    CLEANUP = 6  # files that should be gone could not be removed
    DEAD_LETTERS = 8  # messages wait because their dead-letter topic takes none
    COMMIT = 9  # a commit that is decided cannot be finished
    TRACE = 10  # trace events are dropped
    READ = 7  # a channel waits for messages that cannot be read just now


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

    def forget(self, topic: str) -> None:
        """The topic is gone, and its troubles with it."""
        for key in [key for key in self._reasons if key[0] == topic]:
            del self._reasons[key]

    def reason(self, topic: str, trouble: Trouble) -> str:
        return self._reasons.get((topic, trouble), "")

    @property
    def troubled(self) -> bool:
        return bool(self._reasons)

    @property
    def text(self) -> str:
        """NSQ's words: "OK", or "NOK - " and the reason that came first."""
        for reason in self._reasons.values():
            return f"NOK - {reason}"
        return "OK"
