"""A follower's shell: the machine of `replication/follower.py` over a partition's real files.

It carries out the machine's effects one after the other. Some effects take time, and later ones
wait, so that nothing is sent before what it promises is durable:

| awaited | because | meanwhile |
|---|---|---|
| EPOCH | a promise is not on the disk yet | frames wait |
| SYNC | a truncation must not run beside a sync job, which has the log's files | frames wait |
| STATE | the replica's own file does not say yet that it is copied | frames wait |
| ROOM | the disk refused something; `settle` retries | appends are dropped; a hello starts again |

A follower that waits for space acknowledges nothing, so its leader drops it after a while. When
there is space again, it asks to be matched again for the appends it has dropped.

The replica's own file says whether the headers in its log can be trusted (`log/replica_file.py`).
It is marked in sync when the record lists it and all of its log is synced. The mark is revoked
before a batch is written whose header promises more than this disk has: that batch was made when
nothing waited for this replica.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.broker.health import Trouble
from penstock.broker.ports import PeerLane
from penstock.errors import StorageError, WriteRefused
from penstock.kernel import decode_header
from penstock.log.epochs import NO_BATCH, BatchName
from penstock.log.errors import AppendRefused
from penstock.replication import effects
from penstock.replication.follower import Following, PartitionFollower
from penstock.replication.frames import AppendFrame, Frame, encode

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.broker.replicas.replicated_partition import ReplicatedPartition

NO_NODE = -1
_OF_LEADERS = (AppendFrame, effects.Hello, effects.MatchAt, effects.BeginAt)


class Awaited(IntEnum):
    NOTHING = 0
    EPOCH = 1
    SYNC = 2
    ROOM = 3
    STATE = 4


class LogFollower:
    """`waits`: it acknowledges synced batches only. `committed`: the known committed end, beyond
    the evidence of the headers."""

    def __init__(self, owner: ReplicatedPartition, waits: bool, committed: int = 0) -> None:
        self._owner = owner
        self._label, self._key, self._target = owner.replica.label, owner.key, owner.target
        self.log, self.own = owner.replica.log, owner.own
        self.listed = False  # the record has this replica among the members
        self.leader = NO_NODE  # whose session this is
        self._replication = replication = owner.replication
        self._syncs, self._health = owner.context.syncs, owner.context.health
        self._sync_wanted = False
        self._previous: BatchName = NO_BATCH  # of the append that is being taken
        self.awaited = Awaited.NOTHING
        self._working = False
        self._ended = self._missed = False  # missed: frames of the leader, for want of room
        self._acknowledged: effects.Acknowledge | None = None  # an equal one is no news
        self._events: deque[Callable[[], None]] = deque()
        self._effects: deque[tuple[int, Any]] = deque()  # and the node that they answer
        if self.own.believes_headers:
            committed = max(committed, self.log.agreed_end)
        epoch = replication.epoch_ledger.epoch(self._key)
        replica, generation = self.own.replica, replication.generation
        self.machine = PartitionFollower(self.log, replica, generation, epoch, committed, waits)

    @property
    def stopped(self) -> bool:
        return self.machine.state is Following.STOPPED

    @property
    def busy(self) -> bool:
        """A sync thread holds the log's files, or the replica's own."""
        return self.log.busy or self.own.busy

    # --- input ---

    def receive(self, node: int, frame: Frame) -> None:
        if not isinstance(frame, _OF_LEADERS):  # for a leader, which this replica is no longer
            return
        if self.awaited is Awaited.ROOM:
            if not isinstance(frame, effects.Hello):
                self._missed = True
                return
            self._missed = False
            self._events.clear()
            self._effects.clear()
            self.awaited = Awaited.NOTHING
        waits = self._working or self.awaited is not Awaited.NOTHING
        if isinstance(frame, AppendFrame) and (waits or self._events or self._effects):
            frame = _kept(frame)
        self._take(partial(self._receive, node, frame))
        for index, (one, effect) in enumerate(self._effects):
            self._effects[index] = one, _kept(effect)

    def unlinked(self, node: int) -> None:
        self._take(partial(self._unlink, node))

    def abandon(self, epoch: int) -> None:
        """This replica was elected: it follows no lower epoch any more, and pending work of the
        earlier leader is dropped."""
        self._events.clear()
        self._effects.clear()
        if self.awaited is Awaited.ROOM:
            self.awaited = Awaited.NOTHING
        self.leader, self._missed = NO_NODE, False
        self.machine.unlinked()
        self.machine.epoch = max(self.machine.epoch, epoch)

    def record_seen(self, listed: bool, unclean_epoch: int) -> None:
        self.listed = listed
        self.machine.unclean_epoch = unclean_epoch
        self._note_in_sync()

    def settle(self) -> None:
        """Housekeeping: retry failed writes, and those of an earlier role."""
        label = self._label
        if self.awaited is Awaited.ROOM:
            self.awaited = Awaited.NOTHING
            if self._missed:
                self._missed = False
                self._events.append(self.machine.missed)
        elif self._health.reason(label, Trouble.WRITE) and not self.busy and self.log.would_take(1):
            self._health.clear(label, Trouble.WRITE)
        self._work()

    def _take(self, event: Callable[[], None]) -> None:
        self._events.append(event)
        self._work()

    def _work(self) -> None:
        if self._working:
            return
        self._working = True
        try:
            while self.awaited is Awaited.NOTHING and not self._ended:
                queue: deque[Any] = self._effects or self._events
                if not queue:
                    return
                try:
                    self._step(queue)
                except WriteRefused as error:
                    self._health.report(self._label, Trouble.WRITE, error.reason)
                    self.awaited = Awaited.ROOM
                except StorageError as error:
                    self.stop(error.reason)
                if self.awaited in (Awaited.NOTHING, Awaited.EPOCH) and queue:
                    queue.popleft()
        finally:
            self._working = False

    def _step(self, queue: deque[Any]) -> None:
        """One effect, or, when there is none, one event. A failed write stays in the queue."""
        if queue is self._effects:
            self._do(*queue[0])
        else:
            queue[0]()
            self._collect()

    def _collect(self, node: int | None = None) -> None:
        """Collect the machine's effects, in answer to the leader or another node."""
        out = self.machine.out
        if out:
            self.machine.out = []
            answered = self.leader if node is None else node
            self._effects.extend([(answered, effect) for effect in out])

    # --- frames of a leader ---

    def _receive(self, node: int, frame: Frame) -> None:
        if isinstance(frame, effects.Hello):
            self._on_hello(node, frame)
        elif node == self.leader:
            match frame:
                case AppendFrame():
                    self._previous = frame.previous
                    self.machine.append(*frame)
                case effects.MatchAt():
                    self.machine.match_at(frame.session, frame.end, frame.chain)
                case effects.BeginAt():
                    self.machine.begin_at(frame.session, frame.start)

    def _on_hello(self, node: int, frame: effects.Hello) -> None:
        if not (self.listed or self._copies()):
            return
        self.machine.hello(frame.session, frame.epoch)
        if self.machine.session == frame.session:
            self.leader = node
        self._collect(node)

    def _unlink(self, node: int) -> None:
        if node == self.leader:
            self.leader = NO_NODE
            self.machine.unlinked()

    # --- effects ---

    def _do(self, node: int, effect: Any) -> None:
        match effect:
            case effects.Append():
                self._append(effect)
            case effects.Sync():
                self._sync()
            case effects.Acknowledge():
                if effect != self._acknowledged:
                    self._acknowledged = effect
                    self._answer(node, effect)
            case effects.ReportExtent() | effects.Matched() | effects.Refuse():
                self._answer(node, effect)
            case effects.SaveEpoch(epoch):
                self.awaited = Awaited.EPOCH
                self._replication.epoch_ledger.save(self._key, epoch, self._promised)
            case effects.Truncate(end):
                self._cut(end)
            case effects.Begin(start):
                self._begin(start)
            case effects.Stop(reason):
                self.stop(reason)
            case _:
                raise RuntimeError(f"{self._label}: unknown effect: {effect}")

    def _answer(self, node: int, frame: Frame) -> None:
        self._replication.peers.send(node, PeerLane.LIVE, encode(self._target, frame))

    def _promised(self) -> None:
        if self.awaited is Awaited.EPOCH:
            self.awaited = Awaited.NOTHING
            self._work()

    def _cut(self, end: int) -> None:
        if self.log.busy:
            self.awaited = Awaited.SYNC
            return
        self._owner.cut(self.log.cut(end, self.machine.is_unclean))

    def _begin(self, start: int) -> None:
        if self.log.busy:
            self.awaited = Awaited.SYNC
            return
        if not self._copies():
            return
        self._owner.cut(self.log.reset(start, self.machine.is_unclean))

    def _append(self, effect: effects.Append) -> None:
        log, batches = self.log, effect.batches
        own = self.own
        believes = own.believes_headers or own.busy
        if believes and _promised_end(batches) > log.synced_end and not self._copies():
            return
        try:
            headers = log.append_batches((batches,), self._previous)
        except AppendRefused as error:  # the leader will leave this replica out, or begin again
            self._health.report(self._label, Trouble.WRITE, error.reason)
            self.machine.unlinked()
            return
        self._health.clear(self._label, Trouble.WRITE)
        self._owner.replica.producers.appended(headers)
        self.machine.appended(log.written_end, effect.committed)
        self._collect()

    # --- the state of the replica ---

    def _copies(self) -> bool:
        """Mark the replica as copying, on disk. False: not yet; whatever needs it is retried
        then."""
        own = self.own
        if not (own.believes_headers or own.busy):
            return True
        self.awaited = Awaited.STATE
        if own.busy:
            own.when_free(self._state_written)
        else:
            own.become_soon("copying", self._syncs, self._state_written)
        return False

    def _state_written(self, error: OSError | None = None) -> None:
        if error is not None:
            reason = f"the replica does not become 'copying': {error}"
            self._health.report(self._label, Trouble.WRITE, reason)
        if self.awaited is Awaited.STATE:
            self.awaited = Awaited.NOTHING if error is None else Awaited.ROOM
            self._work()

    # --- syncs ---

    def sync(self) -> None:
        if self.log.busy:
            self._sync_wanted = True
        else:
            self._syncs.sync(self.log, self._synced, self.machine.waits)

    def _sync(self) -> None:
        self.sync()
        if not self.log.busy:  # a cut has synced all there is
            self.machine.synced()
            self._collect()

    def _synced(self, error: OSError | None) -> None:
        if self.log.stopped is not None:
            self.stop(self.log.stopped.reason)
            return
        if self._sync_wanted:
            self._sync_wanted = False
            self.sync()
        if self.awaited is Awaited.SYNC and not self.log.busy:
            self.awaited = Awaited.NOTHING
        self._take(self.machine.synced)
        self._note_in_sync()

    def _note_in_sync(self) -> None:
        """The mark, when it is due. Without it the replica only believes less."""
        follows = self.machine.state is Following.FOLLOWING and not self.busy
        is_due = self.listed and follows and not self.own.believes_headers
        if is_due and self.log.synced_end == self.log.written_end:
            self.own.become_soon("in_sync", self._syncs, self._in_sync_written)

    def _in_sync_written(self, error: OSError | None) -> None:
        if error is not None:
            reason = f"the replica does not become 'in_sync': {error}"
            self._health.report(self._label, Trouble.WRITE, reason)

    # --- the end ---

    def stop(self, reason: str) -> None:
        """The replica is in doubt. That is written down before anything else: the next process
        finds a whole log in the system's memory, whatever the disk has."""
        self.machine.state = Following.STOPPED
        self._ended = True
        self._events.clear()
        self._effects.clear()
        try:
            self.own.become("stopped", reason)
        except WriteRefused as error:
            reason = f"{reason}; {error.reason}"
        self._health.report(self._label, Trouble.STOPPED, reason)
        self._owner.assignment.note_stopped(reason)

    def validate(self) -> None:
        self.log.validate()
        if self.machine.committed > self.log.written_end and not self._effects:
            raise RuntimeError(
                f"{self._label}: {self.machine.committed} is committed in a log that ends at "
                f"{self.log.written_end}"
            )
        if self.own.state == "in_sync" and self.log.agreed_end > self.log.synced_end:
            raise RuntimeError(f"{self._label}: in sync, and not all that headers promise")


def _kept(one: Any) -> Any:
    """A copy of the batches, if any: the link's buffer is reused."""
    if isinstance(one, AppendFrame | effects.Append) and isinstance(one.batches, memoryview):
        return one._replace(batches=bytes(one.batches))
    return one


def _promised_end(batches: Buffer) -> int:
    """The synced end of every member, according to the headers of an append. Invalid batches
    promise nothing: the log refuses them."""
    promised = position = 0
    length = memoryview(batches).nbytes
    while position < length:
        try:
            header = decode_header(batches, position)
        except ValueError:
            break
        promised = max(promised, header.synced_end)
        position += max(header.length, 1)
    return promised
