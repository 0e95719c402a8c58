"""Files that this node does not need any more, in `aside/` of the data directory.

A replica that is released, cannot be read or is copied again is moved here first, by one rename:
nothing of it is taken for a replica from then on. Its files go later.

| of | goes |
|---|---|
| a topic that was deleted | at once |
| anything else | ASIDE_KEPT_NS after the move, and at once while the disk is almost full |

What a start finds here counts from then on. Removing large files takes time, and the loop waits for
it: each look removes files for ASIDE_SLICE_NS, and one at least.
"""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from penstock.broker.topics.directories import remove_tree
from penstock.errors import StorageError
from penstock.limits import ASIDE_KEPT_NS, ASIDE_SLICE_NS

if TYPE_CHECKING:
    from penstock.clock import Clock
    from penstock.log.disk import Disk

ASIDE = "aside"
_log = logging.getLogger("penstock.broker")


class Aside:
    def __init__(self, disk: Disk, data_path: str, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._data_path = data_path
        self._path = os.path.join(data_path, ASIDE)
        self._due_ns: dict[str, int] = {}  # by name, when it goes; in the order of the moves
        self._is_read = False
        self._failed = ""  # what was logged last

    def move(self, path: str, name: str, kept_ns: int = ASIDE_KEPT_NS) -> str:
        """Returns where to. Raises StorageError, and then it stays."""
        disk, found, number = self._disk, name, 1
        try:
            if not disk.is_directory(self._path):
                disk.mkdir(self._path)
                disk.sync_directory(self._data_path)
            while disk.exists(os.path.join(self._path, found)):
                number += 1
                found = f"{name}.{number}"
            target = os.path.join(self._path, found)
            disk.rename(path, target)
            disk.sync_directory(self._path)
            disk.sync_directory(os.path.dirname(path))
        except OSError as error:
            raise StorageError(path, f"cannot be moved aside: {error}") from error
        self._due_ns[found] = self._clock.mono_ns() + kept_ns
        return target

    def settle(self, is_full: bool) -> None:
        now_ns = self._clock.mono_ns()
        until_ns = now_ns + (ASIDE_KEPT_NS if is_full else 0)
        try:
            self._read(now_ns)
            for name in [one for one, due_ns in self._due_ns.items() if due_ns <= until_ns]:
                if not self._remove_some(name, now_ns + ASIDE_SLICE_NS):
                    return
                del self._due_ns[name]
                _log.info("%s/%s is removed", ASIDE, name)
        except OSError as error:
            if self._failed != str(error):
                self._failed = str(error)
                _log.warning("%s cannot be cleared: %s", self._path, error)

    def _read(self, now_ns: int) -> None:
        if not self._is_read:
            there = self._disk.listdir(self._path) if self._disk.is_directory(self._path) else ()
            self._due_ns = dict.fromkeys(there, now_ns + ASIDE_KEPT_NS) | self._due_ns
            self._is_read = True

    def _remove_some(self, name: str, until_ns: int) -> bool:
        """True: everything is removed. Failures are retried, behind the others."""
        disk, path = self._disk, os.path.join(self._path, name)
        self._due_ns[name] = self._due_ns.pop(name)
        for one in disk.listdir(path):
            inner = os.path.join(path, one)
            remove_tree(disk, inner) if disk.is_directory(inner) else disk.unlink(inner)
            if self._clock.mono_ns() >= until_ns:
                return False
        disk.rmdir(path)
        return True
