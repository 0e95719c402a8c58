"""The channel journal of one partition: two files, written in turn.

What it promises. After `append` the record is with the operating system, so a killed process
loses nothing of it. After a sync it is on the disk, so neither does a power loss. What is lost
makes messages come again; nothing here can make a message disappear.

How it keeps that. A *generation* is one file begun again: a snapshot of all channels first, then a
record a turn. When the file has grown past `bytes_max`, the next generation begins in the other
file. `_safe` names the file whose snapshot is known to be on the disk, and that file is never
overwritten: a new generation always goes into the other one, and the places change only after a
sync of the new file. So at every instant one file holds a whole, durable snapshot with what
followed it, and recovery takes the higher generation whose snapshot is whole:

- Killed or out of power while the new snapshot is being written: it is not whole, the old file
  counts, and it holds all that had been said before.
- Out of power after that, before the sync: the new snapshot is on the disk or it is not; both are
  states that were true.
- A write fails or comes up short: the file's end is unknown. `broken` is set, nothing is appended
  to it any more, and the next `append` begins a new generation with a snapshot. What the lost
  record said is in that snapshot, because the window remembers its state, not the record.
- Out of power while a file is begun again: of the old records some may outlive the new beginning. A
  new generation is numbered above every sound record that stands in either file, so that none of
  them can join on again.
- A sync fails: what the file holds is unknown, and the system may not say so a second time. Same as
  above, and `_safe` stays where it is.

What is left: it takes a failed disk *and* a crash to lose the news of channels, and then messages
come again; nothing is lost.

- A generation that follows a broken one goes into the same file again when the other file is the
  safe one. Killed in that very moment, the safe file is older than what had been written before.
- After a failed sync the system may hold content in memory that it will never write, and show it to
  the next process as if all was well. Killed before a new generation was synced, that process
  trusts it, and a power loss then shows that it was not there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.log.disk import Disk, File
from penstock.log.fold import (
    FLAG_SNAPSHOT,
    Folded,
    Group,
    encode_record,
    fold,
    has_rotted,
    sound_beyond,
)

NAMES = ("channels.0", "channels.1")

Snapshot = Callable[[], tuple[int, Sequence[Group]]]  # handed end, and every channel's whole state


class JournalSync:
    """One flush of a journal file. `run` is for any thread."""

    __slots__ = ("_directory", "_disk", "_file", "end", "generation", "records")

    def __init__(
        self, disk: Disk, directory: str, file: File, generation: int, end: int, records: int
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._file = file
        self.generation = generation
        self.end = end
        self.records = records
        file.pinned = True

    def unpin(self) -> None:
        """Another thread no longer works on the file. What is not synced of a journal may be closed
        and opened again: at worst messages come again."""
        self._file.pinned = False

    def run(self) -> None:
        self._file.fdatasync()
        if self._directory:  # the file is new, so its name has to last as well
            self._disk.sync_directory(self._directory)


class Journal:
    def __init__(self, disk: Disk, directory: str, bytes_max: int) -> None:
        self._disk = disk
        self._directory = directory
        self._bytes_max = bytes_max
        self._files: list[File | None] = [None, None]
        self._current = 0
        self._safe = 1  # with no file at all, the first generation goes into channels.0
        self._safe_generation = 0
        self._safe_synced = True  # False: found at the start, perhaps only in the system's memory
        self._sequence = 0
        self._end = 0
        self._snapshot_end = 0  # of the file that is written; 0 after a start
        self._synced_end = 0
        self._synced_records = 0  # of the file that is written, known by a sync since the start
        self._handed_end = 0  # as the last record has it
        self._synced_noted = 0  # what the last record says of that
        self._names_synced = False  # files that are found may be new to the disk as well
        self._job: JournalSync | None = None
        self._generation_seen = 0  # the highest of any sound record, whether or not it counts
        self._corrupt_place: int | None = None
        self.corrupt = ""  # what has rotted of the news, until its file is begun again
        self.generation = 0  # 0: no file was ever begun
        self.broken = False

    @classmethod
    def open(cls, disk: Disk, directory: str, bytes_max: int) -> tuple[Journal, Folded | None]:
        """The journal of a partition and what it says; None when it says nothing at all."""
        journal = cls(disk, directory, bytes_max)
        found: Folded | None = None
        files = [_File(disk, os.path.join(directory, name)) for name in NAMES]
        for place, file in enumerate(files):
            folded = file.folded
            if folded is not None and (found is None or folded.generation > found.generation):
                found = folded
                journal._current = place
        if found is not None:
            journal._continue(found)
        journal._look_for_rot(files)
        return journal, found

    def _look_for_rot(self, files: list[_File]) -> None:
        """Only what was newer than all that counts has lost any news."""
        self._generation_seen = max(file.generation_seen for file in files)
        for place, file in enumerate(files):
            if file.corrupt and file.generation_seen >= max(self.generation, 1):
                self.corrupt = file.corrupt
                self._corrupt_place = place

    def _continue(self, found: Folded) -> None:
        """Go on behind the last record. The file is the best there is, so it is not the one to be
        overwritten, but a process that was killed may have left it in the system's memory only."""
        self._safe_synced = False
        self.generation = self._safe_generation = found.generation
        self._safe = self._current
        self._sequence = found.sequence
        self._end = found.end
        self._handed_end = found.handed_end
        self.broken = found.torn

    @property
    def unsynced(self) -> bool:
        return self._synced_end < self._end or self._safe_generation != self.generation

    @property
    def busy(self) -> bool:
        return self._job is not None

    def append(self, handed_end: int, groups: Sequence[Group], snapshot: Snapshot) -> None:
        """Write one record. Raises OSError; then `broken` is set and the next call starts
        afresh."""
        if self.broken or self.generation == 0 or self._full():
            self.begin(snapshot)
            return
        self._append(handed_end, groups)

    def _append(self, handed_end: int, groups: Sequence[Group]) -> None:
        synced = self._synced_records
        self._handed_end = handed_end
        self._write(encode_record(0, self.generation, self._sequence, handed_end, groups, synced))
        self._synced_noted = synced

    def begin(self, snapshot: Snapshot) -> None:
        """Start a generation with a snapshot, which covers all that was said before."""
        place = 1 - self._safe
        self.broken = True  # until the snapshot is written
        self._make_safe()
        handed_end, groups = snapshot()
        self._file(place).truncate(0)
        self._current = place
        self.generation = max(self.generation, self._generation_seen) + 1
        self._sequence = self._end = self._synced_end = 0
        self._synced_records = self._synced_noted = 0
        self._handed_end = handed_end
        self._write(
            encode_record(FLAG_SNAPSHOT, self.generation, self._sequence, handed_end, groups)
        )
        self._snapshot_end = self._end
        self.broken = False

    def _make_safe(self) -> None:
        """The other file may only be overwritten when this one is on the disk for certain."""
        if not self._safe_synced:
            self._file(self._safe).fdatasync()
            self._disk.sync_directory(self._directory)
            self._safe_synced = True

    def _file(self, place: int) -> File:
        """Files are opened when they are first needed: most partitions of a large node are idle."""
        file = self._files[place]
        if file is None:
            path = os.path.join(self._directory, NAMES[place])
            if self._disk.exists(path):
                file = self._disk.open(path, write=True)
            else:
                file = self._disk.create(path)
                self._names_synced = False
            self._files[place] = file
            self._disk.keep(file)
        return file

    def _full(self) -> bool:
        # Twice a large snapshot, so that writing one is paid for by as much of changes.
        bytes_max = max(self._bytes_max, 2 * self._snapshot_end)
        # a generation whose snapshot is not yet on the disk cannot hand over to the next
        return self._end >= bytes_max and self._safe == self._current and self._safe_synced

    def _write(self, record: bytes) -> None:
        try:
            self._file(self._current).pwritev((record,), self._end, len(record))
        except OSError:
            self.broken = True
            raise
        self._end += len(record)
        self._sequence += 1

    def sync_begin(self) -> JournalSync | None:
        """A job that makes all of it durable; None when there is nothing to do or one is out.
        Raises OSError; then `broken` is set."""
        if self._job is not None or self.broken or not self.unsynced:
            return None
        try:
            file = self._file(self._current)
        except OSError:
            self.broken = True
            raise
        directory = "" if self._names_synced else self._directory
        self._job = JournalSync(
            self._disk, directory, file, self.generation, self._end, self._sequence
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
        self._synced_records = job.records
        self._names_synced = True
        self._safe = self._current
        self._safe_generation = self.generation
        self._safe_synced = True
        if self._current == self._corrupt_place:
            self._corrupt_place, self.corrupt = None, ""

    def sync(self) -> None:
        """At once, in this thread. Raises OSError."""
        job = self.sync_begin()
        if job is None:
            return
        try:
            job.run()
        except OSError as error:
            self.sync_end(job, error)
            raise
        self.sync_end(job, None)

    def rest(self) -> None:
        """Hold no descriptor until there is something to write again."""
        if not self.busy and not self.unsynced:
            self.close()

    def _note_synced(self) -> None:
        """While nothing is to do, an empty record says that all before it is on the disk: it is the
        witness should one of them rot. Nothing is lost with it, so it needs no sync of its own."""
        if self.broken or self.busy or self.unsynced or self._synced_noted == self._synced_records:
            return
        self._append(self._handed_end, ())
        self._synced_end = self._end

    def close(self) -> None:
        with suppress(OSError):  # `broken` is set: the next append begins the file again
            self._note_synced()
        files, self._files = self._files, [None, None]
        for file in files:
            if file is not None:
                file.close()

    def validate(self) -> None:
        if self._synced_end > self._end:
            raise RuntimeError(f"{self._directory}: journal synced beyond its end")
        if self._safe_generation > self.generation:
            raise RuntimeError(f"{self._directory}: journal generations out of order")
        if self._safe_generation == self.generation > 0 and self._safe != self._current:
            raise RuntimeError(f"{self._directory}: the current journal file is not the safe one")


class _File:
    """What one file says, and what it would say if nothing in it had rotted."""

    def __init__(self, disk: Disk, path: str) -> None:
        data = _read(disk, path)
        self.folded = fold(data)
        end = self.folded.end if self.folded is not None else 0
        beyond = [found.generation for found in sound_beyond(data, end)]
        counted = self.folded.generation if self.folded is not None else 0
        self.generation_seen = max([counted, *beyond])
        self.corrupt = (
            f"{path}: the record at byte {end} is corrupt, and {len(beyond)} sound ones follow it: "
            "what they say of channels is lost, and messages that were finished come again"
            if has_rotted(data)
            else ""
        )


def _read(disk: Disk, path: str) -> bytes:
    if not disk.exists(path):
        return b""
    file = disk.open(path)
    try:
        data = bytearray(file.size())
        return bytes(data[: file.pread_into(data, 0)])
    finally:
        file.close()
