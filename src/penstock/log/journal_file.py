"""The files of a partition's channel journal: records go into one, another is safe.

What it promises. After `append` the record is with the operating system, so a killed process
loses nothing of it. After a sync it is on the disk, so neither does a power loss. What is lost
makes messages come again; nothing here can make a message disappear.

How it keeps that. A *generation* is one file begun again: a snapshot of all channels first, then a
record a turn. `_safe` names the file whose snapshot is known to be on the disk, and that file is
never overwritten: a new generation always goes into another one, and that becomes `_safe` only
after a sync of the new file. So at every instant one file holds a whole, durable snapshot with what
followed it, and recovery takes the highest generation whose snapshot is whole:

- Killed or out of power while the new snapshot is being written: it is not whole, the old file
  counts, and it holds all that had been said before.
- Out of power after that, before the sync: the new snapshot is on the disk or it is not; both are
  states that were true.
- A write fails or comes up short: the file's end is unknown. `broken` is set, nothing is appended
  to it any more, and a new generation has to begin. What the lost record said is in its snapshot,
  because that tells the state, not the record.
- Out of power while a file is begun again: of the old records some may outlive the new beginning. A
  new generation is above every intact record that stands in any file, so that none of them can join
  on again.
- A sync fails: what the file holds is unknown, and the system may not say so a second time. Same as
  above, and `_safe` stays where it is.

A node by itself has two files. It begins a generation when it likes, which is never before the last
one is on the disk, unless that is broken. A replica is sent snapshots when another node likes: it
has three, so that what it has written, and reported as written, is not overwritten before the next
snapshot is whole.

What is left: it takes a failed disk *and* a crash to lose the news of channels, and then messages
come again; nothing is lost.

- With two files, a generation that follows a broken one goes into the same file again when the
  other one is the safe one. Killed in that very moment, the safe file is older than what had been
  written before.
- After a failed sync the system may hold content in memory that it will never write, and show it to
  the next process as if all was well. Killed before a new generation was synced, that process
  trusts it, and a power loss then shows that it was not there. So a failed sync ends a replica.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import NamedTuple

from penstock.kernel import crc32c
from penstock.log.disk import Disk, File, read_file
from penstock.log.fold import (
    ENTRY,
    MAGIC,
    Folded,
    Folding,
    JournalRecord,
    Position,
    corrupt_in,
    epoch_of,
    fold_records,
    generation_of,
    intact_beyond,
    named,
    number_of,
    read_record,
)
from penstock.log.sync import run_here

NAMES = ("channels.0", "channels.1", "channels.2")
ALONE = 2  # files of a node by itself
REPLICATED = 3


@dataclass(slots=True, eq=False)
class JournalSync:
    """One flush of a journal file. `run` may be called by any thread."""

    _disk: Disk
    _directory: str
    _file: File
    generation: int
    end: int
    records: int

    def unpin(self) -> None:
        """Another thread no longer works on the file. What is not synced of a journal may be closed
        and opened again: at worst messages come again."""
        self._file.pinned = False

    def run(self) -> None:
        self._file.fdatasync()
        if self._directory:  # the file is new, so its name has to last as well
            self._disk.sync_directory(self._directory)


class FoundJournal(NamedTuple):
    """The contents of the files at a start."""

    folded: Folded
    folding: Folding  # the same, to be gone on with


class JournalFiles:
    def __init__(self, disk: Disk, directory: str, file_count: int) -> None:
        self._disk = disk
        self.directory = directory
        self._file_count = file_count
        self._files: list[File | None] = [None] * len(NAMES)
        self._current = 0
        self._whole = 1  # the newest one whose snapshot was written
        self._safe = 1  # with no file at all, the first generation goes into channels.0
        self._safe_generation = 0
        self._safe_synced = True  # False: found at the start, perhaps only in the system's memory
        self._synced_end = 0
        self._names_synced = False  # files that are found may be new to the disk as well
        self._job: JournalSync | None = None
        self._generation_seen = 0  # the highest of any intact record, whether or not it counts
        self._corrupt_index: int | None = None
        self.corrupt = ""  # what is corrupt of the news, until its file is begun again
        self.generation = 0  # 0: no file was ever begun
        self.sequence = 0  # of the next record
        self.end = 0
        self.snapshot_end = 0  # of the file that is written; 0 after a start
        self.synced_records = 0  # of the file that is written, known by a sync since the start
        self.synced = Position(0, 0)  # the last record that is known to be on the disk
        self.broken = False

    @classmethod
    def open(
        cls, disk: Disk, directory: str, file_count: int, on_disk: bool = False
    ) -> tuple[JournalFiles, FoundJournal | None]:
        """The files of a partition and their contents; None when they are empty. `on_disk`: the
        last stop was orderly, so what they hold is on the disk."""
        journal = cls(disk, directory, file_count)
        found: FoundJournal | None = None
        files = [_JournalFile(disk, os.path.join(directory, name)) for name in NAMES]
        for index, file in enumerate(files):
            if file.generation > (found.folded.generation if found is not None else -1):
                found = file.found
                journal._current = index
        if found is not None:
            journal._continue(found.folded, on_disk)
        journal._look_for_rot(files)
        return journal, found

    def _look_for_rot(self, files: list[_JournalFile]) -> None:
        """Only corruption in records newer than the present ones has lost changes."""
        self._generation_seen = max(file.generation_seen for file in files)
        for index, file in enumerate(files):
            if file.corrupt_generation >= max(self.generation, 1):
                self.corrupt = file.corrupt
                self._corrupt_index = index

    def _continue(self, found: Folded, on_disk: bool) -> None:
        """Go on behind the last record. The file is the best there is, so it is not the one to be
        overwritten, but a process that was killed may have left it in the system's memory only."""
        self.generation = self._safe_generation = found.generation
        self._safe = self._whole = self._current
        self.sequence = found.sequence
        self.end = found.end
        self.broken = found.torn
        self._safe_synced = self._names_synced = on_disk and not found.torn
        if self._safe_synced:
            self._synced_end, self.synced_records = self.end, self.sequence
            self.synced = self.written

    @property
    def written(self) -> Position:
        """The last record; (0, 0) when there is none."""
        return Position(self.generation, max(self.sequence - 1, 0))

    @property
    def unsynced(self) -> bool:
        return self._synced_end < self.end or self._safe_generation != self.generation

    @property
    def busy(self) -> bool:
        return self._job is not None

    @property
    def may_begin(self) -> bool:
        """A generation whose snapshot is not yet on disk cannot be followed by another."""
        return self._safe == self._current and self._safe_synced

    @property
    def generation_max(self) -> int:
        """A new generation is above it."""
        return max(self.generation, self._generation_seen)

    def append(self, record: bytes) -> None:
        """Write one more record. Raises OSError; then `broken` is set."""
        if self.broken or self.generation == 0:
            raise RuntimeError(f"{self.directory}: the journal has to begin with a snapshot")
        self._write(record)

    def prepare(self) -> None:
        """A generation is about to begin: no record may follow the last one any more. Raises
        OSError."""
        self.broken = True  # until the snapshot is written
        self._make_safe()

    def begin(self, generation: int, snapshot: bytes) -> None:
        """Start a generation with a record that covers all earlier ones. Raises OSError; then
        `broken` is set."""
        if generation <= self.generation_max:
            raise RuntimeError(f"{self.directory}: a journal's generations do not go back")
        self.prepare()
        index = self._free_index()
        self._file(index).truncate(0)
        self._current = index
        self.generation = generation
        self.sequence = self.end = self._synced_end = 0
        self.synced_records = 0
        self._write(snapshot)
        self.snapshot_end = self.end
        self._whole = index
        self.broken = False

    def _free_index(self) -> int:
        free = [
            index for index in range(self._file_count) if index not in (self._safe, self._whole)
        ]
        return free[0] if free else next(p for p in range(self._file_count) if p != self._safe)

    def _make_safe(self) -> None:
        """Another file may only be overwritten when this one is on the disk for certain."""
        if not self._safe_synced:
            self._file(self._safe).fdatasync()
            self._disk.sync_directory(self.directory)
            self._safe_synced = True

    def _file(self, index: int) -> File:
        """Files are opened when they are first needed: most partitions of a large node are idle."""
        file = self._files[index]
        if file is None:
            path = os.path.join(self.directory, NAMES[index])
            if self._disk.exists(path):
                file = self._disk.open(path, write=True)
            else:
                file = self._disk.create(path)
                self._names_synced = False
            self._files[index] = file
            self._disk.keep(file)
        return file

    def _write(self, record: bytes) -> None:
        length = len(record)
        try:
            file = self._files[self._current] or self._file(self._current)
            file.pwritev((record,), self.end, length)
        except OSError:
            self.broken = True
            raise
        self.end += length
        self.sequence += 1

    def sync_begin(self) -> JournalSync | None:
        """A job that makes everything durable; None when there is nothing to do or a job is
        running. Raises OSError; then `broken` is set."""
        if self._job is not None or self.broken or not self.unsynced:
            return None
        try:
            file = self._file(self._current)
            file.pin()
        except OSError:
            self.broken = True
            raise
        directory = "" if self._names_synced else self.directory
        self._job = JournalSync(
            self._disk, directory, file, self.generation, self.end, self.sequence
        )
        return self._job

    def sync_end(self, job: JournalSync, error: OSError | None) -> None:
        self._job = None
        job.unpin()
        if job.generation != self.generation:
            return  # a newer generation has begun in the meantime; it says all this again
        if error is not None:
            self.broken = True
            return
        self._synced_end = job.end
        self.synced_records = job.records
        self.synced = Position(job.generation, job.records - 1)
        self._names_synced = True
        self._safe = self._current
        self._safe_generation = self.generation
        self._safe_synced = True
        if self._current == self._corrupt_index:
            self._corrupt_index, self.corrupt = None, ""

    def sync(self) -> None:
        """Sync at once, in this thread. Raises OSError."""
        job = self.sync_begin()
        if job is None:
            return
        error = run_here(self, job)
        if error is not None:
            raise error

    def needs_no_sync(self) -> None:
        """Everything is on disk but an empty record, whose loss costs nothing."""
        self._synced_end = self.end

    def close(self) -> None:
        files, self._files = self._files, [None] * len(NAMES)
        for file in files:
            if file is not None:
                file.close()

    def validate(self) -> None:
        if self._synced_end > self.end:
            raise RuntimeError(f"{self.directory}: journal synced beyond its end")
        if self._safe_generation > self.generation:
            raise RuntimeError(f"{self.directory}: journal generations out of order")
        if self._safe_generation == self.generation > 0 and self._safe != self._current:
            raise RuntimeError(f"{self.directory}: the current journal file is not the safe one")


