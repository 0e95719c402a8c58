"""The files of official nsqd: go-diskqueue's queues and `nsqd.dat`.

Each topic and each channel has a queue of its own, so a message that three channels want is stored
three times. All files lie in the data path side by side; NAME is `topic` or `topic:channel` (on
Windows `topic;channel`).

| file | content |
|---|---|
| `nsqd.dat` | topics and channels with their paused flags, JSON (`nsqd.<id>.dat` before 1.0) |
| `NAME.diskqueue.NNNNNN.dat` | records, a file after the other |
| `NAME.diskqueue.meta.dat` | where reader and writer stand |
| `NAME.diskqueue.NNNNNN.dat.bad` | a file that nsqd gave up on |
| `NAME.diskqueue.meta.dat.N.tmp`, `nsqd.dat.N.tmp` | left by a kill; hold nothing of their own |

A record, big-endian:

| offset | size | field |
|---:|---:|---|
| 0 | 4 | length of all that follows, 26 at least |
| 4 | 8 | timestamp, nanoseconds since 1970 |
| 12 | 2 | attempts so far |
| 14 | 16 | id, lower-case hex |
| 30 | length - 26 | body |

There is no checksum. The meta file is three lines: depth; read file, read position; write file,
write position. It is replaced by a rename after the data was synced, so it is never ahead of the
data and often behind: what lies behind the write position is readable all the same, and what was
read since the last sync is read again. A file whose number is below the read file was read to its
end; a read file that is gone was too.

nsqd loses messages where this reader does not: without a meta file it begins again and forgets the
data files, a bad length costs it the whole file (renamed to `.bad`), and it drops what is left
when its depth does not add up. Here the data files are what counts, and the meta file only tells
where to begin.
"""

import os
import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock import limits
from penstock.errors import StorageError
from penstock.log.disk import Disk, File, read_file, replace_file
from penstock.wire.names import is_valid_name

HEAD = struct.Struct(">IqH16s")  # length, timestamp, attempts, id
HEAD_BYTES = HEAD.size
LENGTH_BYTES = 4  # the length does not count itself
LENGTH_MIN = HEAD_BYTES - LENGTH_BYTES
NO_ID = -1  # of a record whose id cannot be read
METADATA_FILE = "nsqd.dat"
METADATA_BYTES_MAX = 256 * limits.MIB
FILE_BYTES_MAX = 100 * limits.MIB  # nsqd's --max-bytes-per-file
WRITE_BYTES = 256 * limits.KIB  # gathered before a write

_DATA = re.compile(r"(.+)\.diskqueue\.(\d{6,})\.dat(\.bad)?", re.DOTALL)
_META = re.compile(r"(.+)\.diskqueue\.meta\.dat", re.DOTALL)
_OLD_METADATA = re.compile(r"nsqd\.\d+\.dat")
_LEFTOVER = re.compile(r"(.+\.diskqueue\.meta|nsqd(\.\d+)?)\.dat\.-?\d+\.tmp", re.DOTALL)
_META_LINES = re.compile(rb"(-?\d{1,19})\n(\d{1,18}),(\d{1,18})\n(\d{1,18}),(\d{1,18})\n?")


class Record(NamedTuple):
    timestamp_ns: int
    attempts: int
    id: int
    body: bytes


class Meta(NamedTuple):
    depth: int
    read_file: int
    read_position: int
    write_file: int
    write_position: int


@dataclass(slots=True)
class QueueFiles:
    name: str  # as the files say it
    topic: str
    channel: str  # empty: the topic's own queue
    data: dict[int, str] = field(default_factory=dict)
    bad: dict[int, str] = field(default_factory=dict)
    meta: str = ""

    @property
    def all(self) -> list[str]:
        meta = [self.meta] if self.meta else []
        return [*self.data.values(), *self.bad.values(), *meta]


@dataclass(slots=True)
class OldFiles:
    """The files of a data path that belong to nsqd."""

    queues: list[QueueFiles] = field(default_factory=list)
    metadata: str = ""  # the file that names the topics, empty when there is none
    leftovers: list[str] = field(default_factory=list)  # nothing to read in them

    def __bool__(self) -> bool:
        return bool(self.queues or self.metadata)

    @property
    def all(self) -> list[str]:
        named = [name for queue in self.queues for name in queue.all]
        metadata = [self.metadata] if self.metadata else []
        return sorted([*named, *metadata, *self.leftovers])


# --- names ---


