"""A node of the journals' world: its disk, and the shell around its machine."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from penstock.broker.journal import Journal
from penstock.errors import PenstockError
from penstock.log.errors import JournalRefused
from penstock.log.fold import (
    PARTITION,
    Entry,
    Folding,
    Group,
    Position,
    Staged,
    cursor_entry,
    epoch_of,
    partition_entries,
    unstaged_entry,
)
from penstock.log.followedjournal import FollowedJournal
from penstock.log.journalfile import NAMES
from penstock.replica.journalline import (
    DropBelow,
    JournalFollower,
    JournalGuards,
    JournalLeader,
    SyncJournal,
    SyncOwn,
    TakeRecord,
    TakeSnapshot,
)
from penstock.replica.lacking import NOTHING
from sim.disk import Fault, SimDisk
from sim.journals.stages import Files, Known, followed_stages, led_stages

HeldDone = Callable[["PenstockError | None"], None]
PATH = "/p"
BYTES_MAX = 900  # about eight records, then a generation ends
FINISHED, SOUGHT, ORDERED = 1, 2, 3  # the channels


class Broken(AssertionError):
    """A promise was not kept."""


class Said(NamedTuple):
    """What a journal amounts to: all of it only rises."""

    finished: int = 0  # cursor of a channel whose FINs are answered at once
    sought: int = 0  # cursor of one that is set by hand, which is answered when it is held
    start: int = 0
    ordered: int = 0  # cursor of a strictly ordered one
    stages: tuple[tuple[int, Staged], ...] = ()

    def groups(self, unstaged: Collection[int] = ()) -> list[Group]:
        gone = b"".join(map(unstaged_entry, unstaged))
        return [
            Group(PARTITION, partition_entries(self.start, self.stages) + gone),
            Group(FINISHED, cursor_entry(Entry.CURSOR, self.finished, self.finished)),
            Group(SOUGHT, cursor_entry(Entry.RESET, self.sought, self.sought)),
            Group(ORDERED, cursor_entry(Entry.CURSOR, self.ordered, self.ordered)),
        ]


def said(folding: Folding) -> Said:
    channels = folding.channels()
    finished, sought, ordered = (
        channels[number].next if number in channels else 0 for number in (FINISHED, SOUGHT, ORDERED)
    )
    stages = tuple(folding.stages.items())
    return Said(finished, sought, folding.start_offset, ordered, stages)


class Office:
    """A leader: its machine, its journal, and what its windows hold."""

    def __init__(self, node: Node, epoch: int, guards: JournalGuards) -> None:
        followed = node.journal
        self.epoch = epoch
        self.said = said(followed.folding)
        numbered = guards.generations_have_epochs and guards.begun_by_snapshot
        self.journal = Journal(
            followed.files, BYTES_MAX, epoch if numbered else 0, followed.folding.handed_end
        )
        self.line = JournalLeader(node.number, epoch, followed.position, self.said.start, guards)
        self.books: Callable[[], None] = lambda: None  # called for what the disk has taken
        self._unwritten: list[HeldDone] = []
        self.known = Known()
        self.stages = led_stages(node, self)

    def say(self, now: Said, begin: bool = False, unstaged: Collection[int] = ()) -> bool:
        self.said = now
        if not self._write(now.groups(unstaged), begin):
            return False
        self.books()
        waiting, self._unwritten = self._unwritten, []
        for done in waiting:
            self.when_held(done)
        return True

    def when_held(self, done: HeldDone) -> None:
        if self.journal.broken or not self.has_begun:
            self._unwritten.append(done)
        else:
            self.line.when_held(self.line.place, done)

    @property
    def has_begun(self) -> bool:
        return epoch_of(self.line.place.generation) == self.epoch

    def _write(self, groups: list[Group], begin: bool = False) -> bool:
        """What the channels say now; False when the disk does not take it."""
        line, journal = self.line, self.journal
        try:
            if begin or line.must_begin:
                record = journal.begin(self._snapshot)
            else:
                record = journal.append(0, groups, self._snapshot)
        except OSError:
            line.write_failed()
            return False
        line.wrote(journal.written, record, self.said.start)
        return True

    def _snapshot(self) -> tuple[int, list[Group]]:
        return 0, self.said.groups()


class Node:
    """`log_start`: all below it this replica has removed."""

    def __init__(
        self, number: int, replica: int, guards: JournalGuards, dice: random.Random
    ) -> None:
        self.number = number
        self.sent: list[tuple[int, bytes]] = []  # of stages: to which node, and a frame
        self._dice = dice
        self.promised = 0  # in the node's ledger
        self.office: Office | None = None
        self._guards = guards
        self.wipe(replica)

    def wipe(self, replica: int) -> None:
        """Another disk, and so another replica."""
        self.disk = SimDisk()
        self.disk.mkdir(PATH)
        self.disk.sync_directory("/")
        self.replica = replica
        self.log_start = 0
        self.files = Files(self._dice)
        self.open()

    def open(self) -> None:
        """After a start, and after an office."""
        self.office = None
        self.sync_due = False
        self.journal = FollowedJournal.open(self.disk, PATH)
        if self.journal.files.corrupt:
            raise Broken(f"node {self.number}: sound files are called corrupt")
        self.follower = JournalFollower(
            self.replica,
            self.promised,
            self.journal.position,
            self.journal.start_offset,
            self._guards,
        )
        self.stages = followed_stages(self)

    def send(self, node: int, lane: object, frames: Sequence[Sequence[Any]]) -> None:
        """What the shells of stages send."""
        self.sent.append((node, b"".join(bytes(part) for frame in frames for part in frame)))

    def stop(self, rng: random.Random, power: bool) -> None:
        self.disk.crash(rng) if power else self.disk.kill()
        self.open()

    def fail_write(self, rng: random.Random) -> None:
        self.disk.inject(Fault("write", path_part="channels.", written=rng.random()))

    def sync(self) -> None:
        """What was asked for."""
        if not self.sync_due:
            return
        self.sync_due = False
        if self.office is not None:
            self.office.journal.sync()
            self.office.line.synced(self.office.journal.synced)
        else:
            self.journal.files.sync()
            self.follower.synced(self.journal.synced)

    def sync_all(self) -> None:
        """Housekeeping: what was not asked for, too."""
        if self.office is not None:
            self.sync_due = True
            self.sync()
        else:
            self.follower.sync_all()

    def take_effects(self) -> list[Any]:
        """Carries out what concerns the disk; what is left is to be sent."""
        left: list[Any] = []
        machine = self.office.line if self.office is not None else self.follower
        while machine.out:
            effect = machine.out.pop(0)
            match effect:
                case TakeRecord(record):
                    self._write(record, is_snapshot=False)
                case TakeSnapshot(record):
                    self._write(record, is_snapshot=True)
                case SyncJournal() | SyncOwn():
                    self.sync_due = True
                case DropBelow(start):
                    self.log_start = max(self.log_start, start)
                case _:
                    left.append(effect)
        return left

    def _write(self, record: bytes, is_snapshot: bool) -> None:
        journal = self.journal
        try:
            if is_snapshot:
                self._replace(record)
            else:
                journal.append(record)
        except JournalRefused as error:
            if self.follower.place != NOTHING:
                raise Broken(f"node {self.number}: {error}") from error
            # An older snapshot, late, after a write that failed: the files refuse it.
            self.follower.write_failed()
        except OSError:
            self.follower.write_failed()
        else:
            self.stages.applied(self.journal.position)
            self.follower.wrote(self.journal.position, self.journal.start_offset)

    def _replace(self, record: bytes) -> None:
        try:
            self.journal.replace(record)
        except JournalRefused:
            if self._guards.older_refused:
                raise
            for name in NAMES:  # a journal that minds nothing takes what comes
                if self.disk.exists(f"{PATH}/{name}"):
                    self.disk.unlink(f"{PATH}/{name}")
            self.journal = FollowedJournal.open(self.disk, PATH)
            self.journal.replace(record)
            self.stages = followed_stages(self)

    @property
    def said(self) -> Said:
        return self.office.said if self.office is not None else said(self.journal.folding)

    @property
    def place(self) -> Position:
        return self.office.line.place if self.office is not None else self.journal.position
