"""One commit of stages, step by step.

    check: every stage is read once, complete and valid, and its topic accepts that many messages
    hold:  the ends of the affected logs belong to the commit; everything written is synced
    record: `prepared`, with the offset at which each part begins; durable. This is the decision
    store: the batches are appended to the logs, with new ids and offsets
    sync:  all of them
    show:  all parts become visible in one step, and the ends of the logs are free again
    clean: the stages are removed, and the record becomes `done`

Until the decision an error refuses the commit, and nothing has happened. After it nothing can stop
the commit for good: a failed step is retried about once a second, and at the next start. Meanwhile
the affected topics accept no publishes, because the next messages in their logs are decided.

| the crash comes | after the start |
|---|---|
| before the record is durable | nothing has happened; the stages are there |
| record durable, some batches in the logs | the log's end shows how many; the rest is stored |
| all batches in the logs, record not `done` | all logs reach to the ends of their parts |
| while stages are removed | the same, and the rest of them is removed |

The log's end shows how much is there because nobody else writes between decision and show, and
because everything before was synced first: no power loss takes a log back below the offset at which
the part begins. The batches found there are compared with the stage, byte by byte.

The steps are a generator. It yields where it waits: for a job in a sync thread, or for a partition;
`advance` resumes it.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from penstock import errors
from penstock.broker.commits.apps import Ref, Stage
from penstock.broker.commits.record import CommitFile, CommitPart, RecordJob
from penstock.broker.commits.stage_file import ReadJob, StagedBatch, read_head
from penstock.broker.ports import Job
from penstock.kernel.layout import HEADER_BYTES

if TYPE_CHECKING:
    from penstock.broker.commits.commits import Commits
    from penstock.broker.topics.topic import Topic

Steps = Generator[None, None, None]

_log = logging.getLogger("penstock.broker")


class Committed(NamedTuple):
    repeated: bool
    messages: int  # that were committed by this request


CommitDone = Callable[[Committed | errors.PenstockError], None]


class _Target:
    """The part of a running commit for one partition."""

    def __init__(
        self, topic: Topic, partition: int, stages: list[tuple[str, int]], count: int
    ) -> None:
        self.topic = topic
        self.leader = topic.leader(partition)
        self.group = self.leader.group
        self.stages = stages  # file name, and where its batches begin
        self.count = count
        self.size = 0  # bytes of the bodies that were stored by this run
        self.found = 0  # messages that the log had already
        self.problem = ""  # why nothing may be stored
        self.passed = 0  # messages stored, or found
        self.stage_index = 0
        self.position = 0  # in that stage; 0: not begun
        self.found_batches: Iterator[memoryview] = iter(())

    @property
    def gone(self) -> bool:
        return self.topic.deleted

    def check(self) -> None:
        """Raises Refused when it accepts no messages now. One partition may refuse while others of
        its topic do not: it has stopped, or an unfinished commit holds its end."""
        reason = self.leader.refusal
        if reason:
            raise errors.Refused(f"topic {self.leader.replica.label}: {reason}")


class CommitRun:
    """`decided`: the record is (or may be) on the disk. `unfinished`: why it does not go on now."""

    def __init__(self, commits: Commits, file: CommitFile) -> None:
        self.file = file
        self.decided = False
        self.shown = False
        self.stops = False  # nsqd does: other nodes are not waited for
        self.unfinished: errors.CommitUnfinished | None = None
        self.record_error: OSError | None = None  # why the record is not as it should be
        self._commits = commits
        self._context = commits.context
        self._stages = commits.stages
        self._topics = commits.context.topics
        self._directory = commits.path
        self._targets: list[_Target] = []
        self._pinned: list[Stage] = []
        self._reserved_bytes = 0
        self._job_out = False
        self._error: OSError | None = None
        self._steps: Steps | None = None
        self._advancing = self._again = self._retry = False

    # --- how it goes on ---

    def begin(self, refs: list[Ref]) -> None:
        self._steps = self._commit(refs)
        self.advance()

    def resume(self) -> None:
        """Continue after a start: the record says `prepared`."""
        self.decided = True
        self._steps = self._finish_found()
        self.advance()

    def retry(self) -> None:
        self._retry = True
        self.advance()

    def advance(self) -> None:
        self._again = True
        if self._advancing:
            return  # by what a step called: the loop below goes on
        self._advancing = True
        try:
            while self._again:
                self._again = False
                self._step()
        finally:
            self._advancing = False

    def _step(self) -> None:
        if self._steps is None:
            return
        try:
            next(self._steps)
        except StopIteration:
            self._end(None)
        except errors.PenstockError as error:
            self._end(error)

    def _end(self, error: errors.PenstockError | None) -> None:
        self._steps = None
        for stage in self._pinned:
            stage.pinned = False
        self._give_back(self._reserved_bytes)
        self._commits.ended(self, error)

    def _run(self, job: Job) -> Steps:
        """Run a job in a sync thread. Raises the OSError of the job."""

        def ended(error: OSError | None) -> None:
            self._job_out, self._error = False, error
            self.advance()

        self._job_out = True
        self._context.syncs.submit(job, ended)
        while self._job_out:
            yield
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _wait_quiet(self) -> Steps:
        """Until all that was written to the partitions is safe. Raises StorageError."""
        for target in self._targets:
            group = target.group
            while not (target.gone or group.quiet):
                if group.stopped:
                    raise errors.StorageError(group.log.path, group.stopped)
                if not group.busy:
                    group.sync()
                    if group.quiet:
                        break
                yield

    # --- until the decision ---

    def _commit(self, refs: list[Ref]) -> Steps:
        self._find(refs)
        yield from self._check()
        held: list[_Target] = []
        try:
            self._hold(held)
            yield from self._wait_quiet()
            for target in self._targets:
                if target.gone:
                    raise errors.NotFound("topic", target.topic.name)
            yield from self._decide()
        except errors.PenstockError:
            for target in held:
                self._free(target, 0, 0)
            raise
        yield from self._finish()

    def _find(self, refs: list[Ref]) -> None:
        chosen = self._chosen(refs)
        for (name, partition), stages in chosen.items():
            count = sum(stage.head.count for stage in stages)
            files = [(stage.file_name, stage.body_at) for stage in stages]
            self._targets.append(_Target(self._topics[name], partition, files, count))
        found = [stage for stages in chosen.values() for stage in stages]
        self._reserve(sum(stage.head.bytes for stage in found))
        # A pinned one would belong to a commit that is not finished, whose partition refuses this.
        self._pin(found)

    def _chosen(self, refs: list[Ref]) -> dict[tuple[str, int], list[Stage]]:
        chosen: dict[tuple[str, int], list[Stage]] = {}
        for ref in refs:
            topic = self._topics.get(ref.topic)
            if topic is None:
                raise errors.NotFound("topic", ref.topic)
            stage = self._stages.find(ref)
            if stage.head.identity != topic.identity:
                raise errors.TopicChanged(topic.name, topic.identity)
            chosen.setdefault((ref.topic, ref.partition), []).append(stage)
        return chosen

    def _pin(self, stages: list[Stage]) -> None:
        self._pinned += stages
        for stage in stages:
            stage.pinned = True

    def _reserve(self, length: int) -> None:
        counts: Counter[Topic] = Counter()  # the bound on the depth is about all partitions
        for target in self._targets:
            target.check()
            counts[target.topic] += target.count
        for topic, count in counts.items():
            check_topic(topic, count)
        reason = self._context.room_refusal(length) if length else ""
        if reason:
            raise errors.Refused(reason)
        self._context.reserved_bytes += length
        self._reserved_bytes = length

    def _give_back(self, length: int) -> None:
        length = min(length, self._reserved_bytes)
        self._reserved_bytes -= length
        self._context.reserved_bytes -= length

    def _check(self) -> Steps:
        """Compare every stage with its checksum. Raises StageDamaged."""
        for stage in self._pinned:
            position, count = stage.body_at, 0
            while position < stage.body_at + stage.head.bytes:
                job = yield from self._read(stage.path, position, stage)
                position = job.next_position
                count += sum(staged.messages for staged in job.batches)
            if count != stage.head.count:
                raise errors.StageDamaged(stage.path, f"{count} messages, not {stage.head.count}")

    def _hold(self, held: list[_Target]) -> None:
        for target in self._targets:
            if target.gone:
                raise errors.NotFound("topic", target.topic.name)
            target.check()
            check_topic(target.topic, target.count)
            held.append(target)
            target.group.reserved_count += target.count
            target.topic.depth_bound.renew()
            target.group.hold(self.advance)

    def _free(self, target: _Target, count: int, size: int) -> None:
        target.group.reserved_count -= target.count
        target.group.release(count, size)
        if not target.gone:
            target.topic.depth_bound.renew()

    def _decide(self) -> Steps:
        self.file.parts = [
            CommitPart(
                topic=target.topic.name,
                identity=target.topic.identity,
                from_offset=target.leader.log.written_end,
                count=target.count,
                stages=[name for name, _ in target.stages],
                partition=target.leader.number,
            )
            for target in self._targets
        ]
        self.file.messages = sum(target.count for target in self._targets)
        while True:
            job = RecordJob(self._context.disk, self._directory, self.file)
            try:
                yield from self._run(job)
                self.decided = True
                return
            except OSError as error:
                problem = errors.WriteRefused(self._directory, f"the record of the commit: {error}")
                if not (job.may_be_read or self.decided):
                    self.record_error = error
                    raise problem from error
            # A power loss may or may not bring it back. So it must be made to last.
            self.decided = True
            yield from self._pause(problem)

    # --- after the decision ---

    def _finish(self) -> Steps:
        for target in self._targets:
            while not target.gone and target.passed < target.count:
                try:
                    yield from self._store(target)
                except errors.StorageError as error:
                    yield from self._pause(error)
        while True:
            try:
                yield from self._wait_quiet()
                break
            except errors.StorageError as error:
                yield from self._pause(error)
        self._show()
        yield from self._clean()

    def _show(self) -> None:
        self.shown = True
        self.unfinished = None
        for target in self._targets:
            self._free(target, target.count - target.found, target.size)
            if target.gone:
                _log.warning("topic %s was deleted during a commit", target.topic.name)
        self._commits.changed(self)
        self._context.engine.wake()

    def _pause(self, problem: errors.StorageError) -> Steps:
        """Wait for a call of `retry`."""
        text = f"commit {self.file.version} of {self.file.app} waits to be finished: {problem}"
        for target in self._targets:
            if not target.gone:
                target.group.block(text)
        self.unfinished = errors.CommitUnfinished(self._directory, text)
        self._commits.changed(self)
        self._retry = False
        while not self._retry:
            yield

    def _store(self, target: _Target) -> Steps:
        """The next slice of the next stage."""
        if target.problem:
            raise errors.StorageError(target.leader.log.path, target.problem)
        name, body_at = target.stages[target.stage_index]
        path = os.path.join(self._stages.path, name)
        if not body_at:
            body_at = self._begins_at(path)
        job = yield from self._read(path, target.position or body_at)
        if target.gone:
            return
        target.position = target.position or body_at
        self._store_batches(
            target, [staged for staged in job.batches if self._is_new(target, staged, path)]
        )
        if job.at_end:
            target.stage_index += 1
            target.position = 0

    def _read(
        self, path: str, position: int, checked: Stage | None = None
    ) -> Generator[None, None, ReadJob]:
        """At least one batch. `checked`: the commit is refused if it cannot be read."""
        job = ReadJob(self._context.disk, path, position)
        try:
            yield from self._run(job)
        except OSError as error:
            if checked is not None:
                self._stages.note_unread(checked, error)
            raise errors.StageDamaged(path, f"cannot be read: {error}") from error
        if job.damage is not None:
            raise job.damage
        if not job.batches:
            raise errors.StageDamaged(path, "it is shorter than it says")
        return job

    def _is_new(self, target: _Target, staged: StagedBatch, path: str) -> bool:
        """Else the log holds this very batch: the commit was stored up to here before the stop."""
        if target.passed >= target.found:
            return True
        stored = next(target.found_batches, None)
        # Without their headers, which contain the position.
        if stored is None or stored[HEADER_BYTES:] != memoryview(staged.data)[HEADER_BYTES:]:
            where = target.leader.log.path
            raise errors.StorageError(where, f"the log holds something else than {path}")
        self._pass(target, staged)
        return False

    def _pass(self, target: _Target, staged: StagedBatch) -> None:
        target.passed += staged.messages
        target.position += len(staged.data)

    def _store_batches(self, target: _Target, batches: list[StagedBatch]) -> None:
        """Store all batches of a slice with one write, or none."""
        if not batches:
            return
        target.group.store([(bytearray(staged.data), staged.messages) for staged in batches])
        for staged in batches:
            self._give_back(len(staged.data))
            target.size += staged.bodies_length
            self._pass(target, staged)

    def _begins_at(self, path: str) -> int:
        """The start of a stage that could not be read at the start."""
        try:
            return read_head(self._context.disk, path)[1]
        except (OSError, ValueError) as error:
            raise errors.StageDamaged(path, f"cannot be read: {error}") from error

    def _clean(self) -> Steps:
        """Not essential: a start would do it. Failures are retried (`retry.py`, `commits.py`)."""
        names = [name for target in self._targets for name, _ in target.stages]
        yield from self._remove([*names, *(n for part in self.file.parts for n in part.stages)])
        self.file.parts = []
        yield from self._note_done()

    def _note_done(self) -> Steps:
        """A failed write is repeated later (`Commits`)."""
        self.file.state = "done"
        try:
            yield from self._run(RecordJob(self._context.disk, self._directory, self.file))
        except OSError as error:
            self.record_error = error

    def _remove(self, names: list[str]) -> Steps:
        stages = [self._stages.of_file(name) for name in dict.fromkeys(names)]
        self._stages.forget([stage for stage in stages if stage is not None])
        waits = True

        def removed() -> None:
            nonlocal waits
            waits = False
            self.advance()

        self._stages.remove_files(list(dict.fromkeys(names)), removed)
        while waits:
            yield

    # --- after a start ---

    def _finish_found(self) -> Steps:
        for part in self.file.parts:
            topic = self._topics.get(part.topic)
            if topic is None or topic.identity != part.identity:
                _log.warning("topic %s was deleted during a commit", part.topic)
            elif topic.leader(part.partition).log.synced_end < part.from_offset + part.count:
                self._targets.append(self._found_target(topic, part))
        for target in self._targets:
            target.group.hold(self.advance)
            target.group.reserved_count += target.count
        yield from self._finish()

    def _found_target(self, topic: Topic, part: CommitPart) -> _Target:
        stages = []
        for name in part.stages:
            stage = self._stages.of_file(name)
            if stage is not None:
                self._pinned.append(stage)
            stages.append((name, stage.body_at if stage is not None else 0))
        target = _Target(topic, part.partition, stages, part.count)
        log = target.leader.log
        if log.written_end < part.from_offset:
            target.problem = (
                f"the log ends at offset {log.written_end}, and a commit begins at "
                f"{part.from_offset}: what was stored before is lost"
            )
        target.found = min(max(log.written_end - part.from_offset, 0), part.count)
        text = "%s: %d of the %d messages of a commit are stored, the rest follows"
        _log.info(text, target.leader.replica.label, target.found, part.count)
        if target.found:
            target.found_batches = (data for _, data in log.batches(part.from_offset))
        return target


def check_topic(topic: Topic, count: int) -> None:
    """Raises Refused when it does not take so many messages now."""
    reason = topic.refusal_of(count)
    if reason:
        raise errors.Refused(f"topic {topic.name}: {reason}")
