"""The small JSON files: `topics/<topic>/topic.json` and `node.json`.

Both are replaced whole: written beside, synced, renamed, and the directory synced. A reader sees
the old file or the new one. Each ends with its checksum (`log/seal.py`): one wrong bit in a name
would be another channel. Unknown keys are refused rather than dropped: a newer version wrote them,
and writing the file back without them would lose what they mean.

`topic.json` of one topic, and what becomes of a write that fails.

A change that cannot be written is refused and taken back. The file may all the same hold it: its
old content is put back, and that may fail as well. So the topic is written again as it is in
memory, about once a second, until the disk has taken it. `/ping` names the failure until then.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec

from penstock import limits
from penstock.broker.health import Trouble
from penstock.broker.topics.settings import ChannelSettings, TopicSettings
from penstock.errors import StorageError, TopicDamaged
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.head import LogOwner
from penstock.log.seal import seal, unseal

if TYPE_CHECKING:
    from penstock.broker.topics.topic import Topic


FORMAT_VERSION = 3  # of topic.json
SEVERAL_VERSION = 2  # of a topic with several partitions, or an extended one
PLACED_VERSION = 3  # of one whose replicas a cluster places
# Of node.json, and so of the directory: segments may have heads since 2, batches of one message the
# short form since 3.
NODE_VERSION = 3
FILE_BYTES_MAX = 16 * 1024 * 1024  # far above any real one: 64-byte names, some 150 bytes a channel
_DOCUMENT_BYTES_MAX = FILE_BYTES_MAX - 1024  # leaves room for the checksum
TOPIC_FILE = "topic.json"
NODE_FILE = "node.json"


class ChannelEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    number: int  # names the channel in the journal; never given out twice in a topic
    created_ns: int
    paused: bool = False
    settings: ChannelSettings = msgspec.field(default_factory=ChannelSettings)
    skipped: bool | msgspec.UnsetType = msgspec.UNSET  # absent: false
    skipped_partitions: list[int] | msgspec.UnsetType = msgspec.UNSET  # of those that are not whole
    skips_tests: bool | msgspec.UnsetType = msgspec.UNSET  # absent: false


class Marks(msgspec.Struct, forbid_unknown_fields=True):
    """The marks of `retention.py`: offsets, and the time of each."""

    age: list[tuple[int, int]] = []
    retain: list[tuple[int, int]] = []


class TopicFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    identity: str  # of the log: a topic that was deleted and made again has another
    created_ns: int
    version: int = 1
    paused: bool = False
    deleted: bool = False  # being removed; a start finishes it
    partitions: int = 1
    channel_number_next: int = 1
    settings: TopicSettings = msgspec.field(default_factory=TopicSettings)
    channels: list[ChannelEntry] = []
    age_marks: list[tuple[int, int]] = []  # of `retention.py`: offset, and when it was seen
    retain_marks: list[tuple[int, int]] = []  # the same, for retention
    # The marks of all partitions but the first, by number; absent where there is one.
    more_marks: dict[int, Marks] | msgspec.UnsetType = msgspec.UNSET
    # Over how many partitions keys are spread; absent where there is one.
    hash_partitions: int | msgspec.UnsetType = msgspec.UNSET
    # The same for numbering producers, once a cluster has rehashed the keys.
    producer_partitions: int | msgspec.UnsetType = msgspec.UNSET
    extended: bool | msgspec.UnsetType = msgspec.UNSET  # messages have headers; absent: they don't
    # A cluster says which replicas of which partitions are here; absent: all are, and no others.
    replicated: bool | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="placed")

    def __post_init__(self) -> None:
        if not 1 <= self.hash_count <= self.partitions <= limits.PARTITIONS_MAX:
            raise ValueError(f"{self.partitions} partitions, {self.hash_count} of them for keys")

    @property
    def hash_count(self) -> int:
        unset = self.hash_partitions is msgspec.UNSET
        return self.partitions if unset else cast(int, self.hash_partitions)

    def owner(self, partition: int = 0) -> LogOwner:
        return LogOwner(self.name, partition, self.identity)

    def marks(self, partition: int) -> Marks:
        if partition == 0:
            return Marks(self.age_marks, self.retain_marks)
        more = {} if self.more_marks is msgspec.UNSET else self.more_marks
        return more.get(partition, Marks())


class NodeFile(msgspec.Struct, forbid_unknown_fields=True):
    node_id: int
    created_ns: int
    version: int = NODE_VERSION
    clean: bool = False  # the last stop was orderly, so everything is on the disk


_Content = TypeVar("_Content", TopicFile, NodeFile)


def read_topic_file(disk: Disk, directory: str) -> TopicFile:
    """Raises TopicDamaged when it is corrupt, else StorageError."""
    return _read(disk, os.path.join(directory, TOPIC_FILE), TopicFile)


def read_node_file(disk: Disk, directory: str) -> NodeFile:
    return _read(disk, os.path.join(directory, NODE_FILE), NodeFile)


def write_topic_file(disk: Disk, directory: str, content: TopicFile) -> None:
    """Raises StorageError, also for what a start could not read: the old file stays then."""
    document = check_topic_file(directory, content)
    _replace(disk, os.path.join(directory, TOPIC_FILE), seal(document))


def check_topic_file(directory: str, content: TopicFile) -> bytes:
    """The document, which a start can read. Raises StorageError."""
    path = os.path.join(directory, TOPIC_FILE)
    document = msgspec.json.encode(content)
    if len(document) > _DOCUMENT_BYTES_MAX:
        raise StorageError(path, f"would be larger than {_DOCUMENT_BYTES_MAX} bytes")
    try:
        msgspec.json.decode(document, type=TopicFile)
    except msgspec.DecodeError as error:
        raise StorageError(path, f"would not be valid: {error}") from error
    return document


def write_node_file(disk: Disk, directory: str, content: NodeFile) -> None:
    _replace(disk, os.path.join(directory, NODE_FILE), seal(msgspec.json.encode(content)))


def _read(disk: Disk, path: str, kind: type[_Content]) -> _Content:
    damaged = TopicDamaged if kind is TopicFile else StorageError
    try:
        document = unseal(read_file(disk, path, FILE_BYTES_MAX))
        _check_version(path, document, NODE_VERSION if kind is NodeFile else FORMAT_VERSION)
        return msgspec.json.decode(document, type=kind)
    except OSError as error:
        failed = damaged if error.errno == errno.EIO else StorageError
        raise failed(path, f"cannot be read: {error}") from error
    except (ValueError, msgspec.DecodeError) as error:
        raise damaged(path, f"is corrupt: {error}") from error


class _Versioned(msgspec.Struct):
    version: int


def _check_version(path: str, document: bytes, newest: int) -> None:
    """An intact file of another version is no damage of one topic: it is the whole directory's."""
    version = msgspec.json.decode(document, type=_Versioned).version
    if not 1 <= version <= newest:
        known = "1" if newest == 1 else f"1 to {newest}"
        raise StorageError(path, f"has format version {version}, not {known}")


