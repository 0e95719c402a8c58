"""The channels' state of one partition, kept in its journal and brought back from it.

An ephemeral channel has the number 0 and is not kept; an ephemeral topic has no `Cursors` at all.

A journal that cannot be written is a trouble that health shows, and no reason to stop delivering:
what it costs is that messages come again after a restart. It is tried again at each chance, with a
snapshot, and health shows it until a sync has succeeded.

Retention removes nothing that the journal on the disk still calls unfinished (`floor_synced`). So
after any stop the log holds all that the journal speaks of, and a log that begins above that has
lost a segment. While the journal cannot be stored that rule is suspended: on a full disk it would
keep the very segments whose removal makes room.

Where there are other replicas, each record goes to them as it was written (`on_record`), and who
must not be answered before they have it waits for its position, `written`
(`penstock.replication.journal`): a channel's start, a seek, an empty, and the start of the log,
which is a record there.
"""

import logging
from collections.abc import Callable, Sequence

from penstock import limits
from penstock.broker.channels.channel import NOT_KEPT
from penstock.broker.context import Context
from penstock.broker.health import Trouble
from penstock.broker.partition.journal import Journal
from penstock.broker.topics.settings import ChannelOrder
from penstock.clock import NEVER_NS
from penstock.errors import StorageError
from penstock.kernel import Tail, Window
from penstock.log.fold import (
    PARTITION,
    ChannelState,
    EntryKind,
    Folded,
    Group,
    clamped,
    cursor_entry,
    searched_entry,
    start_entry,
    state_entries,
)
from penstock.log.partition import PartitionLog

_log = logging.getLogger("penstock.broker")


