"""The small JSON files: `topics/<topic>/topic.json` and `node.json`.

Both are replaced whole: written beside, synced, renamed, and the directory synced. A reader sees
the old file or the new one. Each ends with its checksum (`log/sealed.py`): one wrong bit in a name
would be another channel. Unknown keys are refused rather than dropped: a newer version wrote them,
and writing the file back without them would lose what they mean.
"""

from __future__ import annotations

import os
from typing import TypeVar

import msgspec

from penstock.broker.settings import ChannelSettings, TopicSettings
from penstock.errors import StorageError
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.sealed import seal, unseal

FORMAT_VERSION = 1
FILE_BYTES_MAX = 16 * 1024 * 1024  # far above any real one: 64-byte names, some 150 bytes a channel
TOPIC_FILE = "topic.json"
NODE_FILE = "node.json"


class ChannelEntry(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    number: int  # names the channel in the journal; never given out twice in a topic
    created_ns: int
    paused: bool = False
    settings: ChannelSettings = msgspec.field(default_factory=ChannelSettings)


class TopicFile(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    identity: str  # of the log: a topic that was deleted and made again has another
    created_ns: int
    version: int = FORMAT_VERSION
    paused: bool = False
    deleted: bool = False  # being removed; a start finishes it
    partitions: int = 1
    channel_number_next: int = 1
    settings: TopicSettings = msgspec.field(default_factory=TopicSettings)
    channels: list[ChannelEntry] = []


class NodeFile(msgspec.Struct, forbid_unknown_fields=True):
    node_id: int
    created_ns: int
    version: int = FORMAT_VERSION
    clean: bool = False  # the last stop was orderly, so everything is on the disk


_Content = TypeVar("_Content", TopicFile, NodeFile)


def read_topic_file(disk: Disk, directory: str) -> TopicFile:
    return _read(disk, os.path.join(directory, TOPIC_FILE), TopicFile)


def read_node_file(disk: Disk, directory: str) -> NodeFile:
    return _read(disk, os.path.join(directory, NODE_FILE), NodeFile)


def write_topic_file(disk: Disk, directory: str, content: TopicFile) -> None:
    _replace(disk, os.path.join(directory, TOPIC_FILE), seal(msgspec.json.encode(content)))


def write_node_file(disk: Disk, directory: str, content: NodeFile) -> None:
    _replace(disk, os.path.join(directory, NODE_FILE), seal(msgspec.json.encode(content)))


def _read(disk: Disk, path: str, kind: type[_Content]) -> _Content:
    try:
        document = unseal(read_file(disk, path, FILE_BYTES_MAX))
        content = msgspec.json.decode(document, type=kind)
    except OSError as error:
        raise StorageError(path, f"cannot be read: {error}") from error
    except (ValueError, msgspec.DecodeError) as error:
        raise StorageError(path, f"is not what this version writes: {error}") from error
    if content.version != FORMAT_VERSION:
        raise StorageError(path, f"has format version {content.version}, not {FORMAT_VERSION}")
    return content


def _replace(disk: Disk, path: str, data: bytes) -> None:
    try:
        replace_file(disk, path, data)
        disk.sync_directory(os.path.dirname(path))
    except OSError as error:
        raise StorageError(path, f"cannot be written: {error}") from error