def _replace(disk: Disk, path: str, data: bytes) -> None:
    try:
        before = read_file(disk, path, FILE_BYTES_MAX) if disk.exists(path) else None
        replace_file(disk, path, data)
        try:
            disk.sync_directory(os.path.dirname(path))
        except OSError:
            if before is not None:  # a start must not find what was refused, least a deletion
                replace_file(disk, path, before)
            raise
    except OSError as error:
        raise StorageError(path, f"cannot be written: {error}") from error


class TopicStore:
    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        self.failed = False
        self.kept = True  # False: nothing is written, as the topic has no replica here

    def write_or(self, undo: Callable[[], object]) -> None:
        """Write the state in memory; when that fails, undo the change and raise StorageError."""
        try:
            self.write(self._topic.file())
        except StorageError:
            undo()
            raise

    def write(self, file: TopicFile) -> None:
        """Raises StorageError. A file that a start could not read is refused, and no trouble."""
        document = check_topic_file(self._topic.directory, file)
        if not self.kept:
            return
        try:
            path = os.path.join(self._topic.directory, TOPIC_FILE)
            _replace(self._topic.context.disk, path, seal(document))
        except StorageError as error:
            self.failed = True
            reason = f"{error}; changes are refused"
            self._topic.context.health.report(self._topic.name, Trouble.TOPIC_FILE, reason)
            self._topic.touch()  # `settle` is called
            raise
        if self.failed:
            self.failed = False
            self._topic.context.health.clear(self._topic.name, Trouble.TOPIC_FILE)

    def settle(self) -> bool:
        """Write again after a failure. True when the file is as the topic is."""
        if self.failed:
            try:
                self.write(self._topic.file())
            except StorageError:
                return False  # `write` has reported it
        return True
