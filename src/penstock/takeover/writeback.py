"""The way back: our topics as a data path that an official nsqd can be started on.

Each channel gets a queue file with a copy of every message that it still wants, with id, timestamp
and attempts; the topic's own queue gets what no channel has been handed. A message that was in
flight counts one more attempt, as after a kill.

What the old format has no place for, and the report says how often it was met: the time a delayed
message is due (nsqd delivers it at once), keys, headers and trace ids. Settings of topics, history
that is already consumed, and ephemeral topics and channels stay behind. Nor does it know
partitions: their messages follow one another in one queue.

All is written to `TARGET.unfinished`, synced, and renamed to TARGET at the end; so TARGET is
complete or not there. Our own files are locked and only read, except that opening a log after a
kill cuts what an unfinished write left, as any start does.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import msgspec

from penstock import limits
from penstock.broker.commits.record import prepared_commits
from penstock.broker.partition.journal import Journal
from penstock.broker.topics import directories
from penstock.broker.topics.topic_file import TOPIC_FILE, TopicFile, read_topic_file
from penstock.errors import StorageError
from penstock.kernel import Section, Stray
from penstock.log.disk import Disk, lock_directory
from penstock.log.fold import ChannelState, Folded, clamped
from penstock.log.messages import Message, messages_of
from penstock.log.partition import PartitionLog
from penstock.log.segment import LogSettings
from penstock.takeover import takeover
from penstock.takeover.diskqueue import (
    FILE_BYTES_MAX,
    Metadata,
    OldChannel,
    OldTopic,
    QueueWriter,
    Record,
    queue_name,
    write_metadata,
)
from penstock.wire.names import is_ephemeral

UNFINISHED = ".unfinished"
VERSION = "1.3.0"  # of nsqd, in nsqd.dat; nsqd itself does not look at it
_EXTRAS = (Section.KEY, Section.HEADERS, Section.TRACE)


class QueueWritten(msgspec.Struct):
    name: str
    messages: int = 0
    delayed: int = 0  # whose delay is lost


Made = tuple[QueueWriter, QueueWritten]


class TopicWritten(msgspec.Struct):
    name: str
    queues: list[QueueWritten]
    damaged: list[tuple[int, int, int]] = []  # partition, and offsets that could not be read
    with_extras: int = 0  # messages with a key, headers or a trace id


class WriteBackReport(msgspec.Struct):
    target: str
    topics: list[TopicWritten] = []
    largest_bytes: int = 0  # of a body
    notes: list[str] = []

    @property
    def messages(self) -> int:
        return sum(queue.messages for topic in self.topics for queue in topic.queues)


@dataclass(eq=False)
class WriteBack:
    """`_on_progress` receives the number of messages read."""

    _disk: Disk
    _source: str
    _target: str
    _wall_ns: int
    _file_bytes_max: int = FILE_BYTES_MAX
    _on_progress: Callable[[int], None] = lambda _: None

    def __post_init__(self) -> None:
        self._staging = self._target + UNFINISHED
        self._seen = 0
        self._report = WriteBackReport(self._target)

    def run(self) -> WriteBackReport:
        """Raises StorageError, also when a daemon has the directory."""
        topics_path = os.path.join(self._source, directories.TOPICS)
        if not self._disk.is_directory(topics_path):
            raise StorageError(self._source, "is no data path of Penstock: it has no topics")
        lock = lock_directory(self._disk, self._source)
        try:
            begun = ""
            if self._disk.exists(os.path.join(self._source, takeover.COMMIT)):
                begun = "a take-over of nsqd's data"
            elif prepared_commits(self._disk, self._source):
                begun = "a commit of staged blocks"
            if begun:
                raise StorageError(self._source, f"{begun} is not finished: start nsqd once")
            self._run(topics_path)
        except OSError as error:
            raise StorageError(self._target, f"cannot be written: {error}") from error
        finally:
            lock.release()
        return self._report

    def _run(self, topics_path: str) -> None:
        disk = self._disk
        self._make_room()
        topics = []
        for name in sorted(disk.listdir(topics_path)):
            directory = os.path.join(topics_path, name)
            topic = self._topic_of(directory)
            if topic is not None:
                topics.append(topic)
        write_metadata(disk, self._staging, Metadata(topics, VERSION))
        disk.sync_directory(self._staging)
        if disk.exists(self._target):
            disk.rmdir(self._target)
        disk.rename(self._staging, self._target)
        disk.sync_directory(os.path.dirname(self._target) or ".")

    def _make_room(self) -> None:
        disk = self._disk
        if disk.exists(self._target) and (
            not disk.is_directory(self._target) or disk.listdir(self._target)
        ):
            raise StorageError(self._target, "is there already, and not empty")
        if disk.exists(self._staging):
            directories.remove_tree(disk, self._staging)
        disk.mkdir(self._staging)

    def _topic_of(self, directory: str) -> OldTopic | None:
        disk = self._disk
        if not disk.exists(os.path.join(directory, TOPIC_FILE)):
            return None  # an interrupted creation, or an ephemeral topic
        file = read_topic_file(disk, directory)
        if file.deleted or is_ephemeral(file.name):
            return None
        if file.replicated is True:
            raise StorageError(directory, "is of a cluster, and from one there is no way back")
        report = TopicWritten(file.name, [])
        self._report.topics.append(report)
        made = [self._new_queue(report, name) for name in (*(c.name for c in file.channels), "")]
        for number in range(file.partitions):  # one after the other: nsqd has one queue for all
            logs = directories.open_logs(
                disk, directory, file, LogSettings(), self._wall_ns, [number]
            )
            with closing(logs[number]) as log:
                partition = directories.partition_directory(directory, number)
                journal, folded = Journal.open(disk, partition, limits.JOURNAL_BYTES_MAX)
                journal.close()
                self._copy(log, self._queues(file, log, folded, made), report, number)
        for writer, _ in made:
            writer.close()
        channels = [OldChannel(channel.name, channel.paused) for channel in file.channels]
        return OldTopic(file.name, file.paused, channels)

    def _queues(
        self, file: TopicFile, log: PartitionLog, folded: Folded | None, made: list[Made]
    ) -> list[_Queue]:
        """As `Topic` restores the channels of a partition."""
        start, end = log.start_offset, log.written_end
        states = []
        for channel in file.channels:
            known = folded.channels.get(channel.number) if folded is not None else None
            if known is None:
                if end:  # else it is a partition that came after the channel
                    self._report.notes.append(
                        f"{file.name}:{channel.name}: nothing is known of its position; it gets "
                        "all that is stored"
                    )
                known = ChannelState(start, start, (), ())
            states.append(clamped(known, start, end)[0])
        handed_end = end
        if not states or file.paused:
            handed_end = min(folded.handed_end, end) if folded is not None else start
            handed_end = max([handed_end, start, *(state.next for state in states)])
        own = ChannelState(handed_end, handed_end, (), ())
        wanted = [*((state, handed_end) for state in states), (own, end)]
        return [
            _Queue(one, state, to, self._wall_ns)
            for one, (state, to) in zip(made, wanted, strict=True)
        ]

    def _new_queue(self, report: TopicWritten, channel: str) -> Made:
        name = queue_name(report.name, channel)
        report.queues.append(QueueWritten(name))
        writer = QueueWriter(self._disk, self._staging, name, self._file_bytes_max)
        return writer, report.queues[-1]

    def _copy(
        self, log: PartitionLog, queues: list[_Queue], report: TopicWritten, partition: int
    ) -> None:
        floor = min(queue.floor for queue in queues)
        for _, batch in log.intact_batches(floor):  # the log notes those that are corrupt
            for message in messages_of(batch, floor):
                taken = [queue.take(message) for queue in queues]
                if any(taken):
                    report.with_extras += any(one in message.sections for one in _EXTRAS)
                    self._report.largest_bytes = max(self._report.largest_bytes, len(message.body))
                self._seen += 1
                self._on_progress(self._seen)
        report.damaged += [(partition, *one[:2]) for one in log.damaged if one[1] > floor]


class _Queue:
    """The messages that one channel wants, asked in the order of offsets."""

    def __init__(self, made: Made, state: ChannelState, end: int, wall_ns: int) -> None:
        self._writer, self._written = made
        self._state = state
        self._end = end
        self._wall_ns = wall_ns
        self._strays = {stray.offset: stray for stray in state.strays}
        self._starts = [start for start, _ in state.finished]
        self.floor = min([state.low, *self._strays])

    def take(self, message: Message) -> bool:
        """False when it is not wanted."""
        offset, id = message.offset, message.id
        attempts, due_ns = message.number(Section.ATTEMPTS), message.number(Section.DUE)
        stray = self._strays.get(offset)
        if stray is not None:
            attempts, id = stray.attempts, stray.id
            due_ns = stray.due_ns if stray.state == Stray.DELAYED else 0
        elif offset < self._state.low or offset >= self._end or self._is_finished(offset):
            return False
        elif offset < self._state.next:
            attempts += 1  # it was in flight
        attempts = min(attempts, limits.ATTEMPTS_MAX)
        self._writer.put(Record(message.timestamp_ns, attempts, id, message.body))
        self._written.messages += 1
        self._written.delayed += due_ns > self._wall_ns
        return True

    def _is_finished(self, offset: int) -> bool:
        number = bisect_right(self._starts, offset) - 1
        return number >= 0 and offset < self._state.finished[number][1]
