"""Checking a data directory byte by byte: every checksum, and whether the files agree.

After a clean stop every byte is accounted for, so anything odd is a finding. While the log runs,
or after it was killed, the tail may be unfinished: what stands above the highest synced end that
is noted anywhere is a note then, not a finding (`recovery.py` argues why). Below it, nothing is
excused.
"""

import json
import os
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock import limits
from penstock.kernel import BatchCheck, check_batch, id_at
from penstock.log import names
from penstock.log.damage import LostRange, is_lost, read_lost
from penstock.log.disk import Disk, File, read_file
from penstock.log.errors import ReplicaUnreadable
from penstock.log.fold import corrupt_generation
from penstock.log.head import LogOwner, read_beginning
from penstock.log.index import ENTRY_BYTES, IndexEntry, decode_entries
from penstock.log.inspect import FoundFiles, PartitionDirectory, read_owner, read_queues
from penstock.log.journal_file import JournalFile, read_journal
from penstock.log.ledger import Corrupt, Unknown, read_ledger
from penstock.log.mark import COPY_BYTES, COPY_POSITIONS, FILE_BYTES, Mark, decode, decode_file
from penstock.log.replica_file import read_replica
from penstock.log.scan import Batch, Blocks, walk
from penstock.log.seal import unseal

JOURNAL_BYTES_READ_MAX = limits.JOURNAL_BYTES_READ_MAX
STAGE_BYTES_READ_MAX = 1 << 30


class VerifyFinding(NamedTuple):
    path: str
    position: int | None
    from_offset: int | None
    to_offset: int | None
    reason: str


class PartitionSummary(NamedTuple):
    topic: str
    partition: int
    path: str
    segments: int
    from_offset: int
    to_offset: int
    batches: int
    bytes_checked: int
    clean: bool


@dataclass(slots=True)
class VerifyReport:
    """`findings` are faults; `notes` are facts worth knowing."""

    findings: list[VerifyFinding] = field(default_factory=list)
    notes: list[VerifyFinding] = field(default_factory=list)
    partitions: list[PartitionSummary] = field(default_factory=list)
    bytes_checked: int = 0

    def find(
        self,
        path: str,
        position: int | None,
        reason: str,
        offsets: tuple[int, int] | None = None,
        is_note: bool = False,
    ) -> None:
        from_offset, to_offset = offsets if offsets is not None else (None, None)
        row = VerifyFinding(path, position, from_offset, to_offset, reason)
        (self.notes if is_note else self.findings).append(row)


def verify(disk: Disk, found: FoundFiles) -> VerifyReport:
    report = VerifyReport()
    for path in found.settings:
        _verify_settings(disk, path, report)
    for directory in found.directories:
        PartitionCheck(disk, directory, report).run()
    for path in found.files:
        _verify_file(disk, path, report)
    for path in found.stages:
        _verify_stage(disk, path, report)
    return report


def _verify_settings(disk: Disk, path: str, report: VerifyReport) -> None:
    data = read_file(disk, path, JOURNAL_BYTES_READ_MAX)
    report.bytes_checked += len(data)
    try:
        json.loads(unseal(data))  # what is sealed ends with a brace, so it is an object
    except ValueError as error:
        report.find(path, None, str(error))


def _verify_stage(disk: Disk, path: str, report: VerifyReport) -> None:
    """A staged block: a line of JSON, and batches whose partition is not known yet."""
    try:
        data = read_file(disk, path, STAGE_BYTES_READ_MAX)
    except FileNotFoundError:  # committed by a running daemon, or given up
        report.find(path, None, "the file is gone meanwhile", is_note=True)
        return
    report.bytes_checked += len(data)
    line, _, body = data.partition(b"\n")
    try:
        head = json.loads(unseal(line))
    except ValueError as error:
        report.find(path, 0, str(error))
        return
    position = 0
    while position < len(body):
        result, length = check_batch(body, position)
        if result != BatchCheck.INTACT:
            at = len(line) + 1 + position
            report.find(path, at, "no intact batch where one must be")
            return
        position += length
    if position != head.get("bytes"):
        report.find(path, None, f"{position} bytes of batches, and its line says otherwise")


def _verify_ledger(disk: Disk, path: str, report: VerifyReport) -> None:
    data = read_file(disk, path, limits.LEDGER_BYTES_READ_MAX)
    report.bytes_checked += len(data)
    try:
        found = read_ledger(data)
    except (Corrupt, Unknown) as error:
        report.find(path, None, f"the ledger cannot be believed: {error}")
        return
    if found.end < len(data):
        report.find(path, found.end, "an unfinished write", is_note=True)


