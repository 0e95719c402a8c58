"""Records of commits that could not be written: `/ping` names them, and they are written again
about once a second.

| what failed | what came of it | what is written |
|---|---|---|
| the decision | the commit was refused, and its client may be gone | a probe, in the same steps |
| `done` | nothing: a start would find all of it in the logs | the same record |

A record that is written again must never take the place of a newer one of its app. So nothing is
written here while a commit goes on, none begins meanwhile, and what a newer record has replaced is
forgotten.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.commits.file import CommitFile, ProbeJob, RecordJob
from penstock.broker.health import Trouble

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.ports import Job


class CommitNotes:
    def __init__(self, context: Context, directory: str, on_end: Callable[[], None]) -> None:
        """`on_end`: it is not `busy` any more."""
        self.busy = False
        self._context = context
        self._directory = directory
        self._on_end = on_end
        self._undone: dict[str, CommitFile] = {}  # that are to be noted as done, by app
        self._refused = False  # a decision could not be written

    def note_refused(self, error: OSError) -> None:
        self._refused = True
        self._report(error)

    def note_undone(self, file: CommitFile, error: OSError) -> None:
        self._undone[file.app] = file
        self._report(error)

    def _report(self, error: OSError) -> None:
        reason = f"{self._directory}: the record of a commit cannot be written: {error}"
        self._context.health.report("", Trouble.COMMIT_RECORD, reason)

    def forget(self, app: str) -> None:
        """There is a newer record of it."""
        self._undone.pop(app, None)
        self._clear_if_done()

    def note_written(self) -> None:
        """A decision was."""
        self._refused = False
        self._clear_if_done()

    def settle(self) -> None:
        """Write one of them. The caller sees to it that no commit goes on."""
        if self.busy:
            return
        disk, directory = self._context.disk, self._directory
        app, file = next(iter(self._undone.items()), ("", None))
        if file is not None:
            self._submit(RecordJob(disk, directory, file), app)
        elif self._refused:
            self._submit(ProbeJob(disk, directory), app)

    def _submit(self, job: Job, app: str) -> None:
        def ended(error: OSError | None) -> None:
            self.busy = False
            if error is not None:
                self._report(error)
            else:
                self._undone.pop(app, None)
                self.note_written()
            self._on_end()

        self.busy = True
        self._context.syncs.submit(job, ended)

    def _clear_if_done(self) -> None:
        if not self._undone and not self._refused:
            self._context.health.clear("", Trouble.COMMIT_RECORD)
