"""One topic of an official nsqd, rebuilt as a topic of ours in a directory that nobody reads yet.

The old files are read twice: first to learn which records are the same message (`merge.py`), then
to write what is stored. Memory is what `merge.py` says, one part of what `_Sorter` has, and one
batch.

Messages keep ids, timestamps and attempts as values of their own in the batches. The batches
themselves bear new ids and the time of the take-over, because both must rise along a log. Ids that
are given from then on are above all that came in, so that no client sees one twice.
"""

import os
import struct
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import NamedTuple

import msgspec

from penstock import limits
from penstock.broker.partition.journal import Journal
from penstock.broker.topics import directories
from penstock.broker.topics.topic_file import ChannelEntry, TopicFile, write_topic_file
from penstock.clock import Clock
from penstock.errors import StorageError
from penstock.ids.guid import TICK_SHIFT, IdRange, tick_of
from penstock.kernel import Section, encode_batch
from penstock.log.disk import Disk, read_file
from penstock.log.fold import ChannelState, Group, state_entries
from penstock.log.partition import PartitionLog
from penstock.log.segment import LogSettings
from penstock.takeover.diskqueue import HEAD_BYTES, NO_ID, Record
from penstock.takeover.diskrecords import Tally
from penstock.takeover.merge import Entry, Merge, Segment
from penstock.takeover.oldtopics import OldQueue, OldTopic, QueueReport

BATCH_BYTES = 256 * limits.KIB  # of bodies: what a reader loads at a time
BATCH_COUNT = 4096
PROGRESS_COUNT = 4096  # records between two reports of progress
PART_BYTES = 16 * limits.MIB  # of old data for each part: half a million entries at the very worst
BUFFER_BYTES = 32 * limits.KIB  # of a part in memory
PARTS_MAX = 4096  # 1 GiB of files is one part's share then; memory is what gives way
_ENTRY = struct.Struct("<QQIHH")  # id, digest, ordinal, queue, attempts


class Progress(NamedTuple):
    topic: str
    bytes_done: int
    bytes_total: int


@dataclass(slots=True)
class BuildSettings:
    node_id: int
    clock: Clock
    log: LogSettings = field(default_factory=LogSettings)
    journal_bytes_max: int = limits.JOURNAL_BYTES_MAX
    all_bad: bool = False  # read .bad files from their beginning
    on_progress: Callable[[Progress], None] = lambda _: None


class TopicReport(msgspec.Struct):
    name: str
    queues: list[QueueReport]
    stored: int  # messages in the log
    shared: int  # records that are another one's copy, and so are stored with it


@dataclass(eq=False)
class TopicBuild:
    _disk: Disk
    _source: str
    _topics_path: str
    _topic: OldTopic
    _ids: IdRange
    _settings: BuildSettings
    _advance: Callable[[int], None]

    def __post_init__(self) -> None:
        disk, source, topic = self._disk, self._source, self._topic
        self._directory = directories.topic_directory(self._topics_path, topic.name)
        self._now_ns = self._settings.clock.wall_ns()
        self._id_end = tick_of(self._now_ns) + limits.ID_BORROW_TICKS_MAX << TICK_SHIFT
        # The largest first: most of what others want stands in it. Ties by name.
        self._channels = sorted(
            topic.channels.values(), key=lambda one: (-one.unread_bytes(disk, source), one.channel)
        )
        self._queues = [*self._channels, topic.own]
        self._tallies = [Tally() for _ in self._queues]

    def run(self) -> TopicReport:
        """Everything is durable on return, except the directory's own name. Raises OSError and
        StorageError."""
        self._disk.mkdir(self._directory)
        merge = self._merge()
        layout = merge.layout()
        partition = directories.partition_directory(self._directory)
        log = PartitionLog.create(self._disk, partition, self._settings.log, self._file().owner())
        try:
            self._write_log(log, merge, layout.segments)
            if log.written_end != layout.end:
                raise StorageError(self._source, "a queue has changed while it was read")
            log.close()
        except (OSError, StorageError):
            with suppress(StorageError):  # it is incomplete, and removed with all the rest
                log.destroy()
            raise
        hands_all = self._channels and not self._topic.own.paused
        handed_end = layout.end if hands_all else layout.handed_end
        self._write_journal(partition, handed_end, layout.states)
        write_topic_file(self._disk, self._directory, self._file())
        read = sum(tally.messages for tally in self._tallies)
        reports = [
            queue.report(tally) for queue, tally in zip(self._queues, self._tallies, strict=True)
        ]
        reports.sort(key=lambda report: report.name)
        return TopicReport(self._topic.name, reports, layout.end, read - layout.end)

    # --- the first reading ---

    def _merge(self) -> Merge:
        data_bytes = sum(queue.data_bytes(self._disk, self._source) for queue in self._queues)
        sorter = _Sorter(self._disk, self._directory, data_bytes)
        for number, (queue, tally) in enumerate(zip(self._queues, self._tallies, strict=True)):
            for ordinal, record in enumerate(self._read(queue, tally)):
                if record.id == NO_ID:
                    continue  # it is like no other
                if self._ids.last_id < record.id < self._id_end:  # not from a damaged clock
                    self._ids.last_id = record.id  # new ids are to be above it
                sorter.add(Entry(record.id, _digest(record), number, ordinal, record.attempts))
        sizes = [tally.messages for tally in self._tallies]
        merge = Merge(sizes[:-1], sizes[-1])
        for part in sorter.parts():
            merge.settle(part)
        return merge

    def _read(self, queue: OldQueue, tally: Tally) -> Generator[Record]:
        done = 0
        records = queue.read(self._disk, self._source, tally, self._settings.all_bad)
        for ordinal, record in enumerate(records):
            yield record
            done += HEAD_BYTES + len(record.body)
            if ordinal % PROGRESS_COUNT == 0:
                self._advance(done)
                done = 0
        self._advance(done)

    # --- the second ---

    def _write_log(self, log: PartitionLog, merge: Merge, segments: list[Segment]) -> None:
        """Queues that stand in several segments are read side by side."""
        writer = _LogWriter(log, self._ids, self._now_ns, self._settings.log.segment_bytes_max)
        read = [0] * len(self._queues)
        with ExitStack() as stack:
            opened = [closing(self._read(queue, Tally())) for queue in self._queues]
            readers = [stack.enter_context(one) for one in opened]
            for number, _, end in segments:  # what a queue stores itself all stands in segments
                owners = merge.owners[number][read[number] : end]
                for owner, record in zip(owners, readers[number], strict=False):
                    if owner == number:
                        writer.put(record)
                read[number] = end
            for number, queue in enumerate(self._queues):
                if read[number] + sum(1 for _ in readers[number]) != len(merge.owners[number]):
                    raise StorageError(self._source, f"{queue.name} has changed while it was read")
        writer.flush()

    def _write_journal(self, partition: str, handed_end: int, states: list[ChannelState]) -> None:
        groups = [Group(number, state_entries(state)) for number, state in enumerate(states, 1)]
        journal, _ = Journal.open(self._disk, partition, self._settings.journal_bytes_max)
        try:
            journal.begin(lambda: (handed_end, groups))
            journal.files.sync()
        finally:
            journal.close()

    def _file(self) -> TopicFile:
        return TopicFile(
            name=self._topic.name,
            identity=f"{self._settings.node_id:03x}-{self._now_ns:016x}",
            created_ns=self._now_ns,
            paused=self._topic.own.paused,
            channel_number_next=len(self._channels) + 1,
            channels=[
                ChannelEntry(queue.channel, number, self._now_ns, queue.paused)
                for number, queue in enumerate(self._channels, 1)
            ],
        )