class _JournalFile:
    """The contents of one file, and its contents if nothing in it were corrupt."""

    def __init__(self, disk: Disk, path: str) -> None:
        data = read_file(disk, path, disk.size(path)) if disk.exists(path) else b""
        found = fold_records(data) if data else None
        folded = found[0] if found is not None else None
        self.found = FoundJournal(*found) if found is not None else None
        self.generation = folded.generation if folded is not None else -1
        end = folded.end if folded is not None else 0
        beyond = [found.generation for found in intact_beyond(data, end)]
        self.generation_seen = max([self.generation, 0, *beyond])
        self.corrupt_generation = corrupt_in(data, folded)
        self.corrupt = (
            f"{path}: the record at byte {end} is corrupt, and {len(beyond)} intact ones follow: "
            "what they say of channels is lost, and messages that were finished come again"
        )


class RecordSpan(NamedTuple):
    position: int
    length: int
    is_snapshot: bool
    epoch: int  # of the leader that has begun the generation; 0 on a node by itself
    generation: int
    sequence: int
    handed_end: int
    entries: int


class JournalFile(NamedTuple):
    """The records that count, and why they end before the file does (empty: they do not)."""

    records: list[RecordSpan]
    end_position: int
    problem: str
    is_torn: bool  # the file ends inside a record: an append that was cut short

    @property
    def generation(self) -> int:
        """The generation with its epoch; 0 when no snapshot is whole."""
        return _generation(self.records[0]) if self.records else 0


