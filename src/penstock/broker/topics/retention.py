"""Retention: removes messages that all channels have finished, and those above their maximum age.

**Age** counts from the time at which a message was stored here, which is the time of its batch;
times rise along a log, so what is too old lies below one offset, and that offset only rises.
Channels step over what lies below it, requeued and delayed messages included. What is in flight may
still be finished; when it comes back, it is dropped. All of that is in the channel journal, so what
was dropped does not return.

A message that would be due only after its end is refused rather than taken and dropped.

Looking up a time in the log costs a few reads, so each look also finds out when the next message is
due; until then a topic costs one comparison.

While the log's timestamps lie in the future, because the clock was ahead when they were written,
they say nothing, and the time at which an offset was first seen counts (`AgeMarks`).

How old messages are at least, where their own timestamps cannot say.

After the clock was ahead and was set back, a log's timestamps lie in the future, and new ones
repeat the last of them until the clock has caught up: for a year after a clock that was a year
ahead. By them nothing would get too old. So it is noted when an offset was first seen below the
log's end: what lies below it has been there since then, at least.

The marks are kept in topic.json, so that a restart does not begin to count again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from penstock import limits
from penstock.durations import format_duration
from penstock.errors import Refused, StorageError

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.partition.leader import Leader
    from penstock.broker.topics.topic import Topic
    from penstock.log.partition import PartitionLog


RETAIN_MIN = 64  # partitions that are looked at in a round: all of a small node,
RETAIN_ROUNDS = 30  # or a thirtieth of a large one, so that none waits longer than half a minute


class RetentionTurns:
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
    """Drop messages that are too old. Topics without time left come first in the next round."""
    looks = limits.AGE_LOOKS_MAX
    for topic in list(context.aging):
        if topic.age_bound.apply(wall_ns):
            context.aging[topic] = context.aging.pop(topic)
            context.touched[topic] = None  # it lets go of the files that this opened
            looks -= 1
            if not looks:
                return


_log = logging.getLogger("penstock.broker")


def is_log_ahead(log: PartitionLog, wall_ns: int) -> bool:
    """Do its timestamps tell no ages?"""
    return log.last_timestamp_ns > wall_ns + limits.CLOCK_BEHIND_NS


class AgeBound:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.age_max_ns = 0  # 0: no bound
        self.expired_count = 0  # messages of the topic's own queue
        self._due_ns = 0  # nothing gets too old before that
        self._unreadable = ""  # what is wrong with the log

    def set(self, age_max_ns: int) -> None:
        self.age_max_ns = age_max_ns
        self._due_ns = 0

    def check(self, delay_ns: int) -> None:
        """Raise Refused for a delay that outlasts its message."""
        if 0 < self.age_max_ns <= delay_ns:
            raise Refused(
                f"a delay of {format_duration(delay_ns)} is not below the topic's "
                f"maximum age of {format_duration(self.age_max_ns)}"
            )

    def apply(self, wall_ns: int) -> bool:
        """Drop everything that is too old at this time. Returns whether that read the log."""
        if not self.age_max_ns:
            return False
        if self._due_ns - self.age_max_ns <= wall_ns < self._due_ns:  # else the clock went back
            return False
        due_ns = wall_ns + self.age_max_ns  # of what is stored from now on
        try:
            self._due_ns = min([due_ns, *(self._drop(one, wall_ns) for one in self._topic.leaders)])
        except StorageError as error:
            self._report(error.reason)  # tried again the next time
        else:
            self._report("")
        return True

    def _drop(self, leader: Leader, wall_ns: int) -> int:
        """In one partition. Returns when the next message expires."""
        topic, tail, log = self._topic, leader.tail, leader.log
        if not leader.acts:
            return wall_ns + limits.SECOND
        due_ns = wall_ns + self.age_max_ns
        is_ahead = is_log_ahead(log, wall_ns)
        if leader.floor < tail.committed_end:
            end = min(log.find_time(wall_ns - self.age_max_ns), tail.committed_end)
            if is_ahead:
                end = max(end, leader.age_marks.old_end(wall_ns, self.age_max_ns))
            self._drop_below(leader, end)
            if end < tail.committed_end:
                due_ns = log.written_ns(end) + self.age_max_ns
        if is_ahead:
            if leader.age_marks.note(tail.committed_end, wall_ns, self.age_max_ns):
                topic.note_marks(wall_ns)
            due_ns = min(due_ns, wall_ns + max(self.age_max_ns // limits.AGE_MARKS, limits.SECOND))
        else:
            leader.age_marks.clear()
        return due_ns

    def _drop_below(self, leader: Leader, end: int) -> None:
        topic, tail = self._topic, leader.tail
        for channel in topic.channels.values():
            channel.windows[leader.number].outdate(end)
        if tail.handed_end < end:
            self.expired_count += end - tail.handed_end
            tail.begin_at(end)
            topic.store_cursors()

    def _report(self, reason: str) -> None:
        if reason and reason != self._unreadable:
            name = self._topic.name
            _log.warning("%s: cannot determine which messages are too old: %s", name, reason)
        self._unreadable = reason


Mark = tuple[int, int]  # offset, and when it was seen


class AgeMarks:
    def __init__(self, marks: Iterable[Mark] = ()) -> None:
        self.marks = [(offset, seen_ns) for offset, seen_ns in marks]

    def __bool__(self) -> bool:
        return bool(self.marks)

    def clear(self) -> None:
        self.marks.clear()

    def note(self, end: int, now_ns: int, age_max_ns: int) -> bool:
        """The log ends at `end`. True when that adds a mark; they are a part of the maximum age
        apart, so expiry may be late by as much."""
        # A mark from a clock that was ahead, too, is as old as can be said now: not at all.
        self.marks = [(offset, min(seen_ns, now_ns)) for offset, seen_ns in self.marks]
        if self.marks:
            offset, seen_ns = self.marks[-1]
            if end <= offset or now_ns - seen_ns < age_max_ns // limits.AGE_MARKS:
                return False
        self.marks.append((end, now_ns))
        return True

    def old_end(self, now_ns: int, age_max_ns: int) -> int:
        """Messages below it are too old. Marks that add nothing to the next one are forgotten."""
        while len(self.marks) > 1 and self.marks[1][1] + age_max_ns <= now_ns:
            self.marks.pop(0)
        if self.marks and self.marks[0][1] + age_max_ns <= now_ns:
            return self.marks[0][0]
        return 0
