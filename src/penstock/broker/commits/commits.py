"""Commits of stages: all or nothing, and each once.

A client commits a set of stages as a version of an app. The versions of an app increase; nsqd
remembers the last one. A version that is not above it was committed before: it changes nothing and
is answered as a repeat. A client that does not know whether its commit succeeded can therefore
repeat it until it is answered.

Commits run one after another (`commit.py` has the steps). A decided commit that cannot be finished,
because a disk is full or failing, steps aside: it is retried about once a second, and the others
continue. A start finishes decided commits before any client is served.

Records of commits that could not be written: `/ping` names them, and they are written again about
once a second.

| what failed | the result | what is written |
|---|---|---|
| the decision | the commit was refused, and its client may be gone | a probe, in the same steps |
| `done` | nothing: a start would find all of it in the logs | the same record |

A repeated write must never replace a newer record of the same app. Nothing is therefore written
here while a commit runs, none begins meanwhile, and records that a newer one has replaced are
forgotten.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock import limits
from penstock.broker.commits.apps import Ref
from penstock.broker.commits.cluster_commit import ClusterCommitRun
from penstock.broker.commits.commit import CommitDone, CommitRun, Committed
from penstock.broker.commits.record import (
    PROBE_NAMES,
    SUFFIX,
    CommitFile,
    RecordJob,
    commit_file_name,
    read_commit_file,
)
from penstock.broker.commits.retry import Retries
from penstock.broker.commits.stage_file import DiskJob, probe_write
from penstock.broker.commits.stages import Stages
from penstock.broker.health import Trouble
from penstock.errors import PenstockError, Refused, StorageError
from penstock.log.names import COMMITS

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.ports import Job


_log = logging.getLogger("penstock.broker")
_DECISION = None  # in the place of an app: some decision could not be written


class _App(NamedTuple):
    version: int | None  # None: its first commit is not finished
    used_ns: int
    once: bool  # it has committed once only


class _WaitingCommit(NamedTuple):
    app: str
    version: int
    refs: list[Ref]
    done: CommitDone


class Commits:
    def __init__(self, context: Context) -> None:
        self.stages = Stages(context)
        self.total = 0  # since the start
        self.context = context
        self.path = os.path.join(context.data_path, COMMITS)
        self._records = Retries(  # by app, those that are to be noted as done; and the decision
            context.health, Trouble.COMMIT_RECORD,
            lambda _: f"{self.path}: the record of a commit cannot be written",
            context.syncs.submit, self._write_record, self._wrote_record,
        )  # fmt: skip
        self._apps: dict[str, _App] = {}
        self._waiting: deque[_WaitingCommit] = deque()
        self._running: CommitRun | None = None
        self._asker: dict[CommitRun, CommitDone] = {}
        self._unfinished: dict[str, CommitRun] = {}  # by app
        self._starting = False  # within `_next`
        self._sweep_ns = 0

    # --- the start and the stop ---

    def open(self) -> None:
        """Finish decided commits. Raises StorageError when a record is unreadable: nobody could
        tell which messages are missing in which topic."""
        prepared = self._read()
        for file in prepared:
            self._check_parts(file)
        needed = {name for file in prepared for part in file.parts for name in part.stages}
        self.stages.open(needed)
        for file in prepared:
            _log.info("commit %d of %s was decided: it is finished now", file.version, file.app)
            self._running = CommitRun(self, file)
            self._running.resume()
            self.context.syncs.wait_for(lambda: self._running is not None)

    def _check_parts(self, file: CommitFile) -> None:
        """A decided commit cannot be finished in a topic that is set aside, or without one of its
        partitions, and must not be noted as done without it."""
        for part in file.parts:
            reason = self.context.set_aside.get(part.topic)
            topic = self.context.topics.get(part.topic)
            if topic is not None and part.partition not in topic.replicas:
                reason = f"topic {part.topic} has no partition {part.partition}"
            if reason is not None:
                decided = f"commit {file.version} of {file.app} is decided, but {reason}"
                raise StorageError(self.path, decided)

    def _read(self) -> list[CommitFile]:
        """The apps; returns the records of commits that are to be finished."""
        disk = self.context.disk
        prepared: list[CommitFile] = []
        names = sorted(disk.listdir(self.path)) if disk.is_directory(self.path) else []
        for name in names:
            path = os.path.join(self.path, name)
            if name.endswith(SUFFIX):
                file = read_commit_file(disk, path)
                is_done = file.state == "done"
                version = file.version if is_done else file.before
                self._apps[file.app] = _App(version, file.used_ns, file.before is None)
                if not is_done:
                    prepared.append(file)
            elif name.endswith(SUFFIX + ".tmp"):
                disk.unlink(path)
            else:
                _log.warning("%s: not the record of a commit, left alone", path)
        return prepared

    def close(self) -> None:
        if self._running is not None:
            self._running.stops = True
            self._running.advance()
        self.context.syncs.wait_for(lambda: self._running is not None or self._records.busy)
        self.stages.close()

    # --- committing ---

    @property
    def busy(self) -> bool:
        return self._running is not None

    @property
    def unfinished_count(self) -> int:
        return len(self._unfinished)

    def last(self, app: str) -> int | None:
        known = self._apps.get(app)
        return known.version if known is not None else None

    def commit(self, app: str, version: int, refs: list[Ref], done: CommitDone) -> None:
        """`done` receives the outcome. Raises Refused when too many are waiting."""
        if len(self._waiting) >= limits.COMMITS_WAITING_MAX:
            raise Refused(f"{limits.COMMITS_WAITING_MAX} commits are waiting already")
        self._waiting.append(_WaitingCommit(app, version, refs, done))
        self._next()

    def _next(self) -> None:
        if self._starting:
            return
        self._starting = True
        try:
            while self._waiting and self._running is None and not self._records.busy:
                self._begin(self._waiting.popleft())
        finally:
            self._starting = False

    def _begin(self, asked: _WaitingCommit) -> None:
        unfinished = self._unfinished.get(asked.app)
        last = self.last(asked.app)
        if last is not None and asked.version <= last:
            asked.done(Committed(True, 0))
            return
        if unfinished is not None and unfinished.unfinished is not None:
            asked.done(unfinished.unfinished)
            return
        if asked.app not in self._apps and len(self._apps) >= limits.APPS_MAX:
            self._forget_apps()
            if len(self._apps) >= limits.APPS_MAX:
                asked.done(Refused(f"{limits.APPS_MAX} apps are remembered already"))
                return
        now_ns = self.context.clock.wall_ns()
        file = CommitFile(
            app=asked.app,
            version=asked.version,
            state="prepared",
            messages=0,
            used_ns=now_ns,
            before=last,
        )
        run = self._running = self._run_for(asked.refs, file)
        self._asker[run] = asked.done
        run.begin(asked.refs)

    def _run_for(self, refs: list[Ref], file: CommitFile) -> CommitRun:
        host = self.context.replica_host
        if host is not None:
            here, names = self.context.topics, {ref.topic for ref in refs}
            topics = [here.get(name) or host.remote_topic(name) for name in names]
            if any(topic is not None and topic.replicated for topic in topics):
                return ClusterCommitRun(self, file)
        return CommitRun(self, file)

    # --- reports of a run ---

    def changed(self, run: CommitRun) -> None:
        """The commit is visible, or cannot be finished now."""
        file = run.file
        self._records.forget([file.app])
        if run.shown:
            self._records.forget([_DECISION])
            self._apps[file.app] = _App(file.version, file.used_ns, file.before is None)
            self.total += 1
            self._answer(run, Committed(False, file.messages))
            if file.app:
                self.stages.committed(file.app, file.version)
            if self._unfinished.pop(file.app, None) is not None:
                _log.info("commit %d of %s is finished", file.version, file.app)
            self._report()
        elif run.unfinished is not None:
            self._apps.setdefault(file.app, _App(None, file.used_ns, True))
            self._unfinished[file.app] = run
            self._answer(run, run.unfinished)
            self._report()
            self._leave(run)

    def ended(self, run: CommitRun, error: PenstockError | None) -> None:
        if run.record_error is not None and run.decided:
            self._records.note(run.file.app, run.record_error, run.file)
        elif run.record_error is not None:
            self._records.note(_DECISION, run.record_error)
        if error is not None:
            self._answer(run, error)
        self._leave(run)

    def _answer(self, run: CommitRun, outcome: Committed | PenstockError) -> None:
        done = self._asker.pop(run, None)
        if done is not None:
            done(outcome)

    def _leave(self, run: CommitRun) -> None:
        if self._running is run:
            self._running = None
            self._next()

    def _report(self) -> None:
        found = (run.unfinished for run in self._unfinished.values())
        reason = next((one.reason for one in found if one is not None), "")
        self.context.health.show("", Trouble.COMMIT, reason)

    # --- records that could not be written ---

    def _write_record(self, files: Mapping[str | None, CommitFile | None]) -> Job:
        disk, (file,) = self.context.disk, files.values()
        if file is None:
            return DiskJob(partial(probe_write, disk, self.path, PROBE_NAMES, 2))
        return RecordJob(disk, self.path, file)

    def _wrote_record(self, files: Mapping[str | None, object], error: OSError | None) -> None:
        if error is None:
            self._records.forget([_DECISION])
        self._next()

    # --- housekeeping ---

    def housekeeping(self, wall_ns: int) -> None:
        for run in list(self._unfinished.values()):
            run.retry()
        if self._running is not None:
            self._running.advance()  # it may wait for a leader
        if self._running is None:
            self._records.settle()
        self.stages.settle()
        if wall_ns >= self._sweep_ns or wall_ns < self._sweep_ns - limits.STAGE_SWEEP_NS:
            self._sweep_ns = wall_ns + limits.STAGE_SWEEP_NS
            self.stages.sweep(wall_ns, self._is_known)

    def _is_known(self, topic_name: str, identity: str) -> bool:
        topic, host = self.context.topics.get(topic_name), self.context.replica_host
        if topic is None and host is not None and host.metadata is not None:
            file = host.metadata.file(topic_name)
            return file is not None and file.identity == identity
        return topic is not None and topic.identity == identity

    def _forget_apps(self) -> None:
        """One that has committed once may never do so again: batch jobs make up names."""
        now_ns = self.context.clock.wall_ns()
        stale = sorted(
            (known.used_ns, app)
            for app, known in self._apps.items()
            if app not in self._unfinished
            and now_ns - known.used_ns
            > (limits.APP_ONCE_FORGET_NS if known.once else limits.APP_FORGET_NS)
        )
        for _, app in stale[: limits.APPS_FORGOTTEN_MAX]:
            path = os.path.join(self.path, commit_file_name(app))
            try:
                if self.context.disk.exists(path):
                    self.context.disk.unlink(path)
            except OSError as error:
                _log.warning("%s: an old record cannot be removed: %s", path, error)
                return
            del self._apps[app]

    def validate(self) -> None:
        if self._waiting and not (self._running or self._records.busy or self._starting):
            raise RuntimeError("commits wait, and none is running")
