"""The channel journal of a replicated partition: what its leader sends and a follower accepts.

A record has a *position*: its generation (epoch and number) and its sequence in that. One
leadership writes a generation, and each position of it once. A position therefore identifies one
record, and whoever has it has everything before it in its generation, beginning with a complete
snapshot.

**The follower.** It compares positions, never contents:

| a frame of | carries | then |
|---|---|---|
| an older session or a lower epoch | anything | it is dropped |
| this session | the record after the last one | it is written |
| this session | a snapshot of a newer generation | it replaces everything |
| this session | anything else | it requests a snapshot, once, and drops all else until that comes |

A follower whose disk refused a record drops everything but snapshots, and requests one at
housekeeping.

It syncs what it found when a session begins, each snapshot, and a position that its leader
asks for; the rest at its own pace. Most records hold finished messages, and no answer
waits for those.

Nothing of a lower epoch counts once a snapshot of a higher one is there. A snapshot is written into
another file and synced before the previous one may be overwritten (`log.journal_file`).

**The leader.** Its leadership begins a generation, with a snapshot, before its first record: what
it took over says nothing about what other replicas have. A replica at exactly the leader's position
receives what follows, and any other a new generation; one serves all that wait for it.

**Held** is the last position that every needed member and the leader itself have *synced*. A change
that must survive a failover is answered when its position is held: a seek, an empty, a finish by
id, a redrive, the start of a channel or of the log. The leader asks every replica it
feeds, and its own disk, to sync that position. A finished message is not answered like this: its
record is on its way, and a failover may deliver the message again.

**The start of the log** is in the journal. A replica removes what is below it only once the
position that announces it is held: until then another leader may be elected that does not know of
it, and may promise removed offsets. An announced start that is not held ends with its generation.
"""

from collections import deque
from collections.abc import Collection
from typing import Any, NamedTuple

from penstock.log.fold import Position, epoch_of
from penstock.replication.effects import Leave, Stop

NOTHING = Position(0, 0)

# --- effects ---


class HelloJournal(NamedTuple):
    """To a replica whose log has caught up: report the position of your journal."""

    node: int
    session: int
    epoch: int


class ReportPosition(NamedTuple):
    """To the leader, in answer to its HelloJournal."""

    session: int
    epoch: int
    replica: int
    position: Position


class RequestSnapshot(NamedTuple):
    session: int
    epoch: int


class RequestSync(NamedTuple):
    """To a follower: a caller waits until this position is on disk."""

    node: int
    session: int
    epoch: int
    position: Position


class SyncOwn(NamedTuple):
    """An answer waits for the leader's own journal as well."""


class AcknowledgePosition(NamedTuple):
    session: int
    epoch: int
    replica: int
    written: Position
    synced: Position


class TakeRecord(NamedTuple):
    """Write it behind the last one, then call `wrote` or `write_failed`."""

    record: Any  # as the shell handed it in


class TakeSnapshot(NamedTuple):
    """Begin another file with it, then call `wrote` or `write_failed`."""

    record: Any


class SyncJournal(NamedTuple):
    pass


class DropBelow(NamedTuple):
    """Whole segments below this offset may be removed."""

    start: int


class SendRecord(NamedTuple):
    """`held`: the follower may act on records up to here."""

    node: int
    session: int
    epoch: int
    position: Position
    record: Any
    held: Position


class SendHeld(NamedTuple):
    node: int
    session: int
    epoch: int
    held: Position


class ReportHeld(NamedTuple):
    """The changes that waited under this token are in the in-sync set."""

    token: Any  # as the shell handed it in


class LogStarts:
    """The starts of the log in a journal, and how much of them may be acted on."""

    __slots__ = ("_newest", "_waiting", "dropped")

    def __init__(self, start: int, position: Position) -> None:
        self._newest = start
        self._waiting: deque[tuple[Position, int]] = deque([(position, start)] if start else ())
        self.dropped = 0

    def wrote(self, position: Position, start: int) -> None:
        if position.sequence == 0:  # what was said before and was not held goes with its generation
            self._waiting.clear()
            self._newest = 0
        if start > self._newest:
            self._newest = start
            self._waiting.append((position, start))

    @property
    def waiting(self) -> bool:
        return bool(self._waiting)

    @property
    def newest_position(self) -> Position:
        return self._waiting[-1][0] if self._waiting else NOTHING

    def droppable(self, held: Position) -> int:
        """The start that is now below `held`; 0: no new one."""
        found = 0
        while self._waiting and self._waiting[0][0] <= held:
            found = self._waiting.popleft()[1]
        if found <= self.dropped:
            return 0
        self.dropped = found
        return found