class Cursors:
    def __init__(
        self, context: Context, topic_name: str, journal: Journal, folded: Folded | None
    ) -> None:
        self._context = context
        self._topic_name = topic_name
        self._windows: dict[int, Window] = {}
        self._searched: dict[int, int] = {}  # by channel, as last written
        self._tail: Tail | None = None
        self._handed_end = -1  # as last written
        self._lost = False  # something could not be written and is to be tried again
        self._failed = False  # health says so: until a sync has succeeded
        self._missing: dict[str, int] = {}  # the lowest unfinished offset that is gone, by name
        self._missing_to: int | None = None  # the warning of it ends once all channels are past it
        self._floor_synced = 0
        self._floor_syncing = 0
        self.on_record: Callable[[bytes], None] | None = None  # for the other replicas
        self.on_written: Callable[[set[int]], None] | None = None  # about channels, by number
        self.on_synced: Callable[[OSError | None], None] | None = None  # a sync has ended
        self._writing_about: set[int] = set()  # channels that the record in hand is about
        self.files = journal.files
        self._journal = journal
        self._folded = folded
        # Of the log, as it was decided for all replicas; 0: it never was.
        self.start_offset = folded.start_offset if folded is not None else 0
        self._must_replace = False
        self._refresh_corrupt()

    # --- bringing back ---

    def handed_end(self, log: PartitionLog, gathers: bool) -> int:
        """Up to where the topic has handed messages over. `gathers`: it keeps those above."""
        folded = self._folded
        if folded is None:
            return log.start_offset
        if gathers and folded.handed_end < log.start_offset:
            self._missing["the topic's own queue"] = folded.handed_end
        self._must_replace |= folded.handed_end > log.written_end
        return max(min(folded.handed_end, log.written_end), log.start_offset)

    def knows(self, number: int) -> bool:
        """Does the journal that was found know this channel?"""
        return self._folded is not None and number in self._folded.channels

    def state(
        self, number: int, name: str, log: PartitionLog, unknown_start: int | None = None
    ) -> ChannelState:
        """The channel's state in the journal. `unknown_start`: where a channel begins that is
        missing in an intact journal; None: on a single node, where that is a loss."""
        known = self._folded.channels.get(number) if self._folded is not None else None
        is_whole = self._folded is not None and not self.files.corrupt
        if known is None and is_whole and unknown_start is not None:
            return ChannelState(unknown_start, unknown_start, (), ())
        if known is None:
            if log.written_end:  # else it is a partition that came after the channel
                text = "%s:%s: its position is unknown; all stored messages are delivered again"
                _log.warning(text, self._topic_name, name)
            return ChannelState(log.start_offset, log.start_offset, (), ())
        unfinished = min([known.low, *(stray.offset for stray in known.strays)])
        if unfinished < log.start_offset:
            self._missing[f"channel {name}"] = unfinished
        state, beyond = clamped(known, log.start_offset, log.written_end)
        self._must_replace |= beyond
        return state

    def begin(self, tail: Tail) -> None:
        """All channels are back. A journal with offsets that the log has lost is replaced before
        those are given to new messages: otherwise they would count as finished before they
        arrive."""
        self._tail = tail
        if self._folded is not None:  # else the first settling writes it down
            self._handed_end = tail.handed_end
        self._folded = None
        if not self._context.killed:  # else it may be in the system's memory only
            self._floor_synced = self._floor()
        if not self._must_replace:
            return
        try:
            record = self._journal.begin(self._snapshot)
            self.files.sync()
        except OSError as error:
            raise StorageError(
                self._topic_name, f"the channel journal cannot be replaced: {error}"
            ) from error
        self._replicate(record)

    # --- keeping ---

    def add(self, number: int, window: Window, start_offset: int) -> None:
        """A new channel. After an interrupted creation its number may occur in an older record, so
        the first entry tells to forget it."""
        self._windows[number] = window
        window.take_journal()
        self.append([Group(number, cursor_entry(EntryKind.RESET, start_offset, start_offset))])

    def adopt(self, number: int, window: Window) -> None:
        """A channel that is in the journal already."""
        self._windows[number] = window

    def drop(self, number: int) -> None:
        self._windows.pop(number, None)
        self._searched.pop(number, None)

    def append(self, groups: Sequence[Group]) -> None:
        handed_end = self._tail.handed_end if self._tail is not None else 0
        if self.on_written is not None:
            self._writing_about.update(group.number for group in groups)
        try:
            record = self._journal.append(handed_end, groups, self._snapshot)
        except OSError as error:
            self._report(error)
        else:
            self._handed_end = handed_end
            self._lost = False
            if self.on_record is not None:
                self.on_record(record)
        if self._writing_about:
            self._note_written()

    def begin_generation(self) -> None:
        """A replica needs a snapshot: it has missed some records, or all."""
        try:
            record = self._journal.begin(self._snapshot)
        except OSError as error:
            self._report(error)
        else:
            self._lost = False
            self._replicate(record)
        self._note_written()

    def _note_written(self) -> None:
        channels, self._writing_about = self._writing_about, set()
        if self.on_written is not None and channels:
            self.on_written(channels)

    def _replicate(self, record: bytes) -> None:
        if self.on_record is not None:
            self.on_record(record)

    def decide_start(self, offset: int) -> None:
        """For a leader with other replicas: everything below `offset` may be removed once this
        record is held."""
        if offset > self.start_offset:
            self.start_offset = offset
            self.append([Group(PARTITION, start_entry(offset))])

    @property
    def is_behind(self) -> bool:
        """A write failed: the next record has to be complete."""
        return self._lost or self.files.broken

    def append_changes(self, searched: bool = False) -> None:
        """Append the changes of windows outside of a turn. `searched` includes the progress of the
        search for delayed messages, where a start continues; that is not urgent."""
        groups: list[Group] = []
        for number, window in self._windows.items():
            entries = window.take_journal() if window.journal_dirty else b""
            if searched and self._searched.get(number) != window.searched:
                entries += self._note_searched(number, window)
            if entries:
                groups.append(Group(number, entries))
        if groups or (self._tail is not None and self._tail.handed_end != self._handed_end):
            self.append(groups)

    def _note_searched(self, number: int, window: Window) -> bytes:
        self._searched[number] = window.searched
        return searched_entry(window.searched)

    def _append_rest(self) -> None:
        """Changes that were not reported, or whose write failed."""
        if self.is_behind:
            self.append([])  # begins a generation, with all that there is to say
        else:
            self.append_changes(searched=True)

    def _snapshot(self) -> tuple[int, list[Group]]:
        groups: list[Group] = []
        if self.start_offset:
            groups.append(Group(PARTITION, start_entry(self.start_offset)))
        if self._folded is not None:  # the channels are not back: as it was found
            found = self._folded.channels.items()
            groups += [Group(number, state_entries(state)) for number, state in found]
            return self._folded.handed_end, groups
        for number, window in self._windows.items():
            window.take_journal()  # the snapshot says all of it
            self._writing_about.add(number)
            entries = window.snapshot() + self._note_searched(number, window)
            groups.append(Group(number, entries))
        return (self._tail.handed_end if self._tail is not None else 0), groups

    def report_missing(self, start_offset: int) -> None:
        """All channels are back. What is unfinished below the start of the log is gone."""
        if not self._missing:
            return
        lowest = min(self._missing.values())
        names = ", ".join(sorted(self._missing))
        self._context.health.report(
            self._topic_name,
            Trouble.MISSING,
            f"offsets {lowest} to {start_offset - 1} are missing: the log begins at offset "
            f"{start_offset}, and not finished below it were: {names}",
        )
        self._missing.clear()
        self._missing_to = start_offset

    def _refresh_corrupt(self) -> None:
        reason = self.files.corrupt
        self._context.health.show(self._topic_name, Trouble.JOURNAL_CORRUPT, reason)

    def _report(self, error: OSError) -> None:
        self._lost = self._failed = True
        reason = f"the state of the channels cannot be stored: {error}"
        self._context.health.report(self._topic_name, Trouble.JOURNAL, reason)

    # --- housekeeping ---

    def settle(self, sync: bool) -> bool:
        """True when nothing is left."""
        self._append_rest()
        if self._missing_to is not None and self._floor() > self._missing_to:
            self._missing_to = None
            self._context.health.clear(self._topic_name, Trouble.MISSING)
        if sync:
            self.sync()
        return not self._lost and not self.files.busy and not self.files.unsynced

    def sync(self) -> None:
        """Sync as soon as a thread is free; a running sync comes first."""
        self._context.syncs.when_free(self._sync)

    def _sync(self) -> None:
        try:
            is_begun = self._context.syncs.sync(self.files, self._synced)
        except OSError as error:
            self._report(error)
            return
        if is_begun:
            self._floor_syncing = self._floor()
        elif not (self._lost or self.files.busy or self.files.unsynced):
            self._note_synced(self._floor())

    @property
    def floor_synced(self) -> int:
        """Retention must keep the log from this offset on."""
        return self._floor() if self._failed else self._floor_synced

    def _floor(self) -> int:
        """The lowest offset that the contents of the journal need."""
        handed_end = self._tail.handed_end if self._tail is not None else 0
        return min([handed_end, *(window.floor for window in self._windows.values())])

    def _note_synced(self, floor: int) -> None:
        self._floor_synced = floor
        if self._failed and not self._lost:
            self._failed = False
            self._context.health.clear(self._topic_name, Trouble.JOURNAL)
        self._refresh_corrupt()

    def _synced(self, error: OSError | None) -> None:
        if error is not None:
            self._report(error)
        elif not self.files.broken:
            self._note_synced(self._floor_syncing)
        if self.on_synced is not None:
            self.on_synced(error)

    def close(self) -> None:
        """Write and sync everything. A failure is reported to health, as no client waits."""
        self._wait()
        self._append_rest()
        try:
            self.files.sync()
        except OSError as error:
            self._report(error)
        self._journal.close()

    def _wait(self) -> None:
        self._context.syncs.forget(self._sync)
        self._context.syncs.wait_for(lambda: self.files.busy)

    def discard(self) -> None:
        """Others continue the files, or nobody does: they notice whether the disk takes writes."""
        self._wait()
        self._journal.close()
        if self._failed:
            self._context.health.clear(self._topic_name, Trouble.JOURNAL)

    def validate(self) -> None:
        self.files.validate()
        for window in self._windows.values():
            window.validate()


