"""How many unfinished messages a topic may hold, exactly.

The depth that is bounded is that of the channel which has most to do (not delivered, in flight,
requeued or delayed), with what the topic has not handed over yet and what is still being stored. A
channel that drops what is too much for it, being ephemeral, holds nobody up.

PUB and MPUB are counted by the kernel: `append_end_max` of the tail is the offset that no publish
may go beyond. It is worked out from a count of the depth. After that count the depth grows by
appends alone, and each of them moves the end of the tail just as far, so the bound stays right
without being looked at: no publish is let in that is too many, and one that is refused has the
count made anew, so room that consumers made is used at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.errors import Refused

if TYPE_CHECKING:
    from penstock.broker.topic import Topic

UNBOUNDED = 1 << 62
_OFFSET_MAX = (1 << 63) - 1  # the kernel's offsets are signed


class DepthBound:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.messages_max = 0  # 0: no bound

    def set(self, messages_max: int) -> None:
        self.messages_max = messages_max
        self.renew()

    def renew(self, asked: Mapping[int, int] | None = None) -> int:
        """Count anew, and tell the kernel. Returns how many messages there is room for. Where it is
        enough for those that were asked for, by partition, these come first."""
        tails = self._topic.tails
        if not self.messages_max:
            for tail in tails:
                tail.append_end_max = 0
            return UNBOUNDED
        room = max(self.messages_max - self.depth, 0)
        if not tails:
            return room
        first = asked if asked and sum(asked.values()) <= room else {}
        # so that all together take no more than the room
        share, rest = divmod(room - sum(first.values()), len(tails))
        for place, tail in enumerate(tails):
            end = tail.written_end + tail.open_count + share + (place < rest)
            tail.append_end_max = min(end + first.get(tail.partition, 0), _OFFSET_MAX)
        return room

    @property
    def depth(self) -> int:
        topic = self._topic
        if topic.ephemeral and not topic.channels:
            return 0  # its queue drops what is too much
        deepest = 0
        for channel in topic.channels.values():
            if not channel.ephemeral:
                deepest = max(deepest, channel.unfinished)
        for leader in topic.leaders:
            deepest += leader.group.uncommitted
            deepest += leader.tail.committed_end - leader.tail.handed_end
        return deepest

    def reason(self, count: int, asked: Mapping[int, int] | None = None) -> str:
        """Why so many messages are not taken; empty when they are, `asked` being how many each
        partition is to take."""
        if not self.messages_max:
            return ""
        room = self.renew(asked)
        if count <= room:
            return ""
        reason = f"topic depth limit of {self.messages_max} messages is reached"
        return f"{reason}: {count} are more than the {room} left" if room else reason

    def check(self, count: int) -> None:
        """Raise Refused when so many messages are not taken."""
        reason = self.reason(count)
        if reason:
            raise Refused(reason)
