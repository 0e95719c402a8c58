"""A partition of a topic on this node: its files, and its role.

    Replica: log, channel journal, table of producers: open files, and nothing is served
      led        by a `Leader` publishers and consumers are served, with objects of the kernel

A topic of this node alone leads all its partitions from the start on. Of a topic that a cluster
places some partitions are here, and `replicas/` says what they are when they are not led.

A leader is an object that goes as a whole, so that nothing of one is left in another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.broker.health import Trouble
from penstock.broker.partition.journal import Journal
from penstock.broker.partition.leader import Leader
from penstock.broker.partition.producers import ProducerTable
from penstock.broker.replicas.replicated_partition import ReplicatedPartition
from penstock.broker.topics.topic_file import Marks
from penstock.errors import PartitionElsewhere, StorageError
from penstock.log.damage import describe

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.replicas.leadership import Leadership
    from penstock.broker.replicas.replica_file import ReplicaFileStore
    from penstock.broker.topics.topic import Topic
    from penstock.log.damage import Damage
    from penstock.log.fold import Folded
    from penstock.log.partition import PartitionLog


class Replica:
    """Raises TopicDamaged and StorageError, and then the kernel knows nothing of it."""

    def __init__(
        self,
        topic: Topic,
        number: int,
        log: PartitionLog,
        marks: Marks | None = None,
        own: ReplicaFileStore | None = None,
    ) -> None:
        """`own`: of a replica that a cluster has placed here."""
        self.topic = topic
        self.number = number
        # Troubles, log lines and errors name it: a topic's first partition by the topic alone.
        self.label = f"{topic.name}/{number}" if number else topic.name
        self.log = log
        self.path = log.path
        self.kept = kept = not topic.ephemeral  # else nothing of it outlives the process
        self.led: Leader | None = None
        self._marks = marks or Marks()  # as topic.json had them, or the last leader left them
        self._context = context = topic.context
        self._damage_count = 0  # of ranges, when retention was last looked at
        self.mark_failed = False
        committed_end = None if own is None else log.agreed_end if own.believes_headers else 0
        self.producers = ProducerTable(self, committed_end)
        self.journal: Journal | None = None  # of a leader
        self.folded: Folded | None = None  # what it said when that began
        self.replicated: ReplicatedPartition | None = None
        if own is not None and context.replica_host is not None:
            log.damage.lost_is_news = True  # another replica may have it
            self.replicated = ReplicatedPartition(context, context.replica_host, self, own)
        elif kept:
            self.journal, self.folded = self._open_journal()
        if log.leftovers:
            context.health.report(self.label, Trouble.LEFTOVERS, "; ".join(log.leftovers))
        log.damage.on_added = self._report_damage
        for damage in log.damaged:
            self._report_damage(damage)

    def _open_journal(self) -> tuple[Journal, Folded | None]:
        context = self._context
        bytes_max = context.options.journal_bytes_max
        try:
            return Journal.open(context.disk, self.path, bytes_max, on_disk=not context.killed)
        except OSError as error:
            raise StorageError(self.path, f"the channel journal cannot be read: {error}") from error

    def lead(self, leadership: Leadership | None = None) -> Leader:
        """A tail that continues the log, without windows so far."""
        self.led = Leader(self._context, self, leadership)
        return self.led

    def step_down(self) -> None:
        """The leadership is over, and the topic has nothing of it any more."""
        self._marks = self.marks
        self.led = None
        self.topic.leaderships_ended += 1
        self.journal = self.folded = None

    def is_younger_than(self, channel: Channel) -> bool:
        """Was the partition made after this channel? Their numbers follow one another."""
        return self.number >= channel.partitions_then

    @property
    def marks(self) -> Marks:
        leader = self.led
        if leader is None:
            return self._marks
        return Marks(leader.age_marks.marks, leader.retain_marks.marks)

    @property
    def leader(self) -> Leader:
        if self.led is None:
            raise PartitionElsewhere(self.topic.name, self.number)
        return self.led

    # --- files, led or not ---

    def mark(self, wall_ns: int) -> None:
        """A failed write of the mark is repeated, and shown until it succeeds."""
        health = self._context.health
        health.show(self.label, Trouble.INDEX, self.log.index_trouble)
        health.show(self.label, Trouble.SYNC, self.log.sync_trouble)
        try:
            self.log.mark(wall_ns)
        except StorageError as error:
            self.mark_failed = True
            health.report(self.label, Trouble.MARK, error.reason)
            return
        if self.mark_failed and self.log.is_marked:
            self.mark_failed = False
            health.clear(self.label, Trouble.MARK)

    def remove(self, segments: Callable[[], int]) -> int:
        """Remove old segments. Returns how many; a failed removal is shown until it succeeds."""
        removed, reason = 0, ""
        try:
            removed = segments()
        except StorageError as error:
            reason = error.reason
        self._context.health.show(self.label, Trouble.CLEANUP, reason)
        self.refresh_damage()
        return removed

    # --- damage ---

    @property
    def damaged(self) -> list[Damage]:
        """Ranges that readers cannot have: start, end, reason."""
        return self.log.damaged

    def _report_damage(self, newest: Damage) -> None:
        others = len(self.log.damage) - 1
        ranges = "range" if others == 1 else "ranges"
        rest = f" ({others} other {ranges} of offsets too)" if others else ""
        self._context.health.report(self.label, Trouble.CORRUPT, f"{describe(newest)}{rest}")

    def refresh_damage(self) -> None:
        """Retention may have removed corrupt batches."""
        left = self.log.damaged
        if not left:
            self._context.health.clear(self.label, Trouble.CORRUPT)
            self._context.health.clear(self.label, Trouble.CONCEDED)
        elif len(left) != self._damage_count:
            self._report_damage(left[-1])
        self._damage_count = len(left)

    # --- the end ---

    def rest(self) -> None:
        """An idle replica holds no descriptors: so ten thousand topics fit a node."""
        self.log.rest()
        if self.replicated is not None and self.journal is None:
            self.replicated.rest()
        if self.journal is not None:
            self.journal.rest()

    def close(self) -> None:
        """The log; the journal is closed when all topics' logs are. Raises nothing."""
        try:
            if self.kept:
                self.log.close()
        except StorageError as error:
            self._context.health.report(self.label, Trouble.WRITE, f"at close: {error}")
        if not self.kept:
            self.destroy()

    def destroy(self) -> None:
        """Remove the log. What could not be removed is tried again with the topic's directory."""
        try:
            self.log.destroy()
        except StorageError as error:
            self._context.health.report(self.label, Trouble.CLEANUP, error.reason)
