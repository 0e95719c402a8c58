"""The files below a path: the partitions, segments and other files that `verify` and `dump`
inspect.

Looking takes no lock and writes nothing, so it can be done while a daemon owns the directory.
Files may come, grow and go meanwhile.

What a partition, or one of its files, says: rows for people and for scripts.

The names of the channels come from topic.json, and what they have not finished from the channel
journal.
"""

import json
import os
from collections.abc import Iterator
from contextlib import closing
from typing import Any, NamedTuple

from penstock import limits
from penstock.kernel import Section, id_to_hex
from penstock.log import names
from penstock.log.disk import Disk, File, read_file
from penstock.log.fold import ChannelState, Folded, fold
from penstock.log.head import LogOwner, read_beginning
from penstock.log.index import decode_entries
from penstock.log.journal_file import read_journal
from penstock.log.mark import COPY_BYTES, COPY_POSITIONS, decode
from penstock.log.messages import messages_of
from penstock.log.scan import Batch, Blocks, walk
from penstock.log.seal import unseal

TOPICS = "topics"
SETTINGS_FILES = ("node.json", "topic.json")


class PartitionDirectory(NamedTuple):
    topic: str
    partition: int
    path: str


class FoundFiles(NamedTuple):
    """The files to inspect. A single segment, index, mark or journal is in `files`, and so is the
    ledger."""

    directories: list[PartitionDirectory]
    settings: list[str]  # node.json, topic.json, commits
    files: list[str]
    stages: list[str]


class NothingThere(Exception):
    """Neither a data directory, nor a partition, nor a file of one."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path}: no data directory, topic, partition or file of one")
        self.path = path


def find(
    disk: Disk, path: str, topic: str | None = None, partition: int | None = None
) -> FoundFiles:
    """Everything under `path`, which may be a data directory, its topics, one topic, one partition
    or one file; only this topic and partition when they are given."""
    path = path.rstrip("/") or "/"
    if not disk.exists(path):
        raise NothingThere(path)
    if not disk.is_directory(path):
        if not is_known(os.path.basename(path)):
            raise NothingThere(path)
        return FoundFiles([], [], [path], [])
    found = _under(disk, path)
    directories = [
        directory
        for directory in found.directories
        if topic in (None, directory.topic) and partition in (None, directory.partition)
    ]
    wants_all = topic is None and partition is None
    if not directories and not (wants_all and found.settings):
        raise NothingThere(path)
    kept = {os.path.dirname(directory.path) for directory in directories}
    settings = [file for file in found.settings if wants_all or os.path.dirname(file) in kept]
    if not wants_all:
        return FoundFiles(directories, settings, [], [])
    return FoundFiles(directories, settings, found.files, found.stages)


def is_known(name: str) -> bool:
    fixed = (*names.OF_PARTITION, names.LEDGER, *SETTINGS_FILES)
    return name in fixed or names.kind_of(name) != ""


def _under(disk: Disk, path: str) -> FoundFiles:
    inside = disk.listdir(path)
    if TOPICS in inside and disk.is_directory(os.path.join(path, TOPICS)):
        found = _topics(disk, os.path.join(path, TOPICS))
        commits = _inside(disk, path, names.COMMITS, ".json")
        return found._replace(
            settings=_settings(path, inside) + commits + found.settings,
            files=[os.path.join(path, names.LEDGER)] if names.LEDGER in inside else [],
            stages=_inside(disk, path, names.STAGES, ".stage"),
        )
    if names.segment_bases(inside):
        topic = os.path.basename(os.path.dirname(os.path.abspath(path)))
        number = os.path.basename(path)
        return FoundFiles(
            [PartitionDirectory(topic, int(number) if number.isdecimal() else 0, path)], [], [], []
        )
    if os.path.basename(path) == TOPICS:
        return _topics(disk, path)
    return _topic(disk, path)


def _topics(disk: Disk, path: str) -> FoundFiles:
    parts = [_topic(disk, os.path.join(path, name)) for name in sorted(disk.listdir(path))]
    return FoundFiles(
        [directory for part in parts for directory in part.directories],
        [file for part in parts for file in part.settings],
        [],
        [],
    )


def _topic(disk: Disk, path: str) -> FoundFiles:
    if not disk.is_directory(path):
        return FoundFiles([], [], [], [])
    inside = disk.listdir(path)
    topic = os.path.basename(os.path.abspath(path))
    directories = [
        PartitionDirectory(topic, int(name), os.path.join(path, name))
        for name in sorted(inside)
        if name.isdecimal() and disk.is_directory(os.path.join(path, name))
    ]
    return FoundFiles(directories, _settings(path, inside), [], [])


def _inside(disk: Disk, path: str, directory_name: str, suffix: str) -> list[str]:
    directory = os.path.join(path, directory_name)
    if not disk.is_directory(directory):
        return []
    found = sorted(disk.listdir(directory))
    return [os.path.join(directory, name) for name in found if name.endswith(suffix)]


def _settings(path: str, inside: list[str]) -> list[str]:
    return [os.path.join(path, name) for name in SETTINGS_FILES if name in inside]


FILE_BYTES_READ_MAX = 1 << 30
Row = dict[str, Any]
_SECTION_NAMES = {section.value: section.name.lower() for section in Section}


def dump_partition(
    disk: Disk, directory: PartitionDirectory, from_offset: int = 0
) -> Iterator[Row]:
    """A row per message from `from_offset` on, and one per corrupt range."""
    bases = names.segment_bases(disk.listdir(directory.path))
    for number, base in enumerate(bases):
        limit = bases[number + 1] if number + 1 < len(bases) else None
        if limit is None or limit > from_offset:
            path = os.path.join(directory.path, names.segment_name(base))
            yield from dump_segment(disk, path, from_offset, limit)


def dump_segment(disk: Disk, path: str, from_offset: int, limit: int | None) -> Iterator[Row]:
    base = _base_of(os.path.basename(path))
    if base is None:
        raise ValueError(f"{path} is not named like a segment")
    with closing(disk.open(path)) as file:
        blocks = Blocks(file, file.size())
        expected = base
        for batch in walk(blocks, read_beginning(file, base).start, base, limit):
            if batch.header.base_offset != expected:
                yield {"hole": [expected, batch.header.base_offset], "path": path}
            expected = batch.end_offset
            if expected > from_offset:
                yield from _messages(file, batch, from_offset)
        if limit is not None and expected != limit:
            yield {"hole": [expected, limit], "path": path}


def _base_of(name: str) -> int | None:
    """The base offset of a segment, or of the removed part of one."""
    base = names.segment_base(name)
    return names.cut_base(name) if base is None else base


def _messages(file: File, batch: Batch, from_offset: int) -> Iterator[Row]:
    data = bytearray(batch.length)
    file.pread_into(data, batch.position)
    for message in messages_of(data, from_offset):
        yield {
            "offset": message.offset,
            "id": id_to_hex(message.id).decode(),
            "timestamp_ns": message.timestamp_ns,
            "batch": batch.header.base_offset,
            "position": batch.position,
            "size": len(message.body),
            "body": message.body,
            **{
                _SECTION_NAMES.get(section, str(section)): value
                for section, value in message.sections.items()
                if section not in (Section.ID, Section.TIMESTAMP)
            },
        }


def dump_file(disk: Disk, path: str, from_offset: int = 0) -> Iterator[Row]:
    name = os.path.basename(path)
    if _base_of(name) is not None:
        yield from dump_segment(disk, path, from_offset, None)
        return
    data = read_file(disk, path, FILE_BYTES_READ_MAX)
    if names.kind_of(name) == "index":
        yield from (entry._asdict() for entry in decode_entries(data))
    elif name == names.MARK:
        for number, at in enumerate(COPY_POSITIONS):
            mark = decode(data[at : at + COPY_BYTES])
            yield {"copy": number, **(mark._asdict() if mark else {"sound": False})}
    elif names.kind_of(name) == "journal":
        journal = read_journal(data)
        yield from (record._asdict() for record in journal.records)
        if journal.problem:
            yield {"position": journal.end_position, "problem": journal.problem}
    else:
        yield {"path": path, "bytes": len(data)}


TOPIC_FILE = "topic.json"


class Queue(NamedTuple):
    """A channel, or the topic's own queue where that holds messages."""

    name: str
    state: ChannelState

    @property
    def lowest(self) -> int:
        return min([self.state.low, *(stray.offset for stray in self.state.strays)])

    def wants(self, from_offset: int, to_offset: int) -> bool:
        if any(from_offset <= stray.offset < to_offset for stray in self.state.strays):
            return True
        offset = max(from_offset, self.state.low)
        for start, end in self.state.finished:
            if start <= offset < end:
                offset = end
        return offset < to_offset


