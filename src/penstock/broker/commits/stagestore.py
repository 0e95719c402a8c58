"""The files of the stages of one replica that a cluster has placed here.

They stand in the partition's directory, as `<number in hex>.stage`, so they are moved and removed
with it. What is written here is written beside, synced and renamed. A file that is cut short or
has another head is dropped at the start: the replica lacks it then, and asks for it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.commits.jobrow import JobRow
from penstock.broker.commits.shelf import Place
from penstock.broker.commits.stageapps import Stage
from penstock.broker.commits.stagefile import (
    LoadJob,
    RemoveJob,
    StageHead,
    WriteJob,
    head_in,
    read_head,
)
from penstock.broker.health import Trouble
from penstock.kernel import crc32c
from penstock.log.fold import Staged
from penstock.log.names import hosted_stage_name, hosted_stage_number

if TYPE_CHECKING:
    from penstock.broker.health import Health
    from penstock.log.disk import Disk

Written = Callable[[str], None]  # why it is not; empty: it is there, durably
Loaded = Callable[[bytearray | None], None]  # None: it cannot be read

_log = logging.getLogger("penstock.broker")
_BESIDE = ".stage.tmp"


class StageStore:
    """`stages`: those whose files are here, durably, by number."""

    def __init__(
        self, disk: Disk, health: Health, row: JobRow, directory: str, place: Place
    ) -> None:
        self.stages: dict[int, Stage] = {}
        self.directory = directory
        self._disk = disk
        self._health = health
        self._row = row
        self._place = place
        self._label = f"{place.topic}/{place.partition}" if place.partition else place.topic
        self._writing: dict[int, list[Written]] = {}
        self._removing: set[str] = set()
        self._delayed: list[Callable[[], None]] = []  # writes, until removals have ended
        self._left: dict[str, None] = {}  # files that could not be removed
        self._jobs = 0
        self._open()

    @property
    def busy(self) -> bool:
        """A thread has one of the files."""
        return self._jobs > 0

    # --- the start ---

    def _open(self) -> None:
        names = self._disk.listdir(self.directory)
        for name in sorted(names):
            number = hosted_stage_number(name)
            if number is not None:
                self._bring_back(number, name)
        if self.stages:  # a process that was killed may not have come to that
            self._disk.sync_directory(self.directory)
        self._drop([name for name in names if name.endswith(_BESIDE)])

    def _bring_back(self, number: int, name: str) -> None:
        path = os.path.join(self.directory, name)
        try:
            head, body_at = read_head(self._disk, path)
            self._check(head)
        except OSError as error:
            _log.warning("%s: a stage that cannot be read: %s", path, error)
        except ValueError as error:
            _log.warning("%s: a stage that is given up here: %s", path, error)
            self._drop([name])
        else:
            self.stages[number] = Stage(head, self.directory, name, body_at)

    def _check(self, head: StageHead) -> None:
        """Raises ValueError."""
        if Place(head.topic, head.identity, head.partition) != self._place:
            raise ValueError(f"it is of topic {head.topic}, {head.identity}, {head.partition}")

    # --- files come and go ---

    def path(self, number: int) -> str:
        return os.path.join(self.directory, hosted_stage_name(number))

    def write(self, number: int, file: bytes | bytearray, done: Written) -> None:
        """`done` is called once, at once or later."""
        if number in self.stages:
            done("")
        elif number in self._writing:
            self._writing[number].append(done)
        else:
            self._begin(number, file, done)

    def _begin(self, number: int, file: bytes | bytearray, done: Written) -> None:
        try:
            head, body_at = head_in(file)
            self._check(head)
        except ValueError as error:
            done(str(error))
            return
        name = hosted_stage_name(number)
        if name in self._removing:
            self._delayed.append(partial(self.write, number, file, done))
            return
        self._left.pop(name, None)
        stage = Stage(head, self.directory, name, body_at)
        self._writing[number] = [done]
        job = WriteJob(self._disk, stage.path, b"", file)
        self._submit(job, partial(self._wrote, number, stage))

    def _wrote(self, number: int, stage: Stage, error: OSError | None) -> None:
        reason = ""
        if error is None:
            self.stages[number] = stage
            self._health.clear(self._label, Trouble.STAGE_WRITE)
        else:
            reason = f"{stage.path}: cannot be written: {error}"
            self._health.report(self._label, Trouble.STAGE_WRITE, reason)
            self._drop([stage.file_name, stage.file_name + ".tmp"])
        for done in self._writing.pop(number):
            done(reason)

    def load(self, number: int, staged: Staged | None, done: Loaded) -> None:
        """All of a file, if it is as it is listed. One that is not is here no more; one that
        cannot be read just now stays."""
        stage = self.stages.get(number)
        if stage is None:
            done(None)
            return
        job = LoadJob(self._disk, stage.path)

        def loaded(error: OSError | None) -> None:
            fault = str(error) if error is not None else _fault_of(job.data, staged)
            if fault:
                _log.warning("%s: a stage that cannot be used: %s", stage.path, fault)
            if fault and error is None:
                self.remove([number])
            done(None if fault else job.data)

        self._submit(job, loaded)

    def remove(self, numbers: Collection[int]) -> None:
        found = [self.stages.pop(number, None) for number in numbers]
        self._drop([stage.file_name for stage in found if stage is not None])

    def _drop(self, names: list[str]) -> None:
        """What cannot be removed is removed later."""
        if not names:
            return
        job = RemoveJob(self._disk, self.directory, names)
        self._removing.update(names)

        def removed(error: OSError | None) -> None:
            self._removing.difference_update(names)
            self._left.update(dict.fromkeys(job.left if error is not None else ()))
            if error is not None:
                reason = f"{self.directory}: a stage cannot be removed: {error}"
                self._health.report(self._label, Trouble.STAGE_REMOVAL, reason)
            elif not self._left:
                self._health.clear(self._label, Trouble.STAGE_REMOVAL)
            delayed, self._delayed = self._delayed, []
            for write in delayed:
                write()

        self._submit(job, removed)

    def settle(self) -> None:
        """Housekeeping."""
        if self._left:
            left, self._left = list(self._left), {}
            self._drop(left)

    def _submit(
        self, job: WriteJob | LoadJob | RemoveJob, ended: Callable[[OSError | None], None]
    ) -> None:
        def over(error: OSError | None) -> None:
            self._jobs -= 1
            ended(error)

        self._jobs += 1
        self._row.submit(job, over)


def staged_of(file: bytes | bytearray, created_ns: int) -> Staged:
    return Staged(created_ns, len(file), crc32c(file))


def _fault_of(file: bytearray, staged: Staged | None) -> str:
    if staged is None or staged_of(file, staged.created_ns) == staged:
        return ""
    return "it is not as the channel journal lists it"
