"""The channels' state of one partition, kept in its journal and brought back from it.

An ephemeral channel has the number 0 and is not kept; an ephemeral topic has no `Cursors` at all.

A journal that cannot be written is a trouble that health shows, and no reason to stop delivering:
what it costs is that messages come again after a restart. It is tried anew at each chance, with a
snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.broker.context import Context
from penstock.broker.fold import ChannelState, Entry, Group, clamped, cursor_entry
from penstock.broker.health import Trouble
from penstock.broker.journal import Journal, JournalSync
from penstock.errors import StorageError
from penstock.kernel import Tail, Window
from penstock.log.partition import PartitionLog

_log = logging.getLogger("penstock.broker")


class Cursors:
    def __init__(self, context: Context, topic_name: str, directory: str) -> None:
        self._context = context
        self._topic_name = topic_name
        self._windows: dict[int, Window] = {}
        self._tail: Tail | None = None
        self._handed_end = -1  # as last written
        self._lost = False  # something could not be written and is to be tried again
        self._job: JournalSync | None = None
        try:
            self._journal, self._folded = Journal.open(
                context.disk, directory, context.options.journal_bytes_max
            )
        except OSError as error:
            raise StorageError(directory, f"the channel journal cannot be read: {error}") from error
        self._must_replace = False

    # --- bringing back ---

    def handed_end(self, log: PartitionLog) -> int:
        """How far the topic had handed its messages to channels."""
        folded = self._folded
        if folded is None:
            return log.start_offset
        self._must_replace |= folded.handed_end > log.written_end
        return max(min(folded.handed_end, log.written_end), log.start_offset)

    def state(self, number: int, name: str, log: PartitionLog) -> ChannelState:
        """What the journal knows about a channel."""
        known = self._folded.channels.get(number) if self._folded is not None else None
        if known is None:
            _log.warning(
                "%s:%s: nothing is known of its position; all that is stored comes again",
                self._topic_name,
                name,
            )
            return ChannelState(log.start_offset, log.start_offset, (), ())
        state, beyond = clamped(known, log.start_offset, log.written_end)
        self._must_replace |= beyond
        return state

    def begin(self, tail: Tail) -> None:
        """All channels are back. A journal that speaks of offsets which the log has lost is
        replaced before they are given to new messages, which would else be done before they
        came."""
        self._tail = tail
        self._handed_end = tail.handed_end
        self._folded = None
        if not self._must_replace:
            return
        try:
            self._journal.begin(self._snapshot)
            self._journal.sync()
        except OSError as error:
            raise StorageError(
                self._topic_name, f"the channel journal cannot be replaced: {error}"
            ) from error

    # --- keeping ---

    def add(self, number: int, window: Window, start_offset: int) -> None:
        """A new channel. Its number may stand in an older record when a creation was interrupted,
        so the first word about it is to forget."""
        self._windows[number] = window
        window.take_journal()
        self.append([Group(number, cursor_entry(Entry.RESET, start_offset, start_offset))])

    def adopt(self, number: int, window: Window) -> None:
        """A channel that is already in the journal."""
        self._windows[number] = window

    def drop(self, number: int) -> None:
        self._windows.pop(number, None)

    def append(self, groups: Sequence[Group]) -> None:
        """One record: what one turn changed."""
        handed_end = self._tail.handed_end if self._tail is not None else 0
        try:
            self._journal.append(handed_end, groups, self._snapshot)
        except OSError as error:
            self._report(error)
            return
        self._handed_end = handed_end
        if self._lost:
            self._lost = False
            self._context.health.clear(self._topic_name, Trouble.JOURNAL)

    def append_changes(self) -> None:
        """What the windows have not yet told, outside of a turn."""
        groups = [
            Group(number, window.take_journal())
            for number, window in self._windows.items()
            if window.journal_dirty
        ]
        if groups or (self._tail is not None and self._tail.handed_end != self._handed_end):
            self.append(groups)

    def _append_rest(self) -> None:
        """What is not yet in the journal: because nobody said it, or because that failed."""
        if self._lost or self._journal.broken:
            self.append([])  # begins a generation, with all that there is to say
        else:
            self.append_changes()

    def _snapshot(self) -> tuple[int, list[Group]]:
        groups: list[Group] = []
        for number, window in self._windows.items():
            window.take_journal()  # the snapshot says all of it
            groups.append(Group(number, window.snapshot()))
        return (self._tail.handed_end if self._tail is not None else 0), groups

    def _report(self, error: OSError) -> None:
        self._lost = True
        reason = f"the state of the channels cannot be stored: {error}"
        self._context.health.report(self._topic_name, Trouble.JOURNAL, reason)

    # --- housekeeping ---

    @property
    def busy(self) -> bool:
        return self._journal.busy

    def settle(self, sync: bool) -> bool:
        """Try again what failed, store a handed end that moved, sync. True when nothing is left."""
        self._append_rest()
        if sync:
            job = self._journal.sync_begin()
            if job is not None:
                self._job = job
                self._context.syncs.submit(job, self._synced)
        return not self._lost and not self.busy and not self._journal.unsynced

    def rest(self) -> None:
        self._journal.rest()

    def _synced(self, error: OSError | None) -> None:
        job, self._job = self._job, None
        if job is None:
            raise RuntimeError(f"{self._topic_name}: a journal sync ended that nobody began")
        self._journal.sync_end(job, error)
        if error is not None:
            self._report(error)

    def close(self) -> None:
        """Write and sync all of it. Trouble goes to health: there is nobody left to tell."""
        self._context.syncs.wait_for(lambda: self.busy)
        self._append_rest()
        try:
            self._journal.sync()
        except OSError as error:
            self._report(error)
        self._journal.close()

    def discard(self) -> None:
        """The topic is being deleted."""
        self._context.syncs.wait_for(lambda: self.busy)
        self._journal.close()

    def validate(self) -> None:
        self._journal.validate()
        for window in self._windows.values():
            window.validate()
