"""The directory of a new log: a mark that says it is empty, and a first segment without a byte."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from penstock.errors import WriteRefused
from penstock.log import names
from penstock.log.mark import Mark, MarkFile

if TYPE_CHECKING:
    from penstock.log.disk import Disk


def make_directory(disk: Disk, directory: str) -> None:
    """Durable on return. What an interrupted creation left is taken over. Raises OSError, and
    WriteRefused where messages are stored already."""
    disk.mkdir(directory)
    for name in disk.listdir(directory):
        path = os.path.join(directory, name)
        if names.segment_base(name) is not None and disk.size(path) > 0:
            raise WriteRefused(directory, f"there is a log already: {name}")
    MarkFile(disk, os.path.join(directory, names.MARK)).create(Mark(clean=True))
    file = disk.create(os.path.join(directory, names.segment_name(0)))
    try:
        file.fdatasync()
    finally:
        file.close()
    disk.sync_directory(directory)
    disk.sync_directory(os.path.dirname(directory) or ".")