def _verify_file(disk: Disk, path: str, report: VerifyReport) -> None:
    """Check one file alone. Rules that involve its neighbours are not checked."""
    directory, name = os.path.split(path)
    check = PartitionCheck(disk, PartitionDirectory("", 0, directory), report)
    base, kind = names.segment_base(name), names.kind_of(name)
    if base is not None:
        check.check_segment(base, None)
        check.judge_tail()
    elif name == names.MARK:
        check.check_mark([name])
    elif name == names.LEDGER:
        _verify_ledger(disk, path, report)
    elif kind == "journal":
        check.check_journals([name])
    elif kind == "index":
        entries = decode_entries(read_file(disk, path, JOURNAL_BYTES_READ_MAX))
        if [e.offset for e in entries] != sorted({e.offset for e in entries}):
            report.find(path, None, "the offsets of the index do not rise")
    elif kind == "stage":
        _verify_stage(disk, path, report)
    elif kind == "spare":
        report.find(path, None, "a spare file holds no data", is_note=True)
    elif kind == "cut":
        report.find(path, None, "what a cut has removed is no part of a log", is_note=True)
    else:
        _verify_settings(disk, path, report)


class PartitionCheck:
    """Checks one partition. The mark and the indexes are read before their segments, so that writes
    of a running daemon meanwhile contradict nothing."""

    def __init__(self, disk: Disk, directory: PartitionDirectory, report: VerifyReport) -> None:
        self._disk = disk
        self._directory = directory
        self._report = report
        self._clean = False
        self._believes_headers = True  # what they say is synced is so on this disk
        self._mark = Mark()
        self._synced_seen = 0
        self._expected: int | None = None  # the offset that must come next
        self._last_id = 0
        self._batches = 0
        self._bytes = 0
        self._holes: list[tuple[str, int, int, int | None]] = []  # path, position, from, to
        self._owner: LogOwner | None = None  # by topic.json
        self._lost: list[LostRange] = []  # given up: no finding any more

    def run(self) -> None:
        inside = sorted(self._disk.listdir(self._directory.path))
        bases = names.segment_bases(inside)
        self._read_lost(inside)
        self._read_replica(inside)
        self._owner = read_owner(self._disk, self._directory)
        self.check_mark(inside)
        for number, base in enumerate(bases):
            limit = bases[number + 1] if number + 1 < len(bases) else None
            try:
                self.check_segment(base, limit)
            except FileNotFoundError:  # retention of a running daemon was faster
                path = self._path(names.segment_name(base))
                self._report.find(path, None, "the file is gone meanwhile", is_note=True)
                self._expected = limit
        self.judge_tail()
        self.check_journals(inside)
        if names.PRODUCERS in inside:
            _verify_settings(self._disk, self._path(names.PRODUCERS), self._report)
        for name in inside:
            self._check_other(name, set(bases))
        self._report.bytes_checked += self._bytes
        self._report.partitions.append(
            PartitionSummary(
                self._directory.topic,
                self._directory.partition,
                self._directory.path,
                len(bases),
                bases[0] if bases else 0,
                self._expected or 0,
                self._batches,
                self._bytes,
                self._clean,
            )
        )

    def _path(self, name: str) -> str:
        return os.path.join(self._directory.path, name)

    def _read_lost(self, inside: list[str]) -> None:
        if names.LOST not in inside:
            return
        path = self._path(names.LOST)
        _verify_settings(self._disk, path, self._report)
        self._lost = read_lost(self._disk, self._directory.path)
        for known in self._lost:
            offsets = (known.from_offset, known.to_offset)
            self._report.find(path, None, f"given up: {known.reason}", offsets, is_note=True)

    def _read_replica(self, inside: list[str]) -> None:
        if names.REPLICA not in inside:
            return
        path = self._path(names.REPLICA)
        self._bytes += self._disk.size(path)
        try:
            replica = read_replica(self._disk, self._directory.path)
        except ReplicaUnreadable as error:
            self._report.find(path, None, error.reason)
            replica = None
        self._believes_headers = replica is not None and replica.believes_headers

    # --- the mark ---

    def check_mark(self, inside: list[str]) -> None:
        path = self._path(names.MARK)
        if names.MARK not in inside:
            self._report.find(path, None, "there is no mark")
            return
        data = read_file(self._disk, path, FILE_BYTES + 1)
        self._bytes += len(data)
        state = decode_file(data)
        copies = [decode(data[at : at + COPY_BYTES]) for at in COPY_POSITIONS]
        if state.mark is not None:
            self._mark = state.mark
            self._synced_seen = state.mark.synced_end
            # "Clean" is written to both copies, so a clean one beside a corrupt one says so as
            # well.
            self._clean = any(copy == self._mark._replace(clean=True) for copy in copies)
            if None not in copies and copies[0] != copies[1]:
                self._clean = False
        for number, copy in enumerate(copies):
            if copy is None:
                unfinished = not self._clean and state.mark is not None
                reason = f"copy {number} of the mark is not intact"
                self._report.find(path, COPY_POSITIONS[number], reason, is_note=unfinished)
        if any(data[COPY_BYTES : COPY_POSITIONS[1]]):
            self._report.find(path, COPY_BYTES, "bytes between the copies are not zero")
        if len(data) != FILE_BYTES:
            self._report.find(path, len(data), f"the mark is not {FILE_BYTES} bytes long")

    # --- segments ---

    def check_segment(self, base: int, limit: int | None) -> None:
        path = self._path(names.segment_name(base))
        index = self._read_index(base, limit)
        with closing(self._disk.open(path)) as file:
            blocks = Blocks(file, file.size())
            start = self._check_head(path, file, base, limit)
            self._bytes += blocks.end
            if start < 0:
                self._expected = limit
                return
            position = self._check_batches(path, blocks, start, base, limit, index)
            self._check_rest(path, blocks, position, limit)
        index_path = self._path(names.index_name(base))
        corrupt = {at for hole_path, at, _, _ in self._holes if hole_path == path}
        for entry in index.values():
            if entry.position in corrupt:
                continue  # that no batch stands there is said already
            beyond = limit is None and not self._clean and entry.position >= position
            self._report.find(
                index_path,
                None,
                f"the entry for position {entry.position} points to no batch",
                (entry.offset, entry.offset + 1),
                is_note=beyond,
            )

    def _check_head(self, path: str, file: File, base: int, limit: int | None) -> int:
        """The position of the first batch; -1 when the segment belongs to another log."""
        beginning = read_beginning(file, base)
        if beginning.corrupt:
            is_note = limit is None and not self._clean
            self._report.find(path, 0, "the head of the segment is not intact", is_note=is_note)
        if self._owner is None or beginning.owner in (None, self._owner):
            return beginning.start
        offsets = (base, base + 1 if limit is None else limit)
        reason = f"the segment belongs to another log ({beginning.owner})"
        is_note = is_lost(self._lost, *offsets)
        self._report.find(path, 0, reason, offsets, is_note=is_note)
        return -1

    def _check_batches(
        self,
        path: str,
        blocks: Blocks,
        start: int,
        base: int,
        limit: int | None,
        index: dict[int, IndexEntry],
    ) -> int:
        """Walk all batches; returns where they end."""
        position, expected = start, base
        for batch in walk(blocks, start, base, limit):
            if batch.header.base_offset != expected:
                self._holes.append((path, position, expected, batch.header.base_offset))
            self._check_batch(path, batch)
            self._check_entry(base, batch, index)
            position, expected = batch.end_position, batch.end_offset
        if limit is not None and expected > limit:
            self._report.find(path, position, "offsets appear twice", (limit, expected))
        elif limit is not None and expected < limit:
            self._holes.append((path, position, expected, limit))
        self._expected = expected if limit is None else limit
        return position

    def _check_batch(self, path: str, batch: Batch) -> None:
        header = batch.header
        offsets = (header.base_offset, batch.end_offset)
        if header.base_id <= self._last_id:
            self._report.find(path, batch.position, "ids do not rise", offsets)
        if header.synced_end > header.base_offset:
            self._report.find(path, batch.position, "the synced end is ahead of the log", offsets)
        self._last_id = id_at(header.base_id, header.count - 1)
        if self._believes_headers:
            self._synced_seen = max(self._synced_seen, header.synced_end)
        self._batches += 1

    def _check_rest(self, path: str, blocks: Blocks, position: int, limit: int | None) -> None:
        used = blocks.used_end(position)
        if used == position or (self._holes and self._holes[-1][:2] == (path, position)):
            return
        end = self._expected or 0
        is_note = limit is not None or not self._clean or is_lost(self._lost, end, end + 1)
        reason = f"{used - position} bytes behind the last batch are none of the log's"
        self._report.find(path, position, reason, is_note=is_note)

    def judge_tail(self) -> None:
        """Holes below the highest synced end are damage, the first one above it is the unfinished
        tail; and the log must reach as far as it was synced."""
        end = self._expected or 0
        for path, position, from_offset, to_offset in self._holes:
            if not self._clean and self._is_intact_now(path, position, from_offset):
                continue
            is_note = from_offset >= self._synced_seen and not self._clean
            reason = "an unfinished write" if is_note else "no intact batch where one must be"
            offsets = (from_offset, from_offset + 1 if to_offset is None else to_offset)
            is_note = is_note or is_lost(self._lost, *offsets)
            self._report.find(path, position, reason, offsets, is_note=is_note)
        if end < self._synced_seen or (self._clean and end != self._mark.written_end):
            known = max(self._synced_seen, self._mark.written_end)
            self._report.find(
                self._directory.path,
                None,
                f"the log ends at offset {end}, but {known} is noted as its end",
                (min(end, known), max(end, known)),
                is_note=end < known and is_lost(self._lost, end, known),
            )

    def _is_intact_now(self, path: str, position: int, offset: int) -> bool:
        """A running daemon may have written the batch after its position was read."""
        try:
            file = self._disk.open(path)
        except FileNotFoundError:
            return True
        with closing(file):
            batch = Blocks(file, file.size()).intact(position)
            return batch is not None and batch.header.base_offset == offset

    # --- indexes ---

    def _read_index(self, base: int, limit: int | None) -> dict[int, IndexEntry]:
        """Entries by position; faults of the file as such are reported here."""
        path = self._path(names.index_name(base))
        if not self._disk.exists(path):
            if self._disk.size(self._path(names.segment_name(base))):
                self._report.find(path, None, "no index; it will be rebuilt", is_note=True)
            return {}
        data = read_file(self._disk, path, JOURNAL_BYTES_READ_MAX)
        self._bytes += len(data)
        entries = decode_entries(data)
        if len(data) % ENTRY_BYTES:
            is_note = limit is None and not self._clean
            self._report.find(path, len(data), "the index ends inside an entry", is_note=is_note)
        by_position = {entry.position: entry for entry in entries}
        if len(by_position) != len(entries):
            self._report.find(path, None, "two entries for one position")
        return by_position

    def _check_entry(self, base: int, batch: Batch, index: dict[int, IndexEntry]) -> None:
        entry = index.pop(batch.position, None)
        header = batch.header
        wanted = IndexEntry(header.base_offset, batch.position, header.timestamp_ns, header.base_id)
        if entry is not None and entry != wanted:
            path = self._path(names.index_name(base))
            reason = f"the entry for position {batch.position} is not what the segment says"
            self._report.find(path, None, reason, (header.base_offset, batch.end_offset))

    # --- the rest ---

    def check_journals(self, inside: list[str]) -> None:
        journals: dict[str, JournalFile] = {}
        corrupt: dict[str, int] = {}  # generations of which something is missing, by file
        for name in inside:
            if names.kind_of(name) == "journal":
                data = read_file(self._disk, self._path(name), JOURNAL_BYTES_READ_MAX)
                self._bytes += len(data)
                journals[name] = journal = read_journal(data)
                corrupt[name] = corrupt_generation(data)
        newest = max((journal.generation for journal in journals.values()), default=0)
        for name, journal in journals.items():
            if journal.problem:
                # An append may have been cut short: now, or before the newer generation began.
                is_current = journal.generation == newest
                is_note = (journal.is_torn and newest > 0) if not is_current else not self._clean
                is_note = is_note and corrupt[name] < max(newest, 1)
                self._report.find(
                    self._path(name), journal.end_position, journal.problem, is_note=is_note
                )

        self._check_floor(names.segment_bases(inside))

    def _check_floor(self, bases: list[int]) -> None:
        """Unfinished messages must be in the log, or a segment is missing at its beginning:
        retention removes only messages that the journal on disk calls finished."""
        start = bases[0] if bases else 0
        for queue in read_queues(self._disk, self._directory):
            if queue.lowest < start and not is_lost(self._lost, queue.lowest, start):
                reason = (
                    f"the log begins at offset {start}, and {queue.name} has not finished what is "
                    "gone"
                )
                self._report.find(self._directory.path, None, reason, (queue.lowest, start))

    def _check_other(self, name: str, bases: set[int]) -> None:
        path = self._path(name)
        kind = names.kind_of(name)
        if kind == "spare":
            self._report.find(path, None, "ignored: a spare file holds no data", is_note=True)
        elif kind == "cut":
            self._report.find(path, None, "ignored: what a cut has removed", is_note=True)
        elif kind == "index" and names.index_base(name) not in bases:
            self._report.find(path, None, "an index without a segment", is_note=True)
        elif kind in ("", "stage") and name not in names.OF_PARTITION:
            self._report.find(path, None, "not a file of a partition", is_note=True)
