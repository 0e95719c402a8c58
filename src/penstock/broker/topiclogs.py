"""The logs of a topic's partitions when a broker starts: all of them are opened, or none is."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import TYPE_CHECKING

from penstock.broker import directories
from penstock.broker.topicdirs import close_all
from penstock.errors import PartitionMissing
from penstock.log.names import segment_bases
from penstock.log.partition import PartitionLog

if TYPE_CHECKING:
    from penstock.broker.topicfile import TopicFile
    from penstock.log.disk import Disk
    from penstock.log.settings import LogSettings

_log = logging.getLogger("penstock.broker")


def open_logs(
    disk: Disk,
    directory: str,
    file: TopicFile,
    settings: LogSettings,
    wall_ns: int,
    numbers: Iterable[int] | None = None,
) -> dict[int, PartitionLog]:
    """By number; of all partitions, or of these. Raises StorageError, and then none is open."""
    logs: dict[int, PartitionLog] = {}
    try:
        for number in range(file.partitions) if numbers is None else numbers:
            path = directories.partition_directory(directory, number)
            _check_there(disk, path, directory, number, file.name)
            log = PartitionLog.open(disk, path, settings, wall_ns, file.owner(number))
            logs[number] = log
            _report_cut(file.name, log)
    except BaseException:
        close_all(logs.values())
        raise
    return logs


def _check_there(disk: Disk, path: str, directory: str, number: int, name: str) -> None:
    if not disk.is_directory(path):
        raise PartitionMissing(
            path,
            f"the directory of partition {number} of topic {name} is gone, and its messages with "
            f"it. Put it back, or remove {directory} to give them up",
        )


def stored_messages(disk: Disk, directory: str, settings: LogSettings) -> int:
    """How many there are in a directory without `topic.json`."""
    stored = 0
    for number in directories.partition_numbers(disk, directory):
        path = directories.partition_directory(directory, number)
        if segment_bases(disk.listdir(path)):
            log = PartitionLog.open(disk, path, settings)
            stored += log.written_end
            log.close()
    return stored


def _report_cut(name: str, log: PartitionLog) -> None:
    """An unfinished write at the tail is ordinary after a crash; people still want to know."""
    cut = log.report.cut
    if cut is not None and not cut.unfinished:
        # Not worth a warning: overwritten files leave such bytes after every kill.
        _log.info("%s: %d bytes behind offset %d were cleared", name, cut.bytes_cut, cut.offset)
    elif cut is not None:
        _log.warning(
            "%s: an unfinished write of %d bytes was cut at offset %d: %s",
            name,
            cut.bytes_cut,
            cut.offset,
            cut.reason,
        )
