"""The contents of an official nsqd's data path: topics, channels and their queues.

`nsqd.dat` names topics and channels, also those without a message. Queue files of a topic or
channel that it does not name are taken over too when they hold data: a kill left them, before nsqd
could write the name down, or after a deletion before the files were gone, and nobody can tell
which. Messages are not dropped on a guess; the report says so, and a channel that nobody wants is
deleted with one request.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from penstock.log.disk import Disk
from penstock.takeover.diskqueue import Metadata, OldFiles, QueueFiles, Record, queue_name
from penstock.takeover.diskrecords import Tally, read_queue, unread_bytes
from penstock.wire.names import is_ephemeral, is_valid_name


class QueueReport(msgspec.Struct):
    name: str  # topic or topic:channel
    files: list[str]
    found: Tally


@dataclass(slots=True)
class OldQueue:
    """One topic's or channel's queue. Its files may have two names, from Windows and from
    elsewhere."""

    topic: str
    channel: str  # empty: the topic's own
    paused: bool = False
    files: list[QueueFiles] = field(default_factory=list)

    @property
    def name(self) -> str:
        return queue_name(self.topic, self.channel)

    def data_bytes(self, disk: Disk, source: str) -> int:
        names = [name for one in self.files for name in (*one.data.values(), *one.bad.values())]
        return sum(disk.size(os.path.join(source, name)) for name in names)

    def unread_bytes(self, disk: Disk, source: str) -> int:
        """Without finished messages."""
        return sum(unread_bytes(disk, source, one) for one in self.files)

    def read(self, disk: Disk, source: str, tally: Tally, all_bad: bool) -> Iterator[Record]:
        for one in self.files:
            yield from read_queue(disk, source, one, tally, all_bad)

    def report(self, tally: Tally) -> QueueReport:
        return QueueReport(self.name, [name for one in self.files for name in one.all], tally)


@dataclass(slots=True)
class OldTopic:
    own: OldQueue
    channels: dict[str, OldQueue] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.own.topic

    @property
    def queues(self) -> list[OldQueue]:
        return [*self.channels.values(), self.own]


class Survey:
    def __init__(self, disk: Disk, source: str, files: OldFiles, metadata: Metadata | None) -> None:
        self.topics: dict[str, OldTopic] = {}
        self.notes: list[str] = []
        self._disk = disk
        self._source = source
        self._has_metadata = metadata is not None
        if metadata is None:
            self.notes.append("there is no nsqd.dat: topics and channels are named by their files")
        else:
            self._add_named(metadata)
        for one in files.queues:
            self._add_files(one)

    def _add_named(self, metadata: Metadata) -> None:
        for topic in metadata.topics or ():
            if not self._is_kept("topic", topic.name):
                continue
            known = self._topic(topic.name)
            known.own.paused |= topic.paused
            for channel in topic.channels or ():
                if self._is_kept("channel", channel.name):
                    queue = known.channels.setdefault(
                        channel.name, OldQueue(topic.name, channel.name)
                    )
                    queue.paused |= channel.paused

    def _is_kept(self, kind: str, name: str) -> bool:
        if not is_valid_name(name):
            self.notes.append(f"{kind} name {name!r} is not valid: skipped")
            return False
        if is_ephemeral(name):
            self.notes.append(f"{kind} {name} is ephemeral: skipped")
            return False
        return True

    def _topic(self, name: str) -> OldTopic:
        return self.topics.setdefault(name, OldTopic(OldQueue(name, "")))

    def _add_files(self, files: QueueFiles) -> None:
        if is_ephemeral(files.topic) or is_ephemeral(files.channel):
            self.notes.append(f"{files.name}: an ephemeral queue has no messages to keep")
            return
        topic = self.topics.get(files.topic)
        known = topic is not None and (not files.channel or files.channel in topic.channels)
        if not known and self._has_metadata:
            named = [*files.data.values(), *files.bad.values()]
            if not any(self._disk.size(os.path.join(self._source, name)) for name in named):
                return
            self.notes.append(
                f"{files.name}: nsqd.dat does not name it, but it has messages: taken over. Delete "
                "it if nobody wants them"
            )
        topic = self._topic(files.topic)
        queue = topic.own
        if files.channel:
            queue = topic.channels.setdefault(files.channel, OldQueue(files.topic, files.channel))
        queue.files.append(files)