def list_old_files(names: Iterable[str]) -> OldFiles:
    """Sort the names in a data path. Those that are none of nsqd's are not in the answer."""
    found = OldFiles()
    queues: dict[str, QueueFiles] = {}
    old_metadata: list[str] = []
    for name in sorted(names):
        data, meta = _DATA.fullmatch(name), _META.fullmatch(name)
        if name == METADATA_FILE:
            found.metadata = name
        elif _OLD_METADATA.fullmatch(name):
            old_metadata.append(name)
        elif _LEFTOVER.fullmatch(name):
            found.leftovers.append(name)
        elif data is not None and (queue := _queue_of(queues, data[1])) is not None:
            (queue.bad if data[3] else queue.data)[int(data[2])] = name
        elif meta is not None and (queue := _queue_of(queues, meta[1])) is not None:
            queue.meta = name
    if not found.metadata and len(old_metadata) == 1:
        found.metadata = old_metadata.pop()
    found.leftovers += old_metadata
    found.queues = list(queues.values())
    return found


def _queue_of(queues: dict[str, QueueFiles], name: str) -> QueueFiles | None:
    """None for a name that no queue can have."""
    if name not in queues:
        topic, _, channel = name.replace(";", ":", 1).partition(":")
        named = [topic, channel] if ":" in name or ";" in name else [topic]
        if not all(is_valid_name(part) for part in named):
            return None
        queues[name] = QueueFiles(name, topic, channel)
    return queues[name]


def queue_name(topic: str, channel: str) -> str:
    return f"{topic}:{channel}" if channel else topic


def data_name(name: str, number: int) -> str:
    return f"{name}.diskqueue.{number:06d}.dat"


def meta_name(name: str) -> str:
    return f"{name}.diskqueue.meta.dat"


# --- the meta file ---


def parse_meta(data: bytes) -> Meta | None:
    """None when it is torn or is something else."""
    match = _META_LINES.fullmatch(data)
    return Meta(*(int(number) for number in match.groups())) if match else None


def format_meta(meta: Meta) -> bytes:
    return b"%d\n%d,%d\n%d,%d\n" % meta


# --- nsqd.dat ---


class OldChannel(msgspec.Struct):
    name: str
    paused: bool = False


class OldTopic(msgspec.Struct):
    name: str
    paused: bool = False
    channels: list[OldChannel] | None = None


class Metadata(msgspec.Struct):
    topics: list[OldTopic] | None = None
    version: str = ""


def read_metadata(disk: Disk, directory: str, name: str) -> Metadata:
    """Raises StorageError when it is incomplete: like nsqd, the caller stops there, because
    channels without messages are named nowhere else."""
    path = os.path.join(directory, name)
    try:
        return msgspec.json.decode(read_file(disk, path, METADATA_BYTES_MAX), type=Metadata)
    except OSError as error:
        raise StorageError(path, f"cannot be read: {error}") from error
    except (ValueError, msgspec.DecodeError) as error:
        reason = f"is not nsqd's metadata ({error}). Repair it; or move it away, and topics and"
        raise StorageError(
            path, f"{reason} channels are known by the names of their files"
        ) from error


def write_metadata(disk: Disk, directory: str, metadata: Metadata) -> None:
    """Raises OSError. The directory is not synced."""
    replace_file(disk, os.path.join(directory, METADATA_FILE), msgspec.json.encode(metadata))


# --- writing ---


def encode_record(record: Record) -> bytes:
    head = HEAD.pack(
        LENGTH_MIN + len(record.body), record.timestamp_ns, record.attempts, b"%016x" % record.id
    )
    return head + record.body


@dataclass(eq=False)
class QueueWriter:
    """Makes one queue anew, as nsqd would have. All of it counts only after `close`.

    A file ends with the record that takes it past its maximum: older nsqds know only by that
    where one ends, and newer ones look at its size.
    """

    _disk: Disk
    _directory: str
    _name: str
    _file_bytes_max: int = FILE_BYTES_MAX
    _file: File | None = None
    _gathered: list[bytes] = field(default_factory=list)
    _gathered_bytes: int = 0
    _number: int = 0
    _position: int = 0  # in the file, without what is gathered
    depth: int = 0

    def put(self, record: Record) -> None:
        data = encode_record(record)
        if self._position + self._gathered_bytes > self._file_bytes_max:
            self._finish_file()
            self._number += 1
            self._position = 0
        self._gathered.append(data)
        self._gathered_bytes += len(data)
        self.depth += 1
        if self._gathered_bytes >= WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        if self._file is None:
            name = data_name(self._name, self._number)
            self._file = self._disk.create(os.path.join(self._directory, name))
        self._file.pwritev((b"".join(self._gathered),), self._position, self._gathered_bytes)
        self._position += self._gathered_bytes
        self._gathered = []
        self._gathered_bytes = 0

    def _finish_file(self) -> None:
        if self._gathered:
            self._write()
        file, self._file = self._file, None
        if file is not None:
            try:
                file.fdatasync()
            finally:
                file.close()

    def close(self) -> None:
        """Data first, then the meta file that speaks of it."""
        self._finish_file()
        meta = Meta(self.depth, 0, 0, self._number, self._position)
        path = os.path.join(self._directory, meta_name(self._name))
        replace_file(self._disk, path, format_meta(meta))
