"""Stages: blocks of batches that wait on disk, invisible, until a commit moves them to their topics
(`commits.py`) or they expire.

A stage belongs to one partition of a topic and has a name that its writer chose. The same name with
the same bytes is the same stage; with other bytes it is refused. It remembers the identity of its
topic's log: once the topic is deleted, the stage is useless. A stage without a commit for
a day is removed.

| the crash comes | after the start |
|---|---|
| while the file is written | nothing was staged; the partial file is removed |
| file in its place, not acknowledged | the stage is there; sending it again changes nothing |
| while stages are removed | some are left: they expire, or a commit that is finished removes them |

Stage jobs run few at a time, because the sync threads have publishes to serve.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from penstock import errors, limits
from penstock.broker.commits.apps import HOW_TO_ABORT, Ref, Stage, StageApps, refused_for_all
from penstock.broker.commits.retry import Retries
from penstock.broker.commits.stage_file import (
    PROBE_NAMES,
    DiskJob,
    RemoveJob,
    StageHead,
    has_body,
    head_line,
    probe_write,
    read_head,
    read_through,
    stage_file_name,
    stage_number,
    write_stage,
)
from penstock.broker.health import Trouble
from penstock.broker.ports import Job, Syncs
from penstock.log.names import STAGES

if TYPE_CHECKING:
    from penstock.broker.context import Context
    from penstock.broker.topics.topic import Topic


StageDone = Callable[[errors.PenstockError | None], None]

_log = logging.getLogger("penstock.broker")


class Stages:
    def __init__(self, context: Context) -> None:
        self.path = os.path.join(context.data_path, STAGES)
        self.bytes = 0
        self.apps = StageApps()
        self._context = context
        self._found: dict[Ref, Stage] = {}
        self._numbers: dict[str, Stage] = {}  # by file name: as they were staged
        self._writing: dict[Ref, list[Callable[[], None]]] = {}  # and who waits for the outcome
        self._number_next = 1
        self._queue = JobQueue(context.syncs)
        health, path, submit = context.health, self.path, self._queue.submit
        # By file name; of those that the start found, whether a commit needs them.
        self._unread = Retries(
            health, Trouble.STAGE_READ, lambda _: f"{path}: a stage cannot be read", submit,
            self._look, self._looked,
        )  # fmt: skip
        self._unwritten = Retries(  # by length: the longest
            health, Trouble.STAGE_WRITE, lambda size: f"{path}: a stage of {size} bytes cannot be "
            "written", submit, self._probe,
        )  # fmt: skip
        self._left = Retries(  # by file name
            health, Trouble.STAGE_REMOVAL, lambda _: f"{path}: stages cannot be removed", submit,
            lambda names: RemoveJob(context.disk, path, list(names)),
            at_a_time=limits.STAGES_SWEPT_MAX,
        )  # fmt: skip

    @property
    def count(self) -> int:
        return len(self._found)

    # --- the start ---

    def open(self, needed: set[str]) -> None:
        """Load the stages. Files `needed` by an unfinished commit are kept whatever they hold."""
        disk = self._context.disk
        self._number_next = 1 + max((stage_number(name) or 0 for name in needed), default=0)
        if not disk.is_directory(self.path):
            return
        for name in sorted(disk.listdir(self.path)):
            number = stage_number(name)
            if number is not None:
                self._number_next = max(self._number_next, number + 1)
                self._bring_back(name, name in needed)
            elif name.endswith(".stage.tmp"):
                self.remove_files([name])
            else:
                _log.warning("%s: not a stage, left alone", os.path.join(self.path, name))
        self.discard(self.apps.superseded())

    def _bring_back(self, name: str, needed: bool) -> None:
        path = os.path.join(self.path, name)
        try:
            head, body_at = read_head(self._context.disk, path)
        except OSError as error:
            _log.warning("%s: a stage that cannot be read, left until it can: %s", path, error)
            self._unread.note(name, error, needed)
            return
        except ValueError as error:
            _log.warning("%s: a stage that is damaged: %s", path, error)
            if not needed:
                self.remove_files([name])
            return
        stage = Stage(head, self.path, name, body_at)
        stage.pinned = needed
        other = self._found.get(stage.ref)
        if other is not None and name < other.file_name and not needed:
            self.remove_files([name])  # its client has sent it again meanwhile
            return
        if other is not None and not other.pinned:
            # its removal was not durable when the name was used again
            self.discard([other])
        self._add(stage)

    def _look(self, files: Mapping[str, bool | None]) -> Job:
        path = os.path.join(self.path, *files)
        return DiskJob(partial(read_through, self._context.disk, path))

    def _looked(self, files: Mapping[str, bool | None], error: OSError | None) -> None:
        for name, needed in files.items():
            if error is None and needed is not None:
                self._bring_back(name, needed)
                self._numbers = dict(sorted(self._numbers.items()))
                self.discard(self.apps.superseded())

    def _add(self, stage: Stage) -> None:
        self._found[stage.ref] = stage
        self._numbers[stage.file_name] = stage
        self.bytes += stage.head.bytes
        self._context.staged[stage.of_topic] += 1
        self.apps.add(stage)

    def _forget(self, stage: Stage) -> None:
        if self._numbers.get(stage.file_name) is not stage:
            return
        del self._numbers[stage.file_name]
        self.bytes -= stage.head.bytes
        staged = self._context.staged
        staged[stage.of_topic] -= 1
        if not staged[stage.of_topic]:
            del staged[stage.of_topic]
        self.apps.remove(stage)
        if self._found.get(stage.ref) is stage:
            del self._found[stage.ref]

    # --- staging ---

    def put(self, topic: Topic, head: StageHead, body: bytes, done: StageDone) -> None:
        """`body`: checked batches (`blocks.py`). `done` is called once it is on disk, or with the
        error. Raises Refused, and NotFound when the topic has no such partition. Partitions of a
        cluster may have their leaders anywhere."""
        if topic.ephemeral:
            raise errors.Refused("nothing can be staged for an ephemeral topic")
        if head.partition >= topic.partition_count:
            raise errors.NotFound("partition", str(head.partition))
        ref = Ref(topic.name, head.name, head.partition)
        if ref in self._writing:
            self._writing[ref].append(lambda: self._put_again(topic, head, body, done))
            return
        stage = self._found.get(ref)
        if stage is not None and stage.head.identity != topic.identity:
            self.discard([stage])
            stage = None
        if stage is None:
            self._begin(topic, ref, head, body, done)
        else:
            self._compare(stage, body, done)

    def _put_again(self, topic: Topic, head: StageHead, body: bytes, done: StageDone) -> None:
        try:
            self.put(topic, head, body, done)
        except errors.PenstockError as error:
            done(error)

    def _begin(self, topic: Topic, ref: Ref, head: StageHead, body: bytes, done: StageDone) -> None:
        self.discard(self.apps.begin(head))
        try:
            self._check(topic, head)
        except errors.Refused:
            self.apps.end(head.app)
            raise
        self._writing[ref] = []

        def ended(error: errors.PenstockError | None) -> None:
            self.apps.end(head.app)
            waiting = self._writing.pop(ref)
            done(error)
            for again in waiting:
                again()

        self._write_file(head, body, ended)

    def _check(self, topic: Topic, head: StageHead) -> None:
        refusal = "" if topic.replicated else topic.leader(head.partition).refusal
        reason = refusal or topic.refusal_of(head.count) or self.apps.refusal_of(head.app)
        if reason:
            raise errors.Refused(reason)
        if self.count + len(self._writing) >= limits.STAGES_MAX:
            self._give_up_idlest()
            if self.count + len(self._writing) >= limits.STAGES_MAX:
                raise refused_for_all(limits.STAGES_MAX)
        self._check_room(head)

    def _check_room(self, head: StageHead) -> None:
        """A commit copies the stages, so there has to be room for that, too: otherwise the commit
        would be refused, with the disk full until then."""
        reason = self._context.room_refusal(head.bytes)
        staged = self.apps.bytes_of(head.app)
        if not reason and staged:
            reason = self._context.room_refusal(head.bytes + staged)
            reason = reason and f"app {head.app}, with {staged} bytes staged: {reason}"
        if reason:
            self._give_up_idlest()  # its room is free when the caller tries again
            raise errors.Refused(f"{reason}. {HOW_TO_ABORT}" if self.bytes else reason)

    def _give_up_idlest(self) -> None:
        idle_since_ns = self._context.clock.wall_ns() - limits.STAGE_IDLE_NS
        stages = self.apps.idlest(idle_since_ns)
        if stages:
            app = stages[0].head.app or "writers that name no app"
            _log.warning("discarding %d stages of %s: disk space is short", len(stages), app)
            self.discard(stages)

    def _write_file(self, head: StageHead, body: bytes, done: StageDone) -> None:
        line = head_line(head)
        stage = Stage(head, self.path, stage_file_name(self._number_next), len(line))
        self._number_next += 1

        def ended(error: OSError | None) -> None:
            if error is None:
                self._add(stage)
                shorter = [one for one in self._unwritten.failed if one <= stage.length]
                self._unwritten.forget(shorter)
                done(None)
            else:
                longest = max([stage.length, *self._unwritten.failed])
                self._unwritten.failed.clear()
                self._unwritten.note(longest, error)
                self.remove_files([stage.file_name, stage.file_name + ".tmp"])
                done(errors.WriteRefused(stage.path, f"cannot be written: {error}"))

        write = partial(write_stage, self._context.disk, stage.path, line, body)
        self._queue.submit(DiskJob(write), ended)

    def _probe(self, lengths: Mapping[int, object]) -> Job | None:
        """The client has to send the stage again, and may be gone. Does nothing where there is no
        room: a probe must not fill the disk."""
        (length,) = lengths
        if self._context.room_refusal(length):
            return None
        return DiskJob(partial(probe_write, self._context.disk, self.path, PROBE_NAMES, length))

    def _compare(self, stage: Stage, body: bytes, done: StageDone) -> None:
        path = stage.path
        job = DiskJob(partial(has_body, self._context.disk, path, stage.body_at, body))

        def ended(error: OSError | None) -> None:
            if error is not None:
                self.note_unread(stage, error)
                done(errors.WriteRefused(path, f"cannot be read: {error}"))
            elif job.answer:
                done(None)
            else:
                done(errors.StageExists(*stage.ref))

        self._queue.submit(job, ended)

    # --- using and giving up ---

    def find(self, ref: Ref) -> Stage:
        stage = self._found.get(ref)
        if stage is None:
            raise errors.StageMissing(*ref)
        return stage

    def of_file(self, file_name: str) -> Stage | None:
        return self._numbers.get(file_name)

    def abort(self, refs: Iterable[Ref]) -> int:
        """Give these up, as far as they are there and no commit works on them. Returns how many."""
        known = [self._found.get(ref) for ref in dict.fromkeys(refs)]
        stages = [stage for stage in known if stage is not None and not stage.pinned]
        self.discard(stages)
        return len(stages)

    def abort_app(self, app: str, version: int | None) -> int:
        stages = self.apps.of(app, version)
        self.discard(stages)
        return len(stages)

    def committed(self, app: str, version: int) -> None:
        """What is left of it and of earlier ones: tasks that failed, or ran twice."""
        self.discard(self.apps.of(app, up_to=version))

    def discard(self, stages: list[Stage]) -> None:
        self.forget(stages)
        self.remove_files([stage.file_name for stage in stages])

    def forget(self, stages: list[Stage]) -> None:
        for stage in stages:
            self._forget(stage)

    def remove_files(self, names: list[str], done: Callable[[], None] = lambda: None) -> None:
        """Failed removals are repeated (`settle`); a file that a start finds expires."""
        if names:
            self._left.run(dict.fromkeys(names), done)
        else:
            done()

    def note_unread(self, stage: Stage, error: OSError) -> None:
        """A missing stage is no trouble of the disk."""
        if not isinstance(error, FileNotFoundError):
            self._unread.note(stage.file_name, error)

    def settle(self) -> None:
        for retries in (self._left, self._unwritten, self._unread):
            retries.settle()

    def sweep(self, wall_ns: int, is_known: Callable[[str, str], bool]) -> None:
        """Drop those that are too old, and those of deleted topics."""
        oldest_ns = wall_ns - limits.STAGE_EXPIRE_NS
        gone = {topic for topic in self._context.staged if not is_known(*topic)}
        stale: list[Stage] = []
        for stage in self._numbers.values():
            if stage.head.created_ns >= oldest_ns and not gone:
                break
            is_stale = stage.head.created_ns < oldest_ns or stage.of_topic in gone
            if is_stale and not stage.pinned and len(stale) < limits.STAGES_SWEPT_MAX:
                stale.append(stage)
        for stage in stale:
            _log.info("discarding stage %s of topic %s", stage.head.name, stage.head.topic)
        if stale:
            self.discard(stale)

    def close(self) -> None:
        self._context.syncs.wait_for(lambda: self._queue.busy)


Ended = Callable[[OSError | None], None]


class JobQueue:
    def __init__(self, syncs: Syncs) -> None:
        self._syncs = syncs
        self._waiting: deque[tuple[Job, Ended]] = deque()
        self._out = 0

    @property
    def busy(self) -> bool:
        return self._out > 0

    def submit(self, job: Job, ended: Ended) -> None:
        self._waiting.append((job, ended))
        self._next()

    def _next(self) -> None:
        while self._waiting and self._out < limits.STAGE_JOBS_MAX:
            job, ended = self._waiting.popleft()
            self._out += 1
            self._syncs.submit(job, partial(self._ended, ended))

    def _ended(self, ended: Ended, error: OSError | None) -> None:
        self._out -= 1
        ended(error)
        self._next()
