"""The directories of topics: made, removed, and tried again when either fails.

A creation that fails is refused. Then, about once a second, the directory is made once more in the
same steps and removed again, until that has succeeded; `/ping` names the trouble until then. The
`topic.json` of such a try says "deleted", so a start that finds one removes it.

A deletion is decided by what `topic.json` says. Files that are left of it are removed about once a
second, and `/ping` names them until they are gone; a start would go on with it, too.

| left in the directory | what goes first | so that a start after a crash |
|---|---|---|
| of a deletion | all but `topic.json` | finishes the deletion |
| of a creation that failed | `topic.json` | does not miss the log of a topic that never was |

The logs of a topic's partitions when a broker starts: all of them are opened, or none is.

Names and places in the data directory (docs/formats.md), and how a tree is removed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.health import Trouble
from penstock.broker.topics.topic_file import TOPIC_FILE, TopicFile, write_topic_file
from penstock.errors import PartitionMissing, StorageError
from penstock.log.disk import Disk
from penstock.log.names import segment_bases
from penstock.log.partition import NO_FILES, PartitionLog
from penstock.log.segment import LogSettings

if TYPE_CHECKING:
    from penstock.broker.context import Context


class TopicDirectories:
    def __init__(self, context: Context) -> None:
        options = context.options
        self._context = context
        self._disk = context.disk
        self.topics_path = os.path.join(context.data_path, TOPICS)
        self.settings = LogSettings(options.segment_bytes_max, options.segment_age_max_ns)
        self._unmade: dict[str, None] = {}  # topics whose creation failed, the oldest first
        self._left: dict[str, None] = {}  # topics that are gone, and files of them are not

    def path(self, name: str) -> str:
        return topic_directory(self.topics_path, name)

    def settle(self) -> None:
        for name in list(self._left)[: limits.TOPICS_RETRIED_MAX]:
            self.remove(name)
        for name in list(self._unmade):
            self._try_again(name)

    def clean(self, dry_run: bool) -> tuple[list[str], list[str]]:
        """Returns the removed topics, and those that failed or would be tried."""
        before = sorted(self._left)
        if not dry_run:
            for name in before:
                self.remove(name)
        left = sorted(self._left)
        return [name for name in before if name not in left], left

    # --- making ---

    def make(
        self,
        file: TopicFile,
        numbers: Iterable[int] | None = None,
        beside: Mapping[str, bytes] = NO_FILES,
    ) -> list[PartitionLog]:
        """The directory, with an empty log for each partition, or for these, and without
        `topic.json`. `beside`: files beside each log. Raises StorageError, and then no log is
        open."""
        directory = self.path(file.name)
        try:
            self._clear_away(file.name)
            self._note_removed(file.name)
            self._disk.mkdir(directory)
        except OSError as error:
            raise StorageError(directory, f"cannot be made: {error}") from error
        return self.add(file, range(file.partitions) if numbers is None else numbers, beside)

    def add(
        self, file: TopicFile, numbers: Iterable[int], beside: Mapping[str, bytes] = NO_FILES
    ) -> list[PartitionLog]:
        """Add empty logs for more partitions of a topic, durably. Files of an interrupted growth
        are taken over; messages in them would be foreign. Raises StorageError."""
        directory = self.path(file.name)
        logs: list[PartitionLog] = []
        try:
            for number in numbers:
                path = partition_directory(directory, number)
                owner = file.owner(number)
                logs.append(PartitionLog.create(self._disk, path, self.settings, owner, beside))
        except BaseException:
            close_all(logs)
            raise
        return logs

    def note_made(self, name: str) -> None:
        if name in self._unmade:
            del self._unmade[name]
            self._context.health.clear(name, Trouble.CREATION)

    def note_unmade(self, name: str, error: StorageError) -> None:
        self._unmade[name] = None
        self._context.health.report(name, Trouble.CREATION, f"it could not be made: {error}")
        if len(self._unmade) > limits.TOPICS_RETRIED_MAX:
            self.note_made(next(iter(self._unmade)))  # the others show the same

    def _try_again(self, name: str) -> None:
        now_ns = self._context.clock.wall_ns()
        file = TopicFile(name=name, identity="", created_ns=now_ns, deleted=True)
        try:
            for log in self.make(file):
                log.close()
            write_topic_file(self._disk, self.path(name), file)
            self._disk.sync_directory(self.topics_path)
            remove_tree(self._disk, self.path(name), last=TOPIC_FILE)
            self._disk.sync_directory(self.topics_path)
        except OSError as error:
            self.note_unmade(name, StorageError(self.path(name), str(error)))
        except StorageError as error:
            self.note_unmade(name, error)
        else:
            self.note_made(name)

    # --- removing ---

    def remove(self, name: str) -> None:
        """Remove all files of a deleted topic. Failures are retried later."""
        try:
            self._clear_away(name)
            self._disk.sync_directory(self.topics_path)
        except OSError as error:
            self._left.pop(name, None)
            self._left[name] = None  # behind the others
            reason = f"files of the deleted topic are left: {error}"
            self._context.health.report(name, Trouble.DELETION, reason)
        else:
            self._note_removed(name)

    def remove_unmade(self, name: str) -> None:
        """`note_unmade` follows, and retries the rest."""
        self._unmade[name] = None
        with suppress(OSError):
            self._clear_away(name)

    def _clear_away(self, name: str) -> None:
        present = self._context.topics.get(name)
        if present is not None and present.replicas:
            raise RuntimeError(f"{name}: the directory of a topic that there is")
        directory = self.path(name)
        if not self._disk.exists(directory):
            return
        path = os.path.join(directory, TOPIC_FILE)
        is_deletion = name in self._left or name not in self._unmade
        if not is_deletion and self._disk.exists(path):
            self._disk.unlink(path)
        remove_tree(self._disk, directory, last=TOPIC_FILE)

    def _note_removed(self, name: str) -> None:
        self._left.pop(name, None)
        self._context.health.clear(name, Trouble.DELETION)


def close_all(logs: Iterable[PartitionLog]) -> None:
    """After a failure: errors here are not the reported reason."""
    for log in logs:
        with suppress(StorageError):
            log.close()


_log = logging.getLogger("penstock.broker")


def open_logs(
    disk: Disk,
    directory: str,
    file: TopicFile,
    settings: LogSettings,
    wall_ns: int,
    numbers: Iterable[int] | None = None,
) -> dict[int, PartitionLog]:
    """Of all partitions, or of these. Raises StorageError, and then none is open."""
    logs: dict[int, PartitionLog] = {}
    try:
        for number in range(file.partitions) if numbers is None else numbers:
            path = partition_directory(directory, number)
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
    """The number of messages in a directory without `topic.json`."""
    stored = 0
    for number in partition_numbers(disk, directory):
        path = partition_directory(directory, number)
        if segment_bases(disk.listdir(path)):
            log = PartitionLog.open(disk, path, settings)
            stored += log.written_end
            log.close()
    return stored


def _report_cut(name: str, log: PartitionLog) -> None:
    """An unfinished write at the tail is ordinary after a crash; people still want to know."""
    cut = log.removed_tail
    if cut is not None and not cut.unfinished:
        # Not worth a warning: overwritten files leave such bytes after every kill.
        _log.info("%s: %d bytes behind offset %d were cleared", name, cut.bytes_cut, cut.offset)
    elif cut is not None:
        text = "%s: an unfinished write of %d bytes was cut at offset %d: %s"
        _log.warning(text, name, cut.bytes_cut, cut.offset, cut.reason)


TOPICS = "topics"
_DOTS = {".": "%2E", "..": "%2E%2E"}  # the two names that a file system keeps for itself
_NAMES = {directory: name for name, directory in _DOTS.items()}


def topic_directory(topics_path: str, name: str) -> str:
    return os.path.join(topics_path, _DOTS.get(name, name))


def topic_name(directory_name: str) -> str:
    return _NAMES.get(directory_name, directory_name)


def partition_directory(directory: str, number: int = 0) -> str:
    return os.path.join(directory, str(number))


def partition_numbers(disk: Disk, directory: str) -> list[int]:
    found = (name for name in disk.listdir(directory) if name.isascii() and name.isdigit())
    return sorted(int(name) for name in found if disk.is_directory(os.path.join(directory, name)))


def remove_tree(disk: Disk, path: str, last: str = "") -> None:
    """Remove `path` and everything in it, deepest first. The file `last` is removed at the end: a
    later start finds it and continues an interrupted removal."""
    for name in sorted(disk.listdir(path), key=lambda name: name == last):
        inner = os.path.join(path, name)
        if disk.is_directory(inner):
            remove_tree(disk, inner)
        else:
            disk.unlink(inner)
    disk.rmdir(path)
