"""The files of the stages of one replica that a cluster has placed here.

They stand in the partition's directory, as `<number in hex>.stage`, so they are moved and removed
with it. What is written here is written beside, synced and renamed. A file that is cut short or
has another head is dropped at the start: the replica lacks it then, and asks for it.

The stages of a replica that follows: which of those that its journal lists are here.

| | then |
|---|---|
| a record lists one that is not here | the leader is asked for it (`replication/stages.py`) |
| the leader sends one | it is stored, and the leader hears so; most come before they are listed |
| a record unlists one | its file goes |
| a snapshot of a higher epoch does not list one | the same: it never was answered |

What could not be stored is asked for again at housekeeping.
"""

from __future__ import annotations

import logging
import os
from collections import deque
from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING

from penstock.broker.commits.apps import Place, Stage
from penstock.broker.commits.stage_file import (
    LoadJob,
    RemoveJob,
    StageHead,
    WriteJob,
    head_in,
    read_head,
)
from penstock.broker.commits.stages import JobRow
from penstock.broker.health import Trouble
from penstock.broker.ports import Lane
from penstock.broker.replicas.context import ReplicationContext
from penstock.kernel import crc32c
from penstock.limits import STAGES_GIVEN_UP_MAX
from penstock.log.fold import Position, Staged, epoch_of
from penstock.log.follower_journal import FollowedJournal
from penstock.log.names import hosted_stage_name, hosted_stage_number
from penstock.replication.frames import Target, encode
from penstock.replication.side_frames import AskStage, SendStage, StageStored
from penstock.replication.stages import NOTHING

if TYPE_CHECKING:
    from penstock.broker.health import Health
    from penstock.log.disk import Disk
    from penstock.replication.journal import JournalFollower


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


NO_NODE = -1


class FollowerStages:
    """`moved`: the machine has something to say to the leader."""

    def __init__(
        self,
        replication: ReplicationContext,
        target: Target,
        replica: int,
        store: StageStore,
        journal: FollowedJournal,
        machine: JournalFollower,
        moved: Callable[[], None],
    ) -> None:
        self._replication = replication
        self._target = target
        self._replica = replica
        self._store = store
        self._journal = journal
        self._machine = machine
        self._moved = moved
        self._leader = NO_NODE
        self._asked: set[int] = set()  # of this leader, in this session
        self._given_up: deque[int] = deque(maxlen=STAGES_GIVEN_UP_MAX)
        self._said = -1  # by the journal, of stages, when it was last looked at
        self._look(NOTHING)

    # --- the journal ---

    def applied(self, place: Position) -> None:
        """A record is in the journal, and the machine does not know yet."""
        if place.sequence == 0 or self._said != self._journal.folding.stage_entries:
            self._look(place)
            self._ask()

    def _look(self, place: Position) -> None:
        folding, here = self._journal.folding, self._store.stages
        self._said = folding.stage_entries
        unlisted = {number for number in folding.unstaged if number not in folding.stages}
        folding.unstaged.clear()
        if place.sequence == 0:
            epoch = epoch_of(place.generation)
            unlisted |= {one for one in here if one not in folding.stages and one >> 32 < epoch}
        self._given_up.extend(unlisted)
        self._store.remove(unlisted)
        self._machine.lacks([one for one in folding.stages if one not in here], place)
        self._asked &= set(self._machine.lacking)

    # --- the leader ---

    def greeted(self, node: int) -> None:
        """It begins a session."""
        self._leader = node
        self._asked.clear()
        self._ask()

    def settle(self) -> None:
        """Housekeeping."""
        self._ask()

    def _ask(self) -> None:
        if self._leader == NO_NODE:
            return
        for number in self._machine.lacking:
            if number not in self._asked:
                self._asked.add(number)
                question = AskStage(self._replication.incarnation, self._replica, number)
                self._send(self._leader, question)

    def came(self, node: int, frame: SendStage) -> None:
        staged = self._journal.folding.stages.get(frame.number)
        if staged is not None and staged_of(frame.file, staged.created_ns) != staged:
            self._asked.discard(frame.number)  # its sender notices that, too
            return

        def stored(reason: str) -> None:
            if self._is_given_up(frame.number):
                self._store.remove([frame.number])
                return
            answer = StageStored(self._replication.incarnation, self._replica, frame.number, reason)
            self._send(node, answer)
            if reason:
                self._asked.discard(frame.number)
            else:
                self._machine.has(frame.number)
                self._moved()

        if not self._is_given_up(frame.number):
            self._store.write(frame.number, frame.file, stored)

    def _is_given_up(self, number: int) -> bool:
        """While it was on its way. A later leader that does not know of that lists it again."""
        return number in self._given_up and number not in self._journal.folding.stages

    def lost(self, number: int) -> None:
        """Its file was read, and is corrupt."""
        if number in self._journal.folding.stages:
            self._machine.lost(number)
            self._moved()
            self._ask()

    def _send(self, node: int, frame: AskStage | StageStored) -> None:
        self._replication.peers.send(node, Lane.LIVE, encode(self._target, frame))