class ChannelRecords:
    """The changes of channels in a turn, on their way to the journals: one record a partition.

    One that other nodes get costs as much as an append, so it tells of all that JOURNAL_GATHER_NS
    bring. But in strict order the next message waits for it.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._gathered: dict[Window, None] = {}
        self.due_ns = NEVER_NS  # when they are written though nothing more has changed

    def write(self, windows: list[Window]) -> None:
        records: dict[Cursors, list[Group]] = {}
        mono_ns = self._context.clock.mono_ns()
        for window in windows:
            cursors = window.tail.owner.cursors
            is_strict = window.owner.settings.order == ChannelOrder.STRICT
            if cursors is None or cursors.on_record is None or is_strict:
                self._add(records, window)
            else:
                self._gathered[window] = None
                self.due_ns = min(self.due_ns, mono_ns + limits.JOURNAL_GATHER_NS)
        if mono_ns >= self.due_ns:
            gathered, self._gathered, self.due_ns = self._gathered, {}, NEVER_NS
            for window in gathered:
                if window.owner.has(window):
                    self._add(records, window)
        for cursors, groups in records.items():
            cursors.append(groups)

    def _add(self, records: dict[Cursors, list[Group]], window: Window) -> None:
        channel, entries = window.owner, window.take_journal()
        cursors = window.tail.owner.cursors
        if entries and channel.number != NOT_KEPT and cursors is not None:
            records.setdefault(cursors, []).append(Group(channel.number, entries))
            self._context.touched[channel.topic] = None
