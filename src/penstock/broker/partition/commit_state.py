"""Who may write appends to one partition, and which of them is in flight.

Values in, values out: no clock, disk, thread or kernel. `group_commit.GroupCommit` is its only
caller; it reports what has happened and does what the answer says. How far all is committed is the
word of the partition's `PartitionLeader` (`replication/leader.py`).

An append is any number of batches that are written by one gathered write, made safe by one sync and
answered at once. At most one append is in flight:

    written --(the leader's rule: on the disk, where the topic waits for it, and with every member
               of the set, which is this one alone on a single node)--> committed
            --a failed write or sync--> failed; alone, the log ends where the append began

| a partition is | appends of publishers | parts of a commit | publishes are |
|---|---|---|---|
| leading | are written | none is there | taken |
| held: a commit of stages has the log's end | gather | are written | taken |
| blocked: that commit cannot be finished now | are refused | are tried again | refused |
| stopped: a sync failed, the file is in doubt | are refused | wait | refused |
| retired: the topic is being deleted | were the last ones | are dropped | refused |

Where there are other replicas, appends are also held back while the leader's rule wants none: while
the leadership is handed over, and when a leader that is its only member has not heard of the
coordinator for too long.

Stopped and retired are final: no appends of publishers are written any more.

**A publish stored in one call of the kernel** (`DirectPublish`): for a topic with one replica and
durability `os`, where what is written is committed, and for batches that no Python code waits for.
A publisher that waits for each answer makes batches of one message, so what each batch costs, each
message costs. For its next ones the kernel stays (`Engine.stay`) and stores them without any call.

**The pace of syncs** that no publisher waits for (durability `os`). A sync costs the same whatever
it has to write, so a topic does not have more of them for being in several partitions: they share
one pause, and after it the partition is synced that would lose most in a power loss.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.kernel import LogEnd

if TYPE_CHECKING:
    from penstock.broker.partition.group_commit import GroupCommit
    from penstock.broker.partition.replica import Replica
    from penstock.kernel import Tail
    from penstock.replication.leader import PartitionLeader


NONE = -1  # no append is in flight


class CommitState:
    """`ready`: an append of publishers may be written now. `is_alone`: no other replica has
    appends."""

    __slots__ = ("in_flight_end", "is_alone", "is_held", "is_over", "ready", "rule")

    def __init__(self, rule: PartitionLeader, is_alone: bool) -> None:
        self.rule = rule
        self.is_alone = is_alone
        self.is_held = False  # a commit of stages has the log's end
        self.is_over = False  # stopped, or retired
        self.in_flight_end = NONE
        self.ready = self._is_ready

    def hold(self, held: bool) -> None:
        self.is_held = held
        self._refresh()

    def end(self) -> None:
        self.is_over = True
        self._refresh()

    def _refresh(self) -> None:
        self.ready = self._is_ready

    @property
    def _is_ready(self) -> bool:
        if self.is_held or self.is_over or self.in_flight_end != NONE:
            return False
        return self.is_alone or self.rule.takes_appends

    def permitted(self) -> bool:
        """The rule may allow more or less than it did. True: appends may be written again."""
        before = self.ready
        self._refresh()
        return self.ready and not before

    def wrote(self, end: int) -> bool:
        """An append up to `end` is in the log, and the rule knows it. True: it is committed."""
        rule = self.rule
        if self.is_alone:  # what the rule would do, without asking it: every publish comes here
            rule.end = end
            if not rule.waits:
                rule.own = rule.committed = end
        if rule.committed >= end:
            return True
        self.in_flight_end = end
        self.ready = False
        return False

    def advanced(self) -> bool:
        """The replication rule has advanced. True: this commits the append in flight."""
        if self.in_flight_end == NONE or self.rule.committed < self.in_flight_end:
            return False
        self.in_flight_end = NONE
        self._refresh()
        return True

    def failed(self) -> None:
        """The append in flight, if there is one, was not stored, or it is not known."""
        self.in_flight_end = NONE
        self._refresh()

    def validate(self) -> None:
        if self.in_flight_end != NONE and self.in_flight_end <= self.rule.committed:
            raise RuntimeError(
                f"an append in flight ends at {self.in_flight_end}, which is committed"
            )
        if self.ready != self._is_ready and not self.rule.over:
            raise RuntimeError("whether an append may be written is not what the state says")


class DirectPublish:
    __slots__ = ("_context", "_end", "_ids", "_kept", "_log", "_pace", "_state", "_tail", "_topic")

    def __init__(self, replica: Replica, tail: Tail, state: CommitState) -> None:
        self._topic = topic = replica.topic
        self._context = topic.context
        self._ids = topic.context.ids
        self._pace = topic.pace
        self._tail = tail
        self._log = replica.log
        self._state = state
        self._kept = replica.kept
        self._end = LogEnd()
        self._end.epoch = state.rule.record.epoch
        self._end.node_id = self._ids.node_id

    def write(self, wall_ns: int) -> bool:
        """False: it needs an append. Raises StorageError, and then log and tail are unchanged."""
        if not self._begin():
            return False
        try:
            stored = self._tail.store(self._end, wall_ns)
        except OSError as error:
            raise self._log.write_failed(error) from error
        if stored:
            self._finish()
        return stored

    def stay(self) -> list[tuple[Any, ...]]:
        """Wait in the kernel for the next publishes (`Engine.stay`), and return its events. Raises
        StorageError; then the open batch is unchanged, and those before it are stored."""
        if not self._begin():
            return []
        try:
            events = self._context.engine.stay(self._tail, self._end)
        except OSError as error:
            self._finish()  # of those that were stored before
            raise self._log.write_failed(error) from error
        self._finish()
        return events

    def _begin(self) -> bool:
        state, end = self._state, self._end
        end.last_id = self._ids.last_id
        if not state.is_alone or state.rule.waits or self._tail.trace_below:
            return False
        return self._log.lend(end, self._tail.written_end)

    def _finish(self) -> None:
        log, end = self._log, self._end
        length = log.take_back(end, self._tail.written_end)
        if not length:
            return
        self._ids.last_id = end.last_id
        self._context.touched[self._topic] = None
        self._context.headroom_bytes -= length
        self._state.wrote(log.written_end)
        unsynced_count = log.written_end - log.synced_end
        if unsynced_count >= self._pace.every_count and self._kept:
            self._pace.look(unsynced_count, end.last_timestamp_ns)


class SyncPace:
    def __init__(self, partitions: Callable[[], Iterable[GroupCommit]], every_count: int) -> None:
        self._partitions = partitions
        self.every_count = every_count
        self._due_ns = 0

    def look(self, unsynced_count: int, wall_ns: int) -> None:
        """After an append, `unsynced_count` messages of that partition are not on disk yet. Below
        `every_count` no call is needed."""
        if unsynced_count < self.every_count or wall_ns < self._due_ns:
            return
        self._due_ns = wall_ns + limits.SYNC_PAUSE_NS
        free = [one for one in self._partitions() if not one.busy]
        first = max(free, key=lambda one: one.unsynced_count, default=None)
        if first is not None and first.unsynced_count >= self.every_count:
            first.sync()