class _Sorter:
    """Groups records that may be the same message, without holding all of them: every record goes
    into one of several parts by its identity. Parts that grow go to files, which are useless after
    the process has ended and are never synced."""

    def __init__(self, disk: Disk, directory: str, data_bytes: int) -> None:
        self._disk = disk
        self._directory = directory
        self._buffers = [bytearray() for _ in range(min(data_bytes // PART_BYTES + 1, PARTS_MAX))]
        self._written = [0] * len(self._buffers)

    def add(self, entry: Entry) -> None:
        part = entry.digest % len(self._buffers)
        buffer = self._buffers[part]
        buffer += _ENTRY.pack(entry.id, entry.digest, entry.ordinal, entry.queue, entry.attempts)
        if len(buffer) >= BUFFER_BYTES and len(self._buffers) > 1:
            self._write(part)

    def _path(self, part: int) -> str:
        return os.path.join(self._directory, f"sort-{part}.tmp")

    def _write(self, part: int) -> None:
        path, buffer = self._path(part), self._buffers[part]
        at = self._written[part]
        with closing(self._disk.open(path, write=True) if at else self._disk.create(path)) as file:
            file.pwritev((bytes(buffer),), at, len(buffer))
        self._written[part] += len(buffer)
        buffer.clear()

    def parts(self) -> Iterator[Iterator[Entry]]:
        """Each part once; its file is removed then."""
        for part, buffer in enumerate(self._buffers):
            data = bytes(buffer)
            if self._written[part]:
                path = self._path(part)
                data = read_file(self._disk, path, self._written[part]) + data
                self._disk.unlink(path)
            buffer.clear()
            yield (
                Entry(id, digest, queue, ordinal, attempts)
                for id, digest, ordinal, queue, attempts in _ENTRY.iter_unpack(data)
            )


class _LogWriter:
    """Gathers messages into batches."""

    def __init__(self, log: PartitionLog, ids: IdRange, now_ns: int, sync_bytes: int) -> None:
        self._log = log
        self._ids = ids
        self._now_ns = now_ns
        self._sync_bytes = sync_bytes
        self._records: list[Record] = []
        self._bytes = 0

    def put(self, record: Record) -> None:
        self._records.append(record)
        self._bytes += len(record.body)
        if self._bytes >= BATCH_BYTES or len(self._records) >= BATCH_COUNT:
            self.flush()

    def flush(self) -> None:
        records, self._records, self._bytes = self._records, [], 0
        if not records:
            return
        log, ids = self._log, self._ids
        base_offset, base_id = log.written_end, ids.take(len(records), self._now_ns)
        batch = encode_batch(
            [record.body for record in records],
            base_offset,
            base_id,
            self._now_ns,
            log.synced_end,
            sections=_sections(records),
        )
        log.write(
            (batch,), len(batch), base_offset, len(records), base_id, ids.last_id, self._now_ns
        )
        if log.unsynced_bytes >= self._sync_bytes:
            log.sync()  # a file at a time, so that few are open and the disk is kept busy


def _sections(records: list[Record]) -> dict[int, dict[int, int | bytes]]:
    sections: dict[int, dict[int, int | bytes]] = {
        Section.TIMESTAMP: {n: record.timestamp_ns for n, record in enumerate(records)},
        Section.ID: {n: record.id for n, record in enumerate(records) if record.id != NO_ID},
        Section.ATTEMPTS: {
            n: record.attempts for n, record in enumerate(records) if record.attempts
        },
    }
    return {type_: table for type_, table in sections.items() if table}


def _digest(record: Record) -> int:
    digest = blake2b(record.timestamp_ns.to_bytes(8, "little", signed=True), digest_size=8)
    digest.update(record.body)
    return int.from_bytes(digest.digest(), "little")