def read_journal(data: bytes) -> JournalFile:
    """A channel journal seen from outside: records, checksums, sequences (docs/formats.md). What
    the entries mean is not looked at.
    """
    records: list[RecordSpan] = []
    position = 0
    while position < len(data):
        found = read_record(data, position)
        problem = found if isinstance(found, str) else _out_of_row(records, found)
        if problem or isinstance(found, str):
            return JournalFile(records, position, problem, _is_torn(data, position))
        begin = position, found.length, bool(found.flags)
        generation = epoch_of(found.generation), number_of(found.generation)
        entries = sum(len(group.entries) for group in found.groups) // ENTRY.size
        records.append(RecordSpan(*begin, *generation, found.sequence, found.handed_end, entries))
        position += found.length
    return JournalFile(records, position, "", False)


def _generation(record: RecordSpan) -> int:
    return generation_of(record.epoch, record.generation)


def _out_of_row(records: list[RecordSpan], record: JournalRecord) -> str:
    if record.synced_records > record.sequence:
        return "it says of itself that it is synced"
    if bool(record.flags) != (not records):
        return "a journal has one snapshot, at its front"
    if record.sequence != len(records):
        return f"sequence {record.sequence} follows {len(records) - 1}"
    if records and record.generation != (begun := _generation(records[0])):
        return f"generation {named(record.generation)} in a file of {named(begun)}"
    return ""


def _is_torn(data: bytes, position: int) -> bool:
    """Is the data at `position` the beginning of a record whose append was cut short, and not a
    whole one whose length is corrupt?"""
    rest = data[position:]
    if not rest.startswith(MAGIC[: len(rest)]) or MAGIC in rest[1:]:
        return False
    if len(rest) < 12:
        return True
    as_if_whole = struct.pack("<I", len(rest)) + rest[12:]
    is_whole = crc32c(as_if_whole) == int.from_bytes(rest[4:8], "little")
    return int.from_bytes(rest[8:12], "little") > len(rest) and not is_whole
