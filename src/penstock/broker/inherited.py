"""The channel journal of a replica that was elected and cannot serve yet.

An office serves when all that its log had before is committed. Where the set has shrunk to its
minimum and one of its members is lost for good, only a learner can help with that, and a learner
becomes a member only with the journal. So an elected replica that has waited for a while begins a
generation with what it has inherited, and feeds it to learners as a leader does.

What it says is what it would say first if it served: nothing of it is newer than what the set has.
The generation that it begins when it serves is the next one of the same epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.health import Trouble
from penstock.broker.journal import Journal
from penstock.log.fold import PARTITION, Group, Position, partition_entries, state_entries

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.log.followedjournal import FollowedJournal
    from penstock.log.journalfile import JournalSync


class InheritedCursors:
    """As much of `Cursors` as `LedChannels` asks for."""

    def __init__(self, journal: FollowedJournal, epoch: int, context: Context, label: str) -> None:
        self.on_record: Callable[[bytes], None] | None = None
        self.on_synced: Callable[[OSError | None], None] | None = None
        self.on_said: Callable[[set[int]], None] | None = None  # nothing new is said here
        self._folding = journal.folding
        self._journal = Journal(
            journal.files, context.options.journal_bytes_max, epoch, journal.folding.handed_end
        )
        self._context = context
        self._label = label
        self._job: JournalSync | None = None

    @property
    def written(self) -> Position:
        return self._journal.written

    @property
    def synced(self) -> Position:
        return self._journal.synced

    @property
    def start_offset(self) -> int:
        return self._folding.start_offset

    @property
    def is_behind(self) -> bool:
        return self._journal.broken

    @property
    def busy(self) -> bool:
        """A sync thread holds the file."""
        return self._job is not None

    def begin_generation(self) -> None:
        try:
            record = self._journal.begin(self._snapshot)
        except OSError as error:
            self._report(error)
        else:
            self._context.health.clear(self._label, Trouble.JOURNAL)
            if self.on_record is not None:
                self.on_record(record)

    def _snapshot(self) -> tuple[int, list[Group]]:
        folding = self._folding
        groups = [Group(number, state_entries(one)) for number, one in folding.channels().items()]
        entries = partition_entries(folding.start_offset, folding.stages.items())
        if entries:
            groups.insert(0, Group(PARTITION, entries))
        return folding.handed_end, groups

    def sync(self) -> None:
        try:
            job = self._journal.sync_begin()
        except OSError as error:
            self._report(error)
            return
        if job is not None:
            self._job = job
            self._context.syncs.submit(job, self._synced, awaited=True)

    def _synced(self, error: OSError | None) -> None:
        job, self._job = self._job, None
        if job is None:
            raise RuntimeError(f"{self._label}: a sync ended that was never begun")
        self._journal.sync_end(job, error)
        if self.on_synced is not None:
            self.on_synced(error)

    def _report(self, error: OSError) -> None:
        reason = f"the state of the channels cannot be stored: {error}"
        self._context.health.report(self._label, Trouble.JOURNAL, reason)
