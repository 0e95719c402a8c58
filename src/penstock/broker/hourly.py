"""How many bytes were published to each topic in each of the last 24 hours, since the start.

The tails count what was published; once an hour the counts are taken down. Hours are those of the
clock, in UTC; the present one is what came since it began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

from penstock import limits

if TYPE_CHECKING:
    from penstock.broker.topic import Topic

HOURS = 24
_HOUR_NS = 3600 * limits.SECOND


class Hourly:
    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        self._hour = 0
        self._totals: dict[str, dict[int, deque[int]]] = {}  # at the ends of hours; by partition

    def begin(self, wall_ns: int) -> None:
        """All topics are back; what was published to them before is not counted."""
        self._hour = wall_ns // _HOUR_NS
        for name, topic in self._topics.items():
            self._totals[name] = {
                leader.number: deque([leader.tail.message_bytes], HOURS) for leader in topic.leaders
            }

    def housekeeping(self, wall_ns: int) -> None:
        hour = wall_ns // _HOUR_NS
        passed = min(max(hour - self._hour, 0), HOURS)
        self._hour = hour
        if not passed:
            return
        self._totals = {name: self._totals.get(name, {}) for name in self._topics}
        for name, topic in self._topics.items():
            for leader in topic.leaders:
                totals = self._totals[name].setdefault(leader.number, deque([0], HOURS))
                totals.extend([leader.tail.message_bytes] * passed)

    def of(self, topic: Topic, partition: int) -> list[int]:
        """The present hour last."""
        total = topic.leader(partition).tail.message_bytes
        known = self._totals.get(topic.name, {}).get(partition, ())
        before = [one for one in known if one <= total] or [0]  # more: the topic was made again
        counts = [after - start for start, after in pairwise([*before, total])]
        return ([0] * HOURS + counts)[-HOURS:]
