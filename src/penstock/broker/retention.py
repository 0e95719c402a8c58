"""Which topics drop what is finished or too old, in one round of housekeeping."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock import limits

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.topic import Topic

RETAIN_MIN = 64  # partitions that are looked at in a round: all of a small node,
RETAIN_ROUNDS = 30  # or a thirtieth of a large one, so that none waits longer than half a minute


class RetentionTurns:
    """Takes turns over all topics."""

    def __init__(self, topics: Mapping[str, Topic]) -> None:
        self._topics = topics
        self._waiting: list[Topic] = []

    def housekeeping(self, wall_ns: int) -> None:
        if not self._waiting:
            self._waiting = list(self._topics.values())
        partitions = sum(topic.partition_count for topic in self._topics.values())
        left = max(RETAIN_MIN, partitions // RETAIN_ROUNDS)
        while self._waiting and left > 0:
            topic = self._waiting.pop()
            if self._topics.get(topic.name) is topic:
                left -= topic.partition_count
                topic.retain(wall_ns)


def drop_aged(context: Context, wall_ns: int) -> None:
    """What is too old. Topics for which there is no time left come first in the next round."""
    looks = limits.AGE_LOOKS_MAX
    for topic in list(context.aging):
        if topic.age_bound.apply(wall_ns):
            context.aging[topic] = context.aging.pop(topic)
            context.touched[topic] = None  # it lets go of the files that this opened
            looks -= 1
            if not looks:
                return
