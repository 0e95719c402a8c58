"""The meaning of a log's files after any kind of stop: the rules, without I/O.

The question. A process was killed, or the power went. Some of the last writes are whole, some
torn, some missing, and writes that were never synced may have reached the disk in any order. Which
of the bytes are the log?

What is known for certain
1. What was synced is there, unless the disk broke its word or bits corrupt. How far that reaches
   was written down many times: every batch header repeats the log's synced end at the time it was
   written, and so does the mark every few seconds. Each such note is a lower bound of the truth,
   so the highest note seen anywhere (an intact batch's header, the mark) is one too: call it S. It
   is right to believe an intact batch that stands *beyond* a hole here: its header was computed
   before it was written, so what it says was synced had been synced.
   With several replicas a header says what *every member in force* has synced, and those that are
   being taken in as well: so it is true of each member's disk, and of no other. A replica believes
   headers only while `replica.json` says durably that it is such a member (or the only one).
   Otherwise (it is being copied, or was given up) its own mark alone counts, which each replica
   writes for itself, and S is what that says.
2. Offsets are dense, ids and epochs do not fall and batches stand end to end, so the batch that
   must come next is known. An intact batch with a lower offset is old content of a recycled file.
   One with the right offset and a lower epoch than the batch before it was left by a write that was
   never finished, and which another leader's has replaced. Neither is part of the log.
3. Nothing was acknowledged (durability `disk`) beyond the true synced end, and that is at or above
   S.

The decision. Walk from a position known to be below S to the end, and let E be the offset of the
first batch that should be there and is not.
- E at or above S: nothing from E on was promised. An unfinished write is cut away, and
  with it all that stands behind it: intact batches there were never acknowledged, and a log has no
  holes. The cut is reported. The bytes are really removed (truncated and synced), for else a later
  write of the same length would join the old batches to the log again.
- E below S: acknowledged data is corrupt. The hole is named, and what is intact on both sides stays
  readable. If intact batches behind the hole reach S or beyond, the end of the log is known: the
  hole concerns readers, and writing goes on behind the last intact batch as if there was none. If
  they do not, the end of the log itself is corrupt. Cutting would turn a report into a silent loss,
  so nothing is cut or written at all, and the partition refuses writes until it was repaired.

Why this loses nothing that was acknowledged: a cut begins at E, at or above S. The true synced end
can be above S only by the batches that were synced last, with no header and no mark after them.
Were such a batch unreadable, the disk broke its word about a sync; no rule over the disk's content
can see that. A clean stop closes even this gap, for it writes the mark after the last sync.

Why nothing is invented: only intact batches (crc over everything) with exactly the offset that must
come next are taken, what was cut is removed, and a recycled file is only ever one whose offsets
were all lower. A cut (`truncation.py`) is on the disk before it returns, and what it removed is
never recycled. Recycled files found at a start are dropped: a power loss may have undone the
renaming of one that was already in use.

Durability `os` acknowledges before the sync. After a kill the kernel still holds every write, so
all batches are found intact and are taken, above S too; then the tail is synced at once, and the
ends meet.

A write that was refused (disk full, I/O error) is truncated away, but not synced: after a power
loss it may stand there whole and be taken. Its publisher was told that it failed, which never
meant that it is certainly not there; and it can only stand above all that was synced. Before
anything else is written in its place the removal is synced. Else a refused batch could stand, after
a power loss, where a later one of the same length was lost, with what came behind that still there:
epochs do not tell such a log from that of the other replicas.

A forged batch inside a message body can only matter when the position of the batch around it is
already unreadable, must carry the right offsets to the letter, and can then make a cut look like
damage or fill a hole: it can't remove anything.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class BatchRun(NamedTuple):
    """Sound batches that stand end to end in one segment."""

    segment: int  # its number in the caller's list
    from_offset: int
    to_offset: int
    end_position: int
    synced_end: int  # the highest that a header among them says


class Hole(NamedTuple):
    from_offset: int
    to_offset: int


class Decision(NamedTuple):
    end_offset: int  # the log's written end
    synced_seen: int  # S
    holes: tuple[Hole, ...]  # acknowledged data that is corrupt
    kept: tuple[BatchRun, ...]
    dropped: tuple[BatchRun, ...]  # intact, but beyond an unfinished write
    end_corrupt: bool = False  # the last hole reaches the end: the log must not be written to
    end_missing: bool = False  # no intact batch reaches the end: it is corrupt, or was given up


def decide(
    from_offset: int,
    runs: Sequence[BatchRun],
    synced_known: int,
    is_lost: Callable[[int, int], bool] = lambda start, end: False,
) -> Decision:
    """Judge the result of a walk. All below `from_offset` counts as intact, `synced_known` is the
    highest synced end known from elsewhere (the mark, and headers met while looking for the tail).
    Ranges that were given up (`is_lost`) are no holes."""
    synced_seen = max([synced_known, *(run.synced_end for run in runs)])
    end = from_offset
    holes: list[Hole] = []
    for number, run in enumerate(runs):
        if run.from_offset > end and not is_lost(end, run.from_offset):
            if end >= synced_seen:
                return Decision(
                    end, synced_seen, tuple(holes), tuple(runs[:number]), tuple(runs[number:])
                )
            holes.append(Hole(end, run.from_offset))
        end = run.to_offset
    end_missing = end < synced_seen
    end_corrupt = end_missing and not is_lost(end, synced_seen)
    if end_corrupt:
        holes.append(Hole(end, synced_seen))
    return Decision(
        max(end, synced_seen), synced_seen, tuple(holes), tuple(runs), (), end_corrupt, end_missing
    )


@dataclass(frozen=True, slots=True)
class RemovedTail:
    offset: int  # the written end after the cut
    bytes_cut: int
    reason: str
    unfinished: bool  # False: no batch had begun there, the bytes may be a recycled file's
