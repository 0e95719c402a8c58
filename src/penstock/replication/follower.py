"""The follower of a partition, and the learner: one machine, which does not know which of them it
is.

| state | on | to | effects |
|---|---|---|---|
| UNMATCHED | `hello`, epoch not below the promised | MATCHING | SaveEpoch (new), ReportExtent |
| any but STOPPED | `hello`, a lower epoch | the same | Refuse |
| any | `hello`, an older session | the same | |
| any | `hello`, and no batch of this log is intact | STOPPED | Stop |
| MATCHING | `match_at`, the chain is this log's | FOLLOWING | Truncate, Sync, Matched |
| MATCHING | `match_at`, another chain, or below the committed end | STOPPED | Stop |
| MATCHING | `begin_at` | FOLLOWING | Begin, Matched |
| MATCHING | `begin_at`, below the committed end | STOPPED | Stop |
| FOLLOWING | `append` that follows the last batch | FOLLOWING | Append, Sync; Acknowledge |
| any | `append` that does not | UNMATCHED | Refuse |
| FOLLOWING | `missed`: appends were dropped here | UNMATCHED | Refuse |
| any but STOPPED | `unlinked`, `hello` again | UNMATCHED, MATCHING | |
| any | `sync_failed` | STOPPED | Stop |

An acknowledgement reports how far the log is written and how far it is synced; the leader decides
which of them counts, by the topic's durability. With `waits` it is sent after the sync.
"""

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Protocol

from penstock.log.epochs import BatchName, Extent
from penstock.replication.effects import (
    Acknowledge,
    Append,
    Begin,
    Matched,
    Refuse,
    ReportExtent,
    SaveEpoch,
    Stop,
    Sync,
    Truncate,
)

NO_SESSION = -1


class LogView(Protocol):
    """The log as the machines see it."""

    @property
    def written_end(self) -> int: ...

    @property
    def synced_end(self) -> int: ...

    def extent(self) -> Extent: ...

    def name_before(self, offset: int) -> BatchName | None:
        """The name of the batch that ends there; None where none does."""

    def bytes_from(self, offset: int) -> int:
        """About how many bytes of log there are from `offset` on."""


class Following(IntEnum):
    UNMATCHED = 1
    MATCHING = 2
    FOLLOWING = 3
    STOPPED = 4


@dataclass(eq=False)
class PartitionFollower:
    log: LogView
    replica: int
    generation: int
    epoch: int  # promised: nothing of a lower one is answered
    committed: int  # known to be, and in this log
    waits: bool  # for the disk, before an append is acknowledged
    unclean_epoch: int = 0
    state: Following = Following.UNMATCHED
    session: int = NO_SESSION
    matched_end: int = 0
    out: list[Any] = field(default_factory=list)

    # --- of links and epochs ---

    def hello(self, session: int, epoch: int) -> None:
        if self.state is Following.STOPPED or session < self.session:
            return  # of an older link: sessions rise along an epoch, and from one to the next
        if epoch < self.epoch:
            self.out.append(Refuse(session, self.epoch))
            return
        extent = self.log.extent()
        if extent.is_unknown:
            self._stop("no batch of its log is intact")
            return
        self._promise(epoch)
        self.session = session
        self.state = Following.MATCHING
        report = ReportExtent(session, epoch, self.replica, self.generation, extent, self.committed)
        self.out.append(report)

    def _promise(self, epoch: int) -> None:
        if epoch > self.epoch:
            self.out.append(SaveEpoch(epoch))
        self.epoch = epoch

    def unlinked(self) -> None:
        self.session = NO_SESSION
        if self.state is not Following.STOPPED:
            self.state = Following.UNMATCHED

    # --- matching ---

    def match_at(self, session: int, end: int, chain: BatchName) -> None:
        if self.state is not Following.MATCHING or session != self.session:
            return
        if self.log.name_before(end) != chain:
            self._stop("the last common batch is not the leader's")
        elif self._is_below_committed(end):
            self._stop("the leader's log lacks what is known to be committed")
        else:
            if end < self.log.written_end:
                self.out.append(Truncate(end))
            self._follow(end)

    def begin_at(self, session: int, start: int) -> None:
        if self.state is not Following.MATCHING or session != self.session:
            return
        if self._is_below_committed(start):
            self._stop("the leader's log has nothing of what is known to be committed")
            return
        self.committed = start
        self.out.append(Begin(start))
        self._follow(start)

    def _is_below_committed(self, end: int) -> bool:
        return end < self.committed and not self.is_unclean

    @property
    def is_unclean(self) -> bool:
        """An unclean election may have discarded committed batches."""
        return 0 < self.unclean_epoch <= self.epoch

    def _follow(self, end: int) -> None:
        self.state = Following.FOLLOWING
        self.matched_end = end
        self.committed = min(self.committed, end)
        self.out.append(Matched(self.session, end))
        self._answer(end)

    def _answer(self, end: int) -> None:
        """All batches below `end` are written."""
        if self.waits and self.log.synced_end < end:
            self.out.append(Sync())
        else:
            self._acknowledge(end)

    def _acknowledge(self, written: int) -> None:
        synced = min(self.log.synced_end, written)  # the cut may not be done yet
        self.out.append(Acknowledge(self.session, self.epoch, self.replica, written, synced))

    # --- appends ---

    def append(
        self, session: int, epoch: int, before: BatchName, start: int, batches: Any, committed: int
    ) -> None:
        if self.state is Following.STOPPED or session != self.session:
            return
        if epoch < self.epoch:
            self.out.append(Refuse(session, self.epoch))
        elif not self._fits(before, start):
            self.state = Following.UNMATCHED
            self.out.append(Refuse(session, self.epoch))
        elif batches:
            self.out.append(Append(start, batches, committed))
        else:
            self.learned(committed)

    def missed(self) -> None:
        """Appends of this session may have been dropped. The leader takes them for sent, and
        without further appends it would never learn that they are missing."""
        if self.state is Following.FOLLOWING:
            self.state = Following.UNMATCHED
            self.out.append(Refuse(self.session, self.epoch))

    def _fits(self, before: BatchName, start: int) -> bool:
        if self.state is not Following.FOLLOWING or start != self.log.written_end:
            return False
        return before == self.log.name_before(start)

    def appended(self, end: int, committed: int) -> None:
        """The append's batches stand in the log."""
        self.matched_end = end
        self.learned(committed)
        self._answer(end)

    def learned(self, committed: int) -> None:
        """The leader has committed so far."""
        known = min(committed, self.matched_end)
        self.committed = max(self.committed, known)

    def synced(self) -> None:
        """The log is synced up to `log.synced_end`."""
        if self.waits and self.state is Following.FOLLOWING:
            self._acknowledge(self.log.written_end)

    def sync_failed(self) -> None:
        self._stop("a sync failed")

    def _stop(self, reason: str) -> None:
        self.state = Following.STOPPED
        self.out.append(Stop(reason))
