"""A leader's shell for the stages of its partition: `replication/stages.py` over their files.

A new one is written here first, then sent to all who need it, then listed in the journal, and its
writer is answered when that record is held. A leadership that ends meanwhile leaves the outcome
open: the same stage sent again, to whichever leader comes next, settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.commits.stage_store import staged_of
from penstock.broker.ports import Lane
from penstock.broker.replicas.context import ReplicationContext, target_of
from penstock.errors import ChangeUnknown, PenstockError, WriteRefused
from penstock.log.names import hosted_stage_number
from penstock.replication.frames import encode
from penstock.replication.side_frames import AskStage, SendStage, StageFrame, StageStored
from penstock.replication.stages import Ask, List, Refuse, Send, StageReplication, Unlist

if TYPE_CHECKING:
    from penstock.broker.channels.cursors import Cursors
    from penstock.broker.commits.apps import Stage
    from penstock.broker.commits.stage_store import StageStore
    from penstock.broker.commits.stages import Stages
    from penstock.broker.partition.leader import Leader
    from penstock.log.ledger import ReplicaKey

StageDone = Callable[[PenstockError | None], None]
_COUNT_BITS = 32  # of a stage's number; above it is the epoch
_OVER = "the leadership of this leader has ended: the outcome is unknown, send the stage again"


class LeaderStages:
    """In one leadership. `stages`: those of the node that can be committed."""

    def __init__(
        self,
        replication: ReplicationContext,
        key: ReplicaKey,
        replica: int,
        epoch: int,
        leader: Leader,
        cursors: Cursors,
        store: StageStore,
        stages: Stages,
    ) -> None:
        self.machine = StageReplication(replication.node, cursors.stages, store.stages)
        self._replication = replication
        self._target = target_of(key)
        self._replica = replica
        self._epoch = epoch
        self._leader = leader
        self._cursors = cursors
        self._store = store
        self._stages = stages
        self._count = 0
        self._is_over = False
        self._refused: set[int] = set()  # by the disk here; those that are lacking come again
        self._unread: set[tuple[int, int]] = set()  # to which node: they are read again
        self._coming: dict[int, tuple[bytes, int, StageDone]] = {}  # file, created, and its writer
        store.remove([one for one in store.stages if one not in cursors.stages])
        for number in cursors.stages:
            self._take_in(number)

    def _take_in(self, number: int) -> None:
        stage = self._store.stages.get(number)
        if stage is not None:
            stage.led = self
            self._stages.take_in(stage)

    # --- writers ---

    def put(self, file: bytes, created_ns: int, done: StageDone) -> None:
        """All of a stage's file. `done` hears when the set has it, or why not."""
        self._count += 1
        number = self._epoch << _COUNT_BITS | self._count
        self._coming[number] = file, created_ns, done
        self._store.write(number, file, partial(self._wrote, number))

    def _wrote(self, number: int, reason: str) -> None:
        coming = self._coming.get(number)
        if self._is_over:
            return
        if reason:
            self._refused.add(number)
            self._answer(number, WriteRefused(self._store.path(number), reason))
        elif coming is not None or number in self.machine.states:
            self.machine.wrote(number)
            self._carry_out()
            if coming is None:
                self._take_in(number)  # it was lacking

    def _answer(self, number: int, error: PenstockError | None) -> None:
        coming = self._coming.pop(number, None)
        if coming is not None:
            if error is None:
                self._take_in(number)
            coming[2](error)

    def when_held(self, done: StageDone) -> None:
        """The stages that are listed by now."""
        self._leader.when_held(done)

    def drop(self, stages: Collection[Stage]) -> None:
        """They are given up: whoever has to know that they are for certain waits until it is
        held."""
        for stage in stages:
            number = hosted_stage_number(stage.file_name)
            if number is not None:
                self.machine.drop(number)
        self._carry_out()

    # --- the others ---

    def needs(self, members: Collection[tuple[int, int]]) -> None:
        self.machine.needs(members)
        self._carry_out()

    def linked(self, node: int) -> None:
        self.machine.linked(node)
        self._carry_out()

    def settle(self) -> None:
        """Housekeeping."""
        unread, self._unread = self._unread, set()
        for node, number in sorted(unread):
            self._send_file(node, number)
        refused, self._refused = self._refused, set()
        for number in refused:
            self.machine.ask_again(number)
        self._carry_out()
        here, known = self._store.stages, self.machine.states
        if len(here) > len(known) - len(self.machine.lacking):  # written for the leader before
            self._store.remove(here.keys() - known.keys())

    def unlinked(self, node: int) -> None:
        self.machine.unlinked(node)

    def receive(self, node: int, frame: StageFrame) -> None:
        match frame:
            case StageStored(_, replica, number, "") if number >> _COUNT_BITS == self._epoch:
                self.machine.stored(node, replica, number)
            case StageStored(_, replica, number, reason) if number >> _COUNT_BITS == self._epoch:
                self.machine.refused(node, replica, number, f"node {node}: {reason}")
            case AskStage(_, replica, number):
                self.machine.asked(node, replica, number)
            case SendStage(_, number, file) if self._is_lacking(number, file):
                self._store.write(number, file, partial(self._wrote, number))
        self._carry_out()

    def _is_lacking(self, number: int, file: bytes | bytearray) -> bool:
        staged = self._cursors.stages.get(number)
        is_it = staged is not None and staged_of(file, staged.created_ns) == staged
        return is_it and number in self.machine.lacking

    # --- what is done ---

    def _carry_out(self) -> None:
        unlisted: list[int] = []
        while self.machine.out:
            effect = self.machine.out.pop(0)
            if isinstance(effect, Unlist):
                unlisted.append(effect.stage)
            else:
                self._do(effect)
        if unlisted:
            self._unlist(unlisted)

    def _do(self, effect: Any) -> None:
        match effect:
            case Send(node, number):
                self._send_file(node, number)
            case Ask(node, number):
                question = AskStage(self._replication.incarnation, self._replica, number)
                self._replication.peers.send(node, Lane.LIVE, encode(self._target, question))
            case List(number):
                self._list(number)
            case Refuse(number, reason):
                self._answer(number, WriteRefused(self._store.path(number), reason))
            case _:
                raise RuntimeError(f"nothing is known of {effect}")

    def _send_file(self, node: int, number: int) -> None:
        coming = self._coming.get(number)
        if coming is not None:
            self._send(node, number, coming[0])
            return

        stage = self._store.stages.get(number)

        def loaded(file: bytearray | None) -> None:
            if self._is_over:
                return
            if file is not None:
                self._send(node, number, file)
            elif stage is not None and number not in self._store.stages:
                self._stages.forget([stage])
                self.machine.damaged(number, node)
                self._carry_out()
            elif stage is not None:
                self._unread.add((node, number))

        self._store.load(number, self._cursors.stages.get(number), loaded)

    def _send(self, node: int, number: int, file: bytes | bytearray) -> None:
        frame = SendStage(self._replication.incarnation, number, file)
        self._replication.peers.send(node, Lane.BULK, encode(self._target, frame))

    def _list(self, number: int) -> None:
        file, created_ns, _ = self._coming[number]
        self._cursors.list_stage(number, staged_of(file, created_ns))
        self._leader.when_held(partial(self._answer, number))

    def _unlist(self, numbers: list[int]) -> None:
        stages = [self._store.stages.get(number) for number in numbers]
        self._stages.forget([stage for stage in stages if stage is not None])
        self._cursors.unlist_stages(numbers)
        self._store.remove(numbers)

    # --- the end ---

    def leave(self) -> None:
        """The leadership is over."""
        self._is_over = True
        self._stages.let_go(list(self._store.stages.values()))
        for stage in self._store.stages.values():
            stage.led = None
        lost = ChangeUnknown(self._leader.replica.label, _OVER)
        for number in list(self._coming):
            self._answer(number, lost)
