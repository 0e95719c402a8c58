"""A data path as official nsqd leaves it, made by the writer of the same format."""

import os
from collections.abc import Mapping, Sequence

from penstock.log.disk import Disk
from penstock.takeover.diskqueue import (
    Metadata,
    OldChannel,
    OldTopic,
    QueueWriter,
    Record,
    encode_record,
    write_metadata,
)

START_NS = 1_700_000_000_000_000_000


def record(number: int, body: bytes | None = None, attempts: int = 0) -> Record:
    """The message of that number: same number, same message."""
    id = 0x18A2_0000_0000_0000 + number * 0x1000
    return Record(START_NS + number, attempts, id, body or b"message %d" % number)


def records(numbers: Sequence[int], attempts: int = 0) -> list[Record]:
    return [record(number, attempts=attempts) for number in numbers]


def joined(given: Sequence[Record]) -> bytes:
    return b"".join(map(encode_record, given))


def write_queue(
    disk: Disk, path: str, name: str, given: Sequence[Record], file_bytes_max: int = 1 << 20
) -> None:
    writer = QueueWriter(disk, path, name, file_bytes_max)
    for one in given:
        writer.put(one)
    writer.close()


def write_file(disk: Disk, path: str, name: str, data: bytes) -> None:
    file = disk.create(os.path.join(path, name))
    file.pwritev((data,), 0, len(data))
    file.fdatasync()
    file.close()


def write_old_path(
    disk: Disk,
    path: str,
    queues: Mapping[str, Sequence[Record]],
    paused: Sequence[str] = (),
    file_bytes_max: int = 1 << 20,
) -> None:
    """`queues` by name, `topic` or `topic:channel`; all of it durable."""
    disk.mkdir(path)
    topics: dict[str, OldTopic] = {}
    for name, given in queues.items():
        topic_name, _, channel = name.partition(":")
        topic = topics.setdefault(
            topic_name, OldTopic(topic_name, topic_name in paused, channels=[])
        )
        if channel and topic.channels is not None:
            topic.channels.append(OldChannel(channel, name in paused))
        write_queue(disk, path, name, given, file_bytes_max)
    write_metadata(disk, path, Metadata(list(topics.values()), "1.3.0"))
    disk.sync_directory(path)
    disk.sync_directory(os.path.dirname(path) or "/")