class JournalFollower:
    """`position` is the last record that another may follow, `NOTHING` where none may; `start` the
    start of the log according to the journal."""

    def __init__(self, replica: int, epoch: int, position: Position, start: int) -> None:
        self.epoch = epoch  # the highest that this replica has promised
        self.session = 0
        self.position = position
        self.synced_position = NOTHING
        self.out: list[Any] = []
        self._replica = replica
        self._starts = LogStarts(start, position)
        self._held = NOTHING
        self._snapshot_requested = False  # a snapshot is on its way, as far as is known
        self._failed = False  # the disk did not take what came
        self._stopped = False
        self._wanted = NOTHING  # to be synced, as soon as the disk is free

    def hello(self, session: int, epoch: int) -> None:
        """A leader has taken up this replica, whose log has caught up. The epoch is durable
        already."""
        if self._stopped or epoch < self.epoch:
            return
        self.session, self.epoch = session, epoch
        self._held = NOTHING  # what an earlier leader called held is held; this one says it again
        self._snapshot_requested = False
        self._wanted = self.position
        self.out.append(ReportPosition(session, epoch, self._replica, self.position))
        if self.synced_position < self.position:
            self._sync_wanted()
        else:
            self._acknowledge()

    def record(
        self, session: int, epoch: int, position: Position, record: Any, held: Position
    ) -> None:
        """A frame of a leader. A snapshot comes first in its generation."""
        if self._stopped or self._is_old(session, epoch):
            return
        if position.sequence == 0 and position.generation > self.position.generation:
            self.out.append(TakeSnapshot(record))
        elif self._snapshot_requested:
            return
        elif self._follows(position):
            self.out.append(TakeRecord(record))
        else:
            self._request_snapshot()
            return
        self.held(session, epoch, held)

    def _is_old(self, session: int, epoch: int) -> bool:
        return (session, epoch) != (self.session, self.epoch)

    def _follows(self, position: Position) -> bool:
        return self.position != NOTHING and position == self.position._replace(
            sequence=self.position.sequence + 1
        )

    def _request_snapshot(self) -> None:
        self._snapshot_requested = True
        self.out.append(RequestSnapshot(self.session, self.epoch))

    def wrote(self, position: Position, start: int) -> None:
        """`start`: the start of the log in the journal now."""
        self.position = position
        self._snapshot_requested = self._failed = False
        self._starts.wrote(position, start)
        self._drop()
        self._acknowledge()
        if position.sequence == 0:
            self._wanted = max(self._wanted, position)
        self._sync_wanted()

    def _sync_wanted(self) -> None:
        """Requested positions that have not arrived yet are synced once they are written."""
        if self.synced_position < min(self._wanted, self.position):
            self.out.append(SyncJournal())

    def sync_requested(self, session: int, epoch: int, position: Position) -> None:
        """An answer of the leader waits until this position is on the disk."""
        if self._stopped or self._is_old(session, epoch):
            return
        self._wanted = max(self._wanted, position)
        self._sync_wanted()

    def sync_all(self) -> None:
        """Housekeeping, every two seconds: a power loss then repeats no more than that."""
        if not self._stopped:
            self._wanted = max(self._wanted, self.position)
            self._sync_wanted()

    def write_failed(self) -> None:
        """The end of the file is unknown: only a snapshot helps. It is not requested at once: with
        a full disk here the leader would write one snapshot after the other."""
        self.position = NOTHING
        self._snapshot_requested = self._failed = True

    def try_again(self) -> None:
        """Housekeeping: the disk may take it now."""
        if self._failed and self.session:
            self._failed = False
            self._request_snapshot()

    def synced(self, position: Position) -> None:
        """Records written meanwhile are synced next, if someone waits for them."""
        self.synced_position = position
        self._acknowledge()
        self._drop()
        self._sync_wanted()

    def sync_failed(self) -> None:
        """The contents of the files are unknown, and the system may not report it again: after a
        restart a sync of the same file would succeed, and prove nothing."""
        self._stopped = True
        self.out.append(Stop("a sync of the channel journal failed"))

    def _acknowledge(self) -> None:
        synced = self.synced_position
        self.out.append(
            AcknowledgePosition(self.session, self.epoch, self._replica, self.position, synced)
        )

    def held(self, session: int, epoch: int, held: Position) -> None:
        if self._stopped or self._is_old(session, epoch):
            return
        self._held = max(self._held, held)
        self._drop()

    def _drop(self) -> None:
        """A start that the set holds may be acted on here only once it is on this disk as well:
        records here from an earlier epoch are not those that this leader calls held."""
        held, position = self._held, self.position
        if held == NOTHING or epoch_of(held.generation) != epoch_of(position.generation):
            return
        start = self._starts.droppable(min(held, self.synced_position))
        if start:
            self.out.append(DropBelow(start))


class _Peer:
    """The replica on another node, in one session of the link."""

    __slots__ = ("fed", "needs_snapshot", "replica", "session", "synced", "written")

    def __init__(self, session: int) -> None:
        self.session = session
        self.replica = 0
        self.fed = False  # it is sent each record
        self.needs_snapshot = False
        self.written = NOTHING
        self.synced = NOTHING


