"""Failures in the directory of stages: `/ping` names them, and each operation is retried about once
a second until it succeeds.

An unreadable stage is read again. After a failed write the client has to send the stage again, and
it may be gone: a file of the same length is therefore written in the same steps, and removed. Then
the disk accepts stages again. Files that cannot be removed are removed later; a start would do
that, too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.commits.stage_file import LookJob, ProbeJob, RemoveJob
from penstock.broker.health import Trouble

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.ports import Job

Submit = Callable[["Job", Callable[[OSError | None], None]], None]


class StageRetry:
    def __init__(
        self, context: Context, path: str, submit: Submit, on_read: Callable[[str], None]
    ) -> None:
        """`on_read` is called with the name of a file that could not be read and can be now."""
        self._context = context
        self._path = path
        self._submit = submit
        self._on_read = on_read
        self._unwritten_bytes = 0  # of the longest stage whose write failed; 0: none has
        self._probing = False
        self._unread: dict[str, None] = {}  # file names of stages that could not be read
        self._looking = False
        self._left: dict[str, None] = {}  # file names that could not be removed
        self._removing = False

    def settle(self) -> None:
        """Try again what failed."""
        if self._left and not self._removing:
            self._remove_left()
        if self._unwritten_bytes and not self._probing:
            self._probe()
        if self._unread and not self._looking:
            self._look(next(iter(self._unread)))

    # --- reads ---

    def note_unread(self, file_name: str, error: OSError) -> None:
        """One that is gone is no trouble of the disk."""
        if isinstance(error, FileNotFoundError):
            return
        self._unread[file_name] = None
        reason = f"{self._path}: a stage cannot be read: {error}"
        self._context.health.report("", Trouble.STAGE_READ, reason)

    def _look(self, file_name: str) -> None:
        """Read it whole. One after another: the next when this one is read, or gone."""

        def ended(error: OSError | None) -> None:
            self._looking = False
            del self._unread[file_name]
            if error is not None:
                self.note_unread(file_name, error)  # behind the others
            else:
                self._on_read(file_name)
            if not self._unread:
                self._context.health.clear("", Trouble.STAGE_READ)

        self._looking = True
        path = os.path.join(self._path, file_name)
        self._submit(LookJob(self._context.disk, path), ended)

    # --- writes ---

    def note_unwritten(self, length: int, error: OSError) -> None:
        self._unwritten_bytes = max(self._unwritten_bytes, length)
        reason = f"{self._path}: a stage of {length} bytes cannot be written: {error}"
        self._context.health.report("", Trouble.STAGE_WRITE, reason)

    def note_written(self, length: int) -> None:
        if 0 < self._unwritten_bytes <= length:
            self._unwritten_bytes = 0
            self._context.health.clear("", Trouble.STAGE_WRITE)

    def _probe(self) -> None:
        """Not where there is no room: a probe must not be what fills the disk."""
        length = self._unwritten_bytes
        if self._context.room_refusal(length):
            return

        def ended(error: OSError | None) -> None:
            self._probing = False
            if error is None:
                self.note_written(length)
            else:
                self.note_unwritten(length, error)

        self._probing = True
        self._submit(ProbeJob(self._context.disk, self._path, length), ended)

    # --- removals ---

    def remove(self, names: list[str], done: Callable[[], None]) -> None:
        """`done` is called when they are gone, or left for later."""
        job = RemoveJob(self._context.disk, self._path, names)

        def ended(error: OSError | None) -> None:
            if error is not None:
                self._left |= dict.fromkeys(job.left)
                reason = f"{self._path}: stages cannot be removed: {error}"
                self._context.health.report("", Trouble.STAGE_REMOVAL, reason)
            done()

        self._submit(job, ended)

    def _remove_left(self) -> None:
        """What stands first: the rest waits for the next time."""
        names = list(self._left)[: limits.STAGES_SWEPT_MAX]
        for name in names:
            del self._left[name]

        def done() -> None:
            self._removing = False
            if not self._left:
                self._context.health.clear("", Trouble.STAGE_REMOVAL)

        self._removing = True
        self.remove(names, done)