def read_queues(disk: Disk, directory: PartitionDirectory) -> list[Queue]:
    """Empty when topic.json or the journal is unreadable. Raises OSError."""
    topic = _queues_of(disk, directory)
    state = _journal(disk, directory.path)
    if topic is None or state is None:
        return []
    channels, gathers = topic
    found = [
        Queue(f"channel {name}", state.channels[number])
        for name, number in channels
        if number in state.channels  # else it was made a moment ago
    ]
    if gathers:
        own = ChannelState(state.handed_end, state.handed_end, (), ())
        found.append(Queue("the topic's own queue", own))
    return found


def read_owner(disk: Disk, directory: PartitionDirectory) -> LogOwner | None:
    """The owner of the log according to topic.json; None when that is unreadable. Raises
    OSError."""
    document = _document(disk, directory)
    try:
        return LogOwner(str(document["name"]), directory.partition, str(document["identity"]))
    except KeyError:
        return None


def _queues_of(
    disk: Disk, directory: PartitionDirectory
) -> tuple[list[tuple[str, int]], bool] | None:
    topic = _document(disk, directory)
    try:
        channels = [(str(row["name"]), int(row["number"])) for row in topic.get("channels", ())]
    except (ValueError, KeyError, TypeError):
        return None
    if not topic:
        return None
    is_own = directory.topic.startswith("_")  # Penstock's own topics hold nothing back
    return channels, not is_own and bool(topic.get("paused") or not channels)


def _document(disk: Disk, directory: PartitionDirectory) -> dict[str, Any]:
    """Empty when it is not there or not intact: `verify` names that file itself."""
    path = os.path.join(os.path.dirname(directory.path), TOPIC_FILE)
    if not disk.exists(path):
        return {}
    try:
        document = json.loads(unseal(read_file(disk, path, limits.JOURNAL_BYTES_READ_MAX)))
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _journal(disk: Disk, directory: str) -> Folded | None:
    newest: Folded | None = None
    for name in disk.listdir(directory):
        if names.kind_of(name) != "journal":
            continue
        data = read_file(disk, os.path.join(directory, name), limits.JOURNAL_BYTES_READ_MAX)
        folded = fold(data)
        if folded is not None and (newest is None or folded.generation > newest.generation):
            newest = folded
    return newest
