"""Delayed messages that were only in the log when they were handed to a channel: after a start, of
a topic that was paused or had no channel, and those of a commit of stages.

They are deferred like all others. So the log is searched for them, by the headers of its batches
(`log/reader.py`), and the kernel makes strays of what is found. A slice is a few milliseconds of
work. Until it is found, a delayed message counts as depth, and nothing else is different: the
cursor would meet it in its place. How far a search came is in the channel journal, so a start does
not begin it again.

Of a channel that has more delayed messages than limits.PARKED_MAX the others are counted, and are
looked at again when some of them are due or there is room.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock import limits
from penstock.errors import StorageError
from penstock.kernel import id_at
from penstock.log.reader import Trailers

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.partition.leader import Leader
    from penstock.kernel import Window

_ID_MAX = (1 << 64) - 1

_log = logging.getLogger("penstock.broker")


class DelaySearch:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._leaders: dict[Leader, None] = {}  # whose logs are to be searched
        self._unreadable: dict[Leader, str] = {}  # tried again once a second
        self._counted: dict[Window, None] = {}  # they have delayed messages that only count
        self._again_ns = 0

    def housekeeping(self, mono_ns: int, wall_ns: int) -> None:
        if self._counted and mono_ns >= self._again_ns:
            self._again_ns = mono_ns + limits.SEARCH_AGAIN_NS
            self._recount(wall_ns)
        self._leaders.update(dict.fromkeys(self._unreadable))
        for window in self._context.engine.take_searches():
            topic, number = window.owner.topic, window.tail.partition
            if topic.leads(number):  # not by the tail: that may be an outbox's already
                self._leaders[topic.leader(number)] = None

    def _recount(self, wall_ns: int) -> None:
        for window in list(self._counted):
            channel = window.owner
            if channel.deleted or not channel.has(window) or not window.unparked:
                del self._counted[window]
            else:
                window.recount(wall_ns)

    def slice(self) -> bool:
        """A piece of the search, between turns. False when nothing is left to do."""
        if not self._leaders:
            return False
        leader = next(iter(self._leaders))
        del self._leaders[leader]
        channels = leader.topic.channels.values()
        found = (channel.windows.get(leader.number) for channel in channels)
        # Of another leader are those of a leadership that began since.
        windows = [one for one in found if one is not None and one.tail is leader.tail]
        windows = [window for window in windows if window.search_start < window.search_end]
        if leader.topic.deleted or not windows:
            self._unreadable.pop(leader, None)
        elif self._search(leader, min(windows, key=lambda window: window.search_start), windows):
            self._leaders[leader] = None  # behind the others
        return bool(self._leaders)

    def _search(self, leader: Leader, first: Window, windows: list[Window]) -> bool:
        """One read serves all channels at that position. False when it failed."""
        log = leader.log
        start = max(first.search_start, log.start_offset)
        found = Trailers([], start)
        leader.topic.touch()
        try:
            if start < first.search_end:
                found = log.trailers(start, first.search_end)
        except StorageError as error:
            end = leader.passable(error, start)
            if end == start:  # another replica may have what is corrupt
                self._report(leader, error.reason)
                return False
            found = Trailers([], end)
        self._unreadable.pop(leader, None)
        leader.topic.set_time()
        ids_from = _lowest_id(leader, windows) if found.blocks else 0
        for window in windows:
            if window.search_start < max(found.next_offset, start):
                self._context.engine.search(window, found.blocks, found.next_offset, ids_from)
                if window.unparked:
                    self._counted[window] = None
        return True

    def _report(self, leader: Leader, reason: str) -> None:
        if self._unreadable.get(leader) != reason:
            _log.warning("%s: cannot look for delayed messages: %s", leader.topic.name, reason)
        self._unreadable[leader] = reason


def _lowest_id(leader: Leader, windows: list[Window]) -> int:
    """The id, by the log's own count, of the first message that no cursor has passed; 0 when it
    cannot be read."""
    log = leader.log
    offset = max(min(window.next for window in windows), log.start_offset)
    if offset >= log.written_end:
        return _ID_MAX
    try:
        header = log.header_of(offset)
    except StorageError:
        return 0
    return id_at(header.base_id, offset - header.base_offset)
