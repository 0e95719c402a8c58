"""Deleted topics, and the ends of their logs: a reader can tell whether it had read all.

The newest are known; of others nothing is. The file `ended` has a line for each, a
sealed JSON object, appended before the deletion is decided: the end of a topic that is still there
says nothing, but a deletion whose end is unknown would be taken for a loss. A line that is torn
or corrupt is passed over. Ephemeral topics are not in the file, as their readers expect no end.
Each node of a cluster knows the ends of the partitions that it led.

A deletion never fails for this file: it may be the one that makes room on a full disk. What could
not be written is written with the next look.
"""

import logging
import os
from collections.abc import Mapping
from contextlib import closing

import msgspec

from penstock import limits
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.seal import seal, unseal
from penstock.wire.names import is_ephemeral

ENDED_FILE = "ended"

_log = logging.getLogger("penstock.broker")


class _Line(msgspec.Struct):
    name: str
    identity: str
    ends: tuple[int | None, ...]  # by partition; None: another node led it


class EndedTopics:
    def __init__(
        self, disk: Disk, data_path: str, count_max: int = limits.ENDED_TOPICS_MAX
    ) -> None:
        self._disk = disk
        self._path = os.path.join(data_path, ENDED_FILE)
        self._count_max = count_max
        self._ends: dict[tuple[str, str], dict[int, int]] = {}  # the oldest first
        self._size = 0  # of the file
        self._stale = False  # it is not as the memory is

    def open(self) -> None:
        """Read the file. A start continues without it."""
        if not self._disk.exists(self._path):
            return
        try:
            data = read_file(self._disk, self._path, 2 * limits.ENDED_FILE_BYTES_MAX)
        except OSError as error:
            _log.warning("%s: where deleted topics ended is not known: %s", self._path, error)
            self._stale = True
            return
        self._size, self._stale = len(data), not data.endswith(b"\n")
        for line in data.splitlines():
            try:
                found = msgspec.json.decode(unseal(line), type=_Line)
            except (ValueError, msgspec.DecodeError) as error:
                _log.warning("%s: a line is skipped: %s", self._path, error)
                self._stale = True
            else:
                ends = {n: end for n, end in enumerate(found.ends) if end is not None}
                self._note(found.name, found.identity, ends)

    def add(self, name: str, identity: str, ends: Mapping[int, int]) -> None:
        known = self._ends.get((name, identity))
        ends = {**(known or {}), **ends}
        if ends == known:
            return
        self._note(name, identity, ends)
        if is_ephemeral(name):
            return
        line = _line(name, identity, ends)
        if self._stale or not self._size or self._size + len(line) > limits.ENDED_FILE_BYTES_MAX:
            self._stale = True
            self.settle()
            return
        try:
            with closing(self._disk.open(self._path, write=True)) as file:
                file.pwritev((line,), self._size, len(line))
                file.fdatasync()
        except OSError as error:
            self._failed(error)
        else:
            self._size += len(line)

    def settle(self) -> None:
        """Repeat a failed write: the whole file, without the oldest entries if room is short."""
        if not self._stale:
            return
        kept = {key: ends for key, ends in self._ends.items() if not is_ephemeral(key[0])}
        lines = {key: _line(*key, ends) for key, ends in kept.items()}
        while sum(map(len, lines.values())) > limits.ENDED_FILE_BYTES_MAX // 2:
            for key in list(lines)[: len(lines) // 2 + 1]:
                del lines[key], self._ends[key]
        data = b"".join(lines.values())
        try:
            replace_file(self._disk, self._path, data)
            self._disk.sync_directory(os.path.dirname(self._path))
        except OSError as error:
            self._failed(error)
        else:
            self._size, self._stale = len(data), False

    def _failed(self, error: OSError) -> None:
        if not self._stale:
            _log.warning("%s: written later: %s", self._path, error)
        self._stale = True

    def _note(self, name: str, identity: str, ends: dict[int, int]) -> None:
        self._ends.pop((name, identity), None)
        self._ends[name, identity] = ends
        while len(self._ends) > self._count_max:
            del self._ends[next(iter(self._ends))]

    def logs_of(self, names: set[str]) -> dict[str, dict[str, dict[int, int]]]:
        """The end of each log, by name, identity and partition."""
        found: dict[str, dict[str, dict[int, int]]] = {}
        for (name, identity), ends in self._ends.items():
            if name in names:
                found.setdefault(name, {})[identity] = ends
        return found


def _line(name: str, identity: str, ends: Mapping[int, int]) -> bytes:
    by_partition = tuple(map(ends.get, range(max(ends, default=-1) + 1)))
    return seal(msgspec.json.encode(_Line(name, identity, by_partition))) + b"\n"
