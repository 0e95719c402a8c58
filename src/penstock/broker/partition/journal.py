"""The channel journal of one partition, as its leader writes it: a record a turn.

`log.journal_file` says what is kept through which fault. Here is when a generation begins: when the
file has grown past `bytes_max`, when it is broken, and when this leader has not begun one yet. In
each case a snapshot of all channels comes first, so what an earlier leader said, and other replicas
may not have heard, does not matter any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from penstock.log.disk import Disk
from penstock.log.fold import FLAG_SNAPSHOT, Folded, Group, encode_record, epoch_of, generation_of
from penstock.log.journal_file import ALONE, JournalFiles

Snapshot = Callable[[], tuple[int, Sequence[Group]]]  # handed end, and every channel's whole state


class Journal:
    """`epoch`: of the leader; 0 on a single node, which also continues a file that it finds. The
    `files` report their own health, and are synced separately. `append` and `begin` return the
    written bytes, for the other replicas."""

    def __init__(self, files: JournalFiles, bytes_max: int, epoch: int, handed_end: int) -> None:
        self.files = files
        self._bytes_max = bytes_max
        self._epoch = epoch
        self._handed_end = handed_end  # as the last record has it
        # What the last record says of the file's synced ones; after an orderly stop it says enough.
        self._synced_noted = files.synced_records
        if epoch < epoch_of(files.generation_max) and epoch:
            raise RuntimeError(
                f"a journal of epoch {epoch_of(files.generation_max)} is continued "
                f"by a leader of epoch {epoch}"
            )
        self._look_at_snapshot()
        generation = files.generation
        self._has_begun = generation > 0 and (epoch_of(generation) == epoch or not epoch)

    @classmethod
    def open(
        cls, disk: Disk, directory: str, bytes_max: int, on_disk: bool = False
    ) -> tuple[Journal, Folded | None]:
        """The journal of a single node, and its contents; None when it has none. `on_disk`: as of
        `JournalFiles.open`."""
        files, found = JournalFiles.open(disk, directory, ALONE, on_disk)
        folded = found.folded if found is not None else None
        return cls(files, bytes_max, 0, folded.handed_end if folded is not None else 0), folded

    def append(self, handed_end: int, groups: Sequence[Group], snapshot: Snapshot) -> bytes:
        """Raises OSError; then the files are `broken`, and the next call starts afresh."""
        files = self.files
        is_full = files.end >= self._full_bytes and files.may_begin
        if is_full or files.broken or not self._has_begun:
            return self.begin(snapshot)
        return self._append(handed_end, groups)

    def _append(self, handed_end: int, groups: Sequence[Group]) -> bytes:
        files = self.files
        synced = files.synced_records
        self._handed_end = handed_end
        record = encode_record(0, files.generation, files.sequence, handed_end, groups, synced)
        files.append(record)
        self._synced_noted = synced
        return record

    def begin(self, snapshot: Snapshot) -> bytes:
        """Start a generation with a snapshot, which covers all earlier records."""
        self.files.prepare()
        handed_end, groups = snapshot()
        generation = max(self.files.generation_max + 1, generation_of(self._epoch, 0))
        record = encode_record(FLAG_SNAPSHOT, generation, 0, handed_end, groups)
        self.files.begin(generation, record)
        self._look_at_snapshot()
        self._has_begun = True
        self._handed_end = handed_end
        self._synced_noted = 0
        return record

    def _look_at_snapshot(self) -> None:
        """The size at which the next generation begins: twice a large snapshot, so that a snapshot
        is written at most once per as many bytes of changes."""
        self._full_bytes = max(self._bytes_max, 2 * self.files.snapshot_end)

    def rest(self) -> None:
        """Hold no descriptor until there is something to write again."""
        if not self.files.busy and not self.files.unsynced:
            self.close()

    def _note_synced(self) -> None:
        """When idle, an empty record states that all records before it are on disk: evidence,
        should one of them become corrupt. Its loss costs nothing, so it needs no sync of its own. A
        leader with replicas writes none: they would be missing in the sequence, and the replicas
        are evidence enough."""
        files = self.files
        if files.broken or files.busy or files.unsynced or self._epoch:
            return
        if self._synced_noted != files.synced_records:
            self._append(self._handed_end, ())
            files.needs_no_sync()

    def close(self) -> None:
        with suppress(OSError):  # they are `broken`: the next append begins the file again
            self._note_synced()
        self.files.close()
