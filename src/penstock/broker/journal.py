"""The channel journal of one partition: two files, written in turn.

What it promises. After `append` the record is with the operating system, so a killed process
loses nothing of it. After a sync it is on the disk, so neither does a power loss. What is lost
makes messages come again; nothing here can make a message disappear.

How it keeps that. A *generation* is one file begun anew: a snapshot of all channels first, then a
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

from penstock.broker.fold import FLAG_SNAPSHOT, Folded, Group, encode_record, fold
from penstock.log.disk import Disk, File

NAMES = ("channels.0", "channels.1")

Snapshot = Callable[[], tuple[int, Sequence[Group]]]  # handed end, and every channel's whole state


class JournalSync:
    """One flush of a journal file. `run` is for any thread."""

    __slots__ = ("_directory", "_disk", "_file", "end", "generation")

    def __init__(self, disk: Disk, directory: str, file: File, generation: int, end: int) -> None:
        self._disk = disk
        self._directory = directory
        self._file = file
        self.generation = generation
        self.end = end

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
        self._synced_end = 0
        self._names_synced = False  # files that are found may be new to the disk as well
        self._job: JournalSync | None = None
        self.generation = 0  # 0: no file was ever begun
        self.broken = False

    @classmethod
    def open(cls, disk: Disk, directory: str, bytes_max: int) -> tuple[Journal, Folded | None]:
        """The journal of a partition and what it says; None when it says nothing at all."""
        journal = cls(disk, directory, bytes_max)
        found: Folded | None = None
        for place, name in enumerate(NAMES):
            folded = _read(disk, os.path.join(directory, name))
            if folded is not None and (found is None or folded.generation > found.generation):
                found = folded
                journal._current = place
        if found is not None:
            journal._continue(found)
        return journal, found

    def _continue(self, found: Folded) -> None:
        """Go on behind the last record. The file is the best there is, so it is not the one to be
        overwritten, but a process that was killed may have left it in the system's memory only."""
        self._safe_synced = False
        self.generation = self._safe_generation = found.generation
        self._safe = self._current
        self._sequence = found.sequence
        self._end = found.end
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
        record = encode_record(0, self.generation, self._sequence, handed_end, groups)
        self._write(record)

    def begin(self, snapshot: Snapshot) -> None:
        """Start a generation with a snapshot, which covers all that was said before."""
        place = 1 - self._safe
        self.broken = True  # until the snapshot is written
        self._make_safe()
        handed_end, groups = snapshot()
        self._file(place).truncate(0)
        self._current = place
        self.generation += 1
        self._sequence = self._end = self._synced_end = 0
        self._write(
            encode_record(FLAG_SNAPSHOT, self.generation, self._sequence, handed_end, groups)
        )
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
        return file

    def _full(self) -> bool:
        # a generation whose snapshot is not yet on the disk cannot hand over to the next
        return self._end >= self._bytes_max and self._safe == self._current and self._safe_synced

    def _write(self, record: bytes) -> None:
        try:
            self._file(self._current).pwritev((record,), self._end, len(record))
        except OSError:
            self.broken = True
            raise
        self._end += len(record)
        self._sequence += 1

    def sync_begin(self) -> JournalSync | None:
        """A job that makes all of it durable; None when there is nothing to do or one is out."""
        if self._job is not None or self.broken or not self.unsynced:
            return None
        try:
            file = self._file(self._current)
        except OSError:
            self.broken = True
            return None
        directory = "" if self._names_synced else self._directory
        self._job = JournalSync(self._disk, directory, file, self.generation, self._end)
        return self._job

    def sync_end(self, job: JournalSync, error: OSError | None) -> None:
        self._job = None
        if job.generation != self.generation:
            return  # a newer generation has begun in the meantime; it says all this again
        if error is not None:
            self.broken = True
            return
        self._synced_end = job.end
        self._names_synced = True
        self._safe = self._current
        self._safe_generation = self.generation
        self._safe_synced = True

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

    def close(self) -> None:
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


def _read(disk: Disk, path: str) -> Folded | None:
    if not disk.exists(path):
        return None
    file = disk.open(path)
    try:
        data = bytearray(file.size())
        return fold(bytes(data[: file.pread_into(data, 0)]))
    finally:
        file.close()
