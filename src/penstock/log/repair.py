"""Gives up the corrupt ranges of a partition, so that it is intact again: `penstock log repair`.

The daemon is stopped. The log is opened as a start opens it and read from end to end, so what is
given up is just what readers would be refused. Then, in this order:

1. The segment files that hold corrupt batches are copied aside, and the copies synced.
2. The ranges are added to the file `lost` (`damage.py`), in one step.

Killed before the second step, nothing has changed; after it, all has. No byte of the log is written
or moved, so nothing else can be lost, and the next start finds the end of the log by the rules of
`recovery.py`.
"""

import os
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from penstock import limits
from penstock.log.damage import LostRange, read_lost, write_lost
from penstock.log.disk import Disk, copy_bytes
from penstock.log.inspect import PartitionDirectory, read_owner, read_queues
from penstock.log.partition import PartitionLog

SET_ASIDE = "set-aside"  # in the data directory


class Loss(NamedTuple):
    topic: str
    partition: int
    from_offset: int
    to_offset: int
    reason: str
    unfinished_by: list[str]  # queues that lose messages by it
    segments: list[str]  # files that hold some of it

    @property
    def messages(self) -> int:
        return self.to_offset - self.from_offset


def find_losses(disk: Disk, directory: PartitionDirectory) -> list[Loss]:
    """Every corrupt range of a partition that was not given up before. Raises StorageError."""
    log = PartitionLog.open(disk, directory.path, owner=read_owner(disk, directory))
    try:
        deque(log.intact_batches(log.start_offset), maxlen=0)  # what is corrupt is noted
        queues = read_queues(disk, directory)
        return [
            Loss(
                directory.topic,
                directory.partition,
                start,
                end,
                reason,
                [queue.name for queue in queues if queue.wants(start, end)],
                [s.path for s in log.segments if s.from_offset < end and start < s.to_offset],
            )
            for start, end, reason in log.damaged
        ]
    finally:
        log.rest()


def give_up(
    disk: Disk, data_path: str, directory: PartitionDirectory, losses: Sequence[Loss], wall_ns: int
) -> list[str]:
    """Do it. Returns the copies that were made. Raises OSError."""
    target = os.path.join(data_path, SET_ASIDE, directory.topic, str(directory.partition))
    copies = []
    for path in sorted({path for loss in losses for path in loss.segments}):
        disk.mkdir(target)
        name = f"{os.path.basename(path)}.{wall_ns // limits.SECOND}"
        _copy(disk, path, os.path.join(target, name))
        copies.append(os.path.join(target, name))
    if copies:
        disk.sync_directory(target)
    lost = [LostRange(loss.from_offset, loss.to_offset, loss.reason, wall_ns) for loss in losses]
    write_lost(disk, directory.path, [*read_lost(disk, directory.path), *lost])
    return copies


def _copy(disk: Disk, source: str, target: str) -> None:
    with closing(disk.open(source)) as old, closing(disk.create(target)) as new:
        copy_bytes(old, 0, old.size(), new, 0)
        new.fdatasync()
