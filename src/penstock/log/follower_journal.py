"""The channel journal of a follower: its leader's records, and their sum.

The records stand in the files as the leader wrote them, but for the count of synced ones, which
speaks of the disk here. They are folded as they come, so a new leader need read nothing.

Which records may be written is decided elsewhere (`penstock.replication.journal`). Here the same is
checked once more, because a record out of its place would end the file for a start that reads it.
"""

from __future__ import annotations

from penstock.log.disk import Disk
from penstock.log.errors import JournalRefused
from penstock.log.fold import (
    Folded,
    Folding,
    JournalRecord,
    Position,
    decode_record,
    named,
    restamped,
)
from penstock.log.journal_file import REPLICATED, JournalFiles

NOTHING = Position(0, 0)  # where a journal stands that cannot be gone on with


class FollowedJournal:
    def __init__(self, files: JournalFiles, folding: Folding) -> None:
        self.files = files
        self.folding = folding

    @classmethod
    def open(cls, disk: Disk, directory: str) -> FollowedJournal:
        """Raises OSError."""
        files, found = JournalFiles.open(disk, directory, REPLICATED)
        return cls(files, found.folding if found is not None else Folding())

    @property
    def position(self) -> Position:
        """The last record; `NOTHING` when no other may follow it."""
        return NOTHING if self.files.broken else self.files.written

    @property
    def synced(self) -> Position:
        """The last record that is certainly on this disk."""
        return self.files.synced

    @property
    def start_offset(self) -> int:
        """The start of the log, as its leader has decided."""
        return self.folding.start_offset

    def folded(self) -> Folded | None:
        """The contents of the journal, in the form that a start finds; None: empty."""
        files = self.files
        if not files.generation:
            return None
        following = Position(files.generation, files.sequence)
        return self.folding.folded(following, files.end, torn=files.broken)

    def append(self, data: bytes) -> None:
        """Write the record behind the last one. Raises OSError, and JournalRefused when it does not
        follow."""
        record, at = self._intact(data)
        files = self.files
        if self.position == NOTHING or at != (files.generation, files.sequence):
            raise self._refused(f"record {_shown(at)} does not follow {_shown(self.position)}")
        files.append(restamped(data, files.synced_records))
        self.folding.apply(record.handed_end, record.groups)

    def replace(self, data: bytes) -> None:
        """Begin another file with a snapshot, which replaces all earlier records. Raises OSError,
        and JournalRefused for a record that is no snapshot, or none of a newer generation."""
        record, at = self._intact(data)
        newest = self.files.generation_max
        if not record.flags or record.sequence or at.generation <= newest:
            raise self._refused(
                f"record {_shown(at)} is no snapshot of a generation after {named(newest)}"
            )
        self.files.begin(record.generation, restamped(data, 0))
        self.files.corrupt = ""  # the leader has said all of it again
        self.folding = Folding()
        self.folding.apply(record.handed_end, record.groups)

    def close(self) -> None:
        self.files.close()

    def validate(self) -> None:
        self.files.validate()

    def _intact(self, data: bytes) -> tuple[JournalRecord, Position]:
        record = decode_record(data, 0)
        if record is None or record.length != len(data):
            raise self._refused(f"{len(data)} bytes that are not one intact record")
        return record, Position(record.generation, record.sequence)

    def _refused(self, fault: str) -> JournalRefused:
        return JournalRefused(self.files.directory, fault)


def _shown(position: Position) -> str:
    return f"{named(position.generation)}/{position.sequence}"