class JournalLeader:
    """For one leadership. `position` and `start` are those of the journal that it takes over."""

    def __init__(self, node: int, epoch: int, position: Position, start: int) -> None:
        self.position = position
        self.held = NOTHING
        self.out: list[Any] = []
        self._node = node
        self._epoch = epoch
        self._begun = False
        self._over = False
        self._synced = NOTHING
        self._sync_requested = NOTHING
        self._needed: frozenset[tuple[int, int]] = frozenset()
        self._peers: dict[int, _Peer] = {}
        self._waiting: deque[tuple[Position, Any]] = deque()
        self._starts = LogStarts(start, position)

    # --- records of this leader ---

    @property
    def must_begin(self) -> bool:
        """The next record has to be a snapshot in a new generation, and should come soon."""
        is_due = not self._begun or any(peer.needs_snapshot for peer in self._peers.values())
        return is_due and not self._over

    def wrote(self, position: Position, record: Any, start: int) -> None:
        if self._over:
            return
        is_snapshot = position.generation != self.position.generation
        self._begun = True
        self.position = position
        self._starts.wrote(position, start)
        for node, peer in self._peers.items():
            if is_snapshot and peer.replica:
                peer.fed, peer.needs_snapshot = True, False
            if peer.fed:
                self.out.append(self._frame(node, peer, record))
        if self._starts.newest_position == position or (is_snapshot and self._waiting):
            self._request_sync(position)

    def _frame(self, node: int, peer: _Peer, record: Any) -> SendRecord:
        return SendRecord(node, peer.session, self._epoch, self.position, record, self.held)

    def synced(self, position: Position) -> None:
        self._synced = position
        if position < self._sync_requested:
            self.out.append(SyncOwn())
        self._look()

    def sync_failed(self) -> None:
        """The contents of the files are unknown: from now on this leadership sends and answers
        nothing."""
        self._over = True
        self.out.append(Leave("a sync of the channel journal failed"))

    # --- the others ---

    def linked(self, node: int, session: int) -> None:
        """The log of the replica on this node is level: its journal's turn has come. What it
        acknowledged in an earlier session is forgotten."""
        self._peers[node] = _Peer(session)
        self.out.append(HelloJournal(node, session, self._epoch))

    def position_reported(self, node: int, session: int, replica: int, position: Position) -> None:
        peer = self._peer(node, session)
        if peer is None:
            return
        peer.replica = replica
        peer.fed = self._begun and position == self.position != NOTHING
        peer.needs_snapshot = not peer.fed

    def snapshot_requested(self, node: int, session: int) -> None:
        peer = self._peer(node, session)
        if peer is not None:
            peer.fed, peer.needs_snapshot = False, True

    def acknowledged(
        self, node: int, session: int, replica: int, written: Position, synced: Position
    ) -> None:
        peer = self._peer(node, session)
        if peer is None or peer.replica != replica:
            return
        peer.written, peer.synced = written, synced
        self._look()

    def unlinked(self, node: int) -> None:
        self._peers.pop(node, None)

    def _peer(self, node: int, session: int) -> _Peer | None:
        peer = self._peers.get(node)
        return peer if peer is not None and peer.session == session else None

    def is_level(self, node: int, replica: int) -> bool:
        """It has everything that the set has, and receives the rest: as far as the journal goes it
        may be a member."""
        peer = self._peers.get(node)
        if peer is None or peer.replica != replica or not peer.fed:
            return False
        return self._is_mine(peer.synced) and peer.synced >= self.held

    # --- acknowledgements of the set ---

    def needs(self, members: Collection[tuple[int, int]]) -> None:
        """Node and replica of each member of each possible set, and of a learner that is about to
        join."""
        self._needed = frozenset(one for one in members if one[0] != self._node)
        self._look()

    def when_held(self, position: Position, token: Any) -> None:
        """`ReportHeld` comes when the set has the record of this position."""
        if position <= self.held:
            self.out.append(ReportHeld(token))
        else:
            self._waiting.append((position, token))
            self._request_sync(position)

    def _request_sync(self, position: Position) -> None:
        """Of all replicas that have it, or will; a replica that receives a snapshot syncs that in
        any case."""
        if position <= self._sync_requested or self._over:
            return
        self._sync_requested = position
        if self._synced < position:
            self.out.append(SyncOwn())
        for node, peer in self._peers.items():
            if peer.fed:
                self.out.append(RequestSync(node, peer.session, self._epoch, position))

    def _look(self) -> None:
        held = min([self._synced, *(self._counted(*one) for one in self._needed)])
        if self._over or not self._is_mine(held) or held <= self.held:
            return
        self.held = held
        while self._waiting and self._waiting[0][0] <= held:
            self.out.append(ReportHeld(self._waiting.popleft()[1]))
        if self._starts.waiting:
            self._let_drop(held)

    def _let_drop(self, held: Position) -> None:
        start = self._starts.droppable(held)
        if start:
            self.out.append(DropBelow(start))
            for node, peer in self._peers.items():
                self.out.append(SendHeld(node, peer.session, self._epoch, held))

    def _counted(self, node: int, replica: int) -> Position:
        peer = self._peers.get(node)
        if peer is None or peer.replica != replica:
            return NOTHING
        return peer.synced

    def _is_mine(self, position: Position) -> bool:
        """A position of an earlier leadership proves nothing about the records of this one."""
        return epoch_of(position.generation) == self._epoch

    def leave(self) -> list[Any]:
        """The leadership is over: waiting changes have an unknown outcome."""
        waiting, self._waiting = self._waiting, deque()
        return [token for _, token in waiting]
