"""The role of a leader: publishers write to this partition here, and its channels are served.

It has what the kernel needs for that, the tail and a window for each channel (`Channel.windows`
lists them, `Cursors` keeps their state in the journal), and `GroupCommit`, the one writer.

Damage below the synced end is found while reading, or was found at the start. On a node by itself
the corrupt offsets are stepped over, everything else is served, and health warns of it. Where a
cluster has placed the partition, another member may have these messages: the reader waits until
they are fetched (`repair.py`), for the journal would take "done" to every replica; or until they
are conceded, because no replica has them or an operator said so. Publishing goes on, unless the end
of the log is corrupt: then it is not known where the next batch belongs, and an operator has to
look.

**Where a channel begins** in a partition whose journal does not know it. A leader that makes a
channel's window writes where it begins into the journal, and confirms the channel when that record
is held (`replication.journal`). So what a new leader's journal does not know was never confirmed by
this partition: the channel's promises here begin now, and not before.

| the channel is | it begins at | else it would |
|---|---|---|
| older than the partition | the start of the log | miss what came before it was noticed |
| the topic's first, or the topic is paused | the topic's own queue | miss what was kept for it |
| none of these | the committed end | get the whole history, though it is new |
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from penstock import limits
from penstock.broker.channels.cursors import Cursors
from penstock.broker.health import Trouble
from penstock.broker.partition.group_commit import GroupCommit
from penstock.broker.partition.idempotent import StampedPublishes
from penstock.broker.replicas.leadership import Leadership
from penstock.broker.topics.retention import AgeMarks
from penstock.broker.topics.settings import ORDERS, ChannelOrder
from penstock.durations import DURATION_NS_MAX
from penstock.errors import ChangeUnknown, LogDamaged, StorageError
from penstock.kernel import Source, TraceKind, Window
from penstock.log.damage import describe, joined, outside

if TYPE_CHECKING:
    from penstock.broker.channels.channel import Channel
    from penstock.broker.context import Context
    from penstock.broker.partition.appends import PublishDone
    from penstock.broker.partition.replica import Replica
    from penstock.broker.replicas.replicated_journal import JournalSender
    from penstock.errors import PenstockError
    from penstock.log.fold import ChannelState
    from penstock.replication.authority import Permits


class Leader:
    def __init__(
        self, context: Context, replica: Replica, leadership: Leadership | None = None
    ) -> None:
        """`leadership`: of a partition that has other replicas, all of its log committed."""
        topic, log = replica.topic, replica.log
        self.topic = topic
        self.replica = replica
        self.number = replica.number
        self.log = log
        self.retain_age_ns = context.options.retain_age_ns
        self.retain_bytes = context.options.retain_bytes
        self.age_marks = AgeMarks(replica.marks.age)
        self.retain_marks = AgeMarks(replica.marks.retain)
        self._context = context
        self._unread: dict[tuple[Window, int], int] = {}  # loads that failed, by offset
        self.tail = context.engine.tail(
            topic.name.encode(),
            log.written_end,
            context.options.tail_memory_bytes_max,
            replica.number,
        )
        self.tail.owner = self
        self.tail.traceable = not topic.internal
        waits = replica.kept and topic.effective.durability == "disk"
        self.leadership = leadership or Leadership.of_one(log, waits)
        self.group: GroupCommit = GroupCommit(replica, self.tail, self.leadership)
        self.stamped = StampedPublishes(replica, self.group)
        self.steps_over_damage = self.leadership.is_alone
        self._conceded: list[tuple[int, int]] = []  # what readers do not wait for any more
        self.led: JournalSender | None = None  # the journals of other replicas
        self._lack = ""  # of replicas, to commit
        self._permits = self.leadership.machine.permits
        self.cursors: Cursors | None = None
        if replica.journal is not None:
            self.cursors = Cursors(context, replica.label, replica.journal, replica.folded)
        if log.refusal is not None:
            context.health.report(replica.label, Trouble.DAMAGED, self.refusal)

    @property
    def refusal(self) -> str:
        """Why publishes are refused until something changes; empty when they are accepted."""
        if self.group.stopped:
            return self.group.stopped
        if not self._permits.publishes:
            return "it is not known whether this node still leads the partition"
        if self.log.refusal is not None:
            return f"the end of the log is corrupt: {describe(self.log.refusal)}"
        return self.group.blocked or self._context.disk_refusal or self._lack

    def lacks(self, reason: str) -> None:
        """Too few other replicas are there to commit, or (empty) enough again."""
        if reason != self._lack:
            self._lack = reason
            self.topic.refresh_refusal()
            if reason:
                self.group.refuse_gathered(reason)

    # --- permits ---

    @property
    def acts(self) -> bool:
        """May it remove old messages, and send some elsewhere? (`replication/authority.py`)"""
        return self._permits.acts

    def permit(self, permits: Permits) -> None:
        before, self._permits = self._permits, permits
        if before == permits:
            return
        topic = self.topic
        (topic.silent.discard if permits.delivers else topic.silent.add)(self.number)
        for channel in topic.channels.values():
            channel.refresh_held()
        topic.refresh_refusal()

    def when_held(self, done: PublishDone) -> None:
        """Called once every needed member has the present contents of the journal on disk; with
        ChangeUnknown when the leadership ends earlier, or has ended. A single node answers at
        once."""
        led = self.led
        if led is None:
            done(None)
            return
        reason = "the leadership has ended: the outcome is unknown, ask again"
        lost = ChangeUnknown(self.replica.label, reason)
        led.when_held(lambda: done(None), lambda: done(lost))

    def keep_order(self) -> None:
        """In strictly ordered channels the next message waits for the in-sync set."""
        if self.cursors is not None:
            self.cursors.on_written = OrderGates(self).note

    @property
    def busy(self) -> bool:
        is_saving = self.cursors is not None and self.cursors.files.busy
        return self.group.busy or is_saving or self.replica.producers.busy

    @property
    def depth(self) -> int:
        """Messages that no channel has been given yet."""
        return self.tail.committed_end - self.tail.handed_end

    @property
    def backend_depth(self) -> int:
        """The part of `depth` that has to be read from disk."""
        tail = self.tail
        return max(0, min(tail.memory_start, tail.committed_end) - tail.handed_end)

    @property
    def failure(self) -> str:
        """Why the append that just failed was not stored; empty when none has."""
        reason = self._context.health.reason(self.replica.label, Trouble.WRITE)
        return self.topic.refusal or self.refusal or reason

    # --- channels ---

    def bring_back(self, channels: Sequence[Channel], gathers: bool, hands_over: bool) -> None:
        """`gathers`: the topic keeps new messages itself, being paused or without a channel."""
        cursors, tail, log = self.cursors, self.tail, self.log
        if cursors is None:
            return
        handed_end = cursors.handed_end(log, gathers and not self.topic.internal)
        states = [self._state(cursors, channel, channels, handed_end) for channel in channels]
        if not gathers:
            handed_end = log.written_end
        tail.handed_end = max([handed_end, *(state.next for state in states)])
        for channel, state in zip(channels, states, strict=True):
            self._restore(channel, state)
        cursors.begin(tail)
        cursors.report_missing(log.start_offset)
        tail.handing = hands_over
        if self.topic.internal:
            tail.hand()

    def _state(
        self, cursors: Cursors, channel: Channel, channels: Sequence[Channel], handed_end: int
    ) -> ChannelState:
        """`handed_end`: from the journal. A partition of several replicas may not know a channel:
        then it has never confirmed it."""
        if self.leadership.is_alone or cursors.knows(channel.number):
            return cursors.state(channel.number, channel.name, self.log)
        gathers = self.topic.paused or not any(cursors.knows(one.number) for one in channels)
        start, end = self.log.start_offset, self.log.written_end
        if not self.replica.is_younger_than(channel):
            start = min(max(handed_end, start), end) if gathers else end
        return cursors.state(channel.number, channel.name, self.log, start)

    def _restore(self, channel: Channel, state: ChannelState) -> None:
        window = self._context.engine.window(self.tail, state.low)
        window.attempts_max = channel.settings.max_attempts
        window.order = ORDERS[channel.settings.order]
        window.restore(state.low, state.next, state.finished, state.strays)
        window.searched = state.searched
        channel.attach(self.number, window)
        self._step_over_damage(window, state.finished)
        if self.cursors is not None:
            self.cursors.adopt(channel.number, window)

    def add_window(self, channel: Channel, kept: bool) -> None:
        """It begins at the topic's own queue, or has all of a partition that is younger."""
        is_younger = kept and self.replica.is_younger_than(channel)
        start_offset = self.log.start_offset if is_younger else self.tail.handed_end
        window = self._context.engine.window(self.tail, start_offset)
        channel.attach(self.number, window)
        self._step_over_damage(window)
        if self.cursors is not None and kept:
            self.cursors.add(channel.number, window, start_offset)

    def drop_window(self, channel: Channel) -> None:
        if self.cursors is not None:
            self.cursors.drop(channel.number)
        self._context.engine.forget_window(channel.windows[self.number])

    def _step_over_damage(self, window: Window, finished: Sequence[tuple[int, int]] = ()) -> None:
        """`finished`: in the journal already, so traced before."""
        self.topic.set_time()
        alone = self.steps_over_damage
        for start, end in joined(self.replica.damaged) if alone else self._conceded:
            if end > window.low:
                step_over(window, Source.STRAY, start, end)
                for first, last in outside(max(start, window.low), end, finished):
                    step_over(window, Source.FORWARD, first, last)

    def concede(self, start: int, end: int) -> None:
        """Readers do not wait for [start, end) any more. It holds for this leadership, and the
        journal carries the channels' progress to every replica."""
        if any(known[0] <= start and end <= known[1] for known in self._conceded):
            return
        self._conceded.append((start, end))
        text = f"no replica has offsets {start} to {end - 1}: readers skip them"
        self._context.health.report(self.replica.label, Trouble.CONCEDED, text)
        for channel in self.topic.channels.values():
            self._step_over_damage(channel.windows[self.number])
        self.load_again()
        self.store_cursors()
        self.topic.touch()

    def concede_damage(self) -> list[tuple[int, int]]:
        """By an operator's command: all corrupt ranges that readers still wait for."""
        if self.steps_over_damage:
            return []
        ranges = joined(self.replica.damaged)
        for start, end in ranges:
            self.concede(start, end)
        return ranges

    def passable(self, error: StorageError, offset: int) -> int:
        """The next offset for a reader at `offset`; `offset` when it has to wait."""
        if not isinstance(error, LogDamaged):
            return offset
        end = max(error.to_offset, offset + 1)
        if self.steps_over_damage:
            return end
        ends = [min(to, end) for start, to in self._conceded if start <= offset < to]
        return max([offset, *ends])

    def update_handing(self, handing: bool) -> None:
        if handing and not self.tail.handing:
            self.tail.hand()
        self.tail.handing = handing

    @property
    def floor(self) -> int:
        """The lowest offset that the topic or a channel still wants."""
        floor = self.tail.handed_end
        for channel in self.topic.channels.values():
            floor = min(floor, channel.windows[self.number].floor)
        return floor

    def store_cursors(self) -> None:
        """Write changes outside of a turn to the journal."""
        if self.cursors is not None:
            self.cursors.append_changes()

    # --- reading ---

    def load(self, window: Window, which: int, offset: int) -> None:
        """The answer to a NEED: the block that holds `offset`. A failed read is repeated at
        housekeeping, and the channel waits for it; so it does for a corrupt block, except on a
        single node."""
        try:
            block = self.log.read(offset, limits.READ_BLOCK_BYTES)
        except StorageError as error:
            end = self.passable(error, offset)
            if end > offset:
                step_over(window, which, offset, end)
                return
            self._unread[window, which] = offset
            self.topic.touch()
            self._context.health.report(self.replica.label, Trouble.READ, error.reason)
        else:
            window.load(which, block)

    def load_again(self) -> None:
        unread, self._unread = self._unread, {}
        for (window, which), offset in unread.items():
            if not window.owner.deleted:
                self.load(window, which, offset)
        if unread and not self._unread:
            self._context.health.clear(self.replica.label, Trouble.READ)

    # --- housekeeping ---

    def retain(self, wall_ns: int, old_end: int) -> None:
        """Remove old segments that nothing needs; messages below `old_end` are old."""
        self._retain(wall_ns, self.retain_age_ns, self.retain_bytes, old_end)

    def clean(self, wall_ns: int, kept_bytes: int) -> int:
        """Let go of all segments of which nothing is wanted, however young, but for so many bytes.
        What is finished has to be on the disk before, so this waits for it. Returns how many."""
        cursors = self.cursors
        self.group.sync()
        if cursors is not None:
            cursors.settle(sync=True)
        self._context.syncs.wait_for(
            lambda: self.group.busy or (cursors is not None and cursors.files.busy)
        )
        age_ns = DURATION_NS_MAX if kept_bytes else 0
        return self._retain(wall_ns, age_ns, kept_bytes, 0)

    def _retain(self, wall_ns: int, age_ns: int, bytes_max: int, old_end: int) -> int:
        if not self.acts:
            return 0
        floor = self.floor
        if self.cursors is not None:
            floor = min(floor, self.cursors.floor_synced)
        removed = self.replica.remove(
            partial(self._remove, floor, wall_ns, age_ns, bytes_max, old_end)
        )
        self.group.notice_stop()
        return removed

    def _remove(self, floor: int, wall_ns: int, age_ns: int, bytes_max: int, old_end: int) -> int:
        """With other replicas, their journals state first where the log begins, and all of them
        have that on disk before anything is removed."""
        producers = self.replica.producers
        kept = floor if producers.floor is None else producers.floor
        if self.led is None or self.cursors is None:
            return self.log.retain(min(floor, kept), wall_ns, age_ns, bytes_max, old_end)
        start = self.log.start_to_keep(floor, wall_ns, age_ns, bytes_max, old_end)
        if start > kept:
            producers.renew()  # its file is there from the beginning, and moves on with the log
            start = self.log.start_to_keep(kept, wall_ns, age_ns, bytes_max, old_end)
        if start > self.cursors.start_offset:
            self.cursors.decide_start(start)
            self.cursors.sync()
        return 0

    def settle(self, wall_ns: int, sync_log: bool, sync_journal: bool) -> bool:
        """True when nothing is left."""
        settled = self._settle_log(wall_ns, sync_log)
        tail = self.tail
        settled &= self.replica.producers.settle(
            tail.committed_end, tail.message_count, tail.message_bytes
        )
        if self.cursors is not None:
            settled &= self.cursors.settle(sync_journal)
        return settled

    def _settle_log(self, wall_ns: int, sync: bool) -> bool:
        group, kept = self.group, self.replica.kept
        if self._unread:
            self.load_again()
        if not group.stopped:
            group.expire(self._context.clock.mono_ns())
            self._sync_and_mark(wall_ns, sync)
        if group.stopped or not kept:
            return not (self._unread or (group.refused_bytes and not group.stopped))
        failed = self._unread or self.replica.mark_failed or group.refused_bytes
        is_committed = self.tail.committed_end == self.tail.written_end
        return is_committed and not (failed or self.log.unsynced_bytes)

    def _sync_and_mark(self, wall_ns: int, sync: bool) -> None:
        log, group = self.log, self.group
        if group.refused_bytes and not group.busy and log.would_take(group.refused_bytes):
            group.note_writable()
        if not self.replica.kept:
            # only so that retention may let go of the oldest segment
            if log.unsynced_bytes > self._context.options.segment_bytes_max:
                group.sync()
            return
        if sync and log.unsynced_bytes:
            group.sync()
        self.replica.mark(wall_ns)

    # --- the end ---

    def close(self) -> None:
        """Write and sync gathered publishes, then close the files. Raises nothing."""
        self.group.close()
        stopped = self.group.stopped
        self.replica.close()
        if not stopped:
            self.replica.producers.close(self.tail.committed_end)

    def retire(self) -> None:
        """The topic is being deleted: answer running publishes."""
        self.group.retire()
        self.replica.producers.wait()

    def leave(self) -> None:
        """The kernel forgets the tail; the windows are gone already."""
        self._context.engine.forget_tail(self.topic.name.encode(), self.number)
        for trouble in (Trouble.CONCEDED, Trouble.READ):
            self._context.health.clear(self.replica.label, trouble)
        if self.cursors is not None:
            self.cursors.discard()
            self.cursors = None  # others write the journal from now on

    def validate(self) -> None:
        self.group.validate()
        self.log.validate()
        if self.cursors is not None:
            self.cursors.validate()
        tail = self.tail
        if tail.handing and tail.handed_end != tail.committed_end:
            raise RuntimeError(f"{self.replica.label}: handing, but behind the committed end")


def step_over(window: Window, which: int, from_offset: int, to_offset: int) -> None:
    """`window` skips [from, to) for good."""
    if which == Source.STRAY:
        window.lose_range(from_offset, to_offset, TraceKind.CORRUPT)
    else:
        window.skip(from_offset, to_offset, TraceKind.CORRUPT)


class OrderGates:
    """The gates of the strictly ordered channels of one partition, in one leadership, where other
    nodes have the partition, too: the next message goes out when the set knows that the one before
    it is done. Else a leader could die between the two, and its successor, which never saw the FIN,
    would send the earlier message again while the later one is being worked on.

    | the gate of a channel | closes | opens |
    |---|---|---|
    | open | with each record about it: a message went out, came back, was settled by hand | |
    | closed | | when the set has the last record about it, and nothing of it is in flight |

    A turn writes its record after what it has sent, and hears consumers before it sends. So the
    gate is closed before a FIN can come, and a FIN is in a record before the gate opens again.
    While it is closed the window delivers nothing, as if it were paused. Records are one a turn and
    partition, and so are the syncs that they wait for. No other channel waits.
    """

    def __init__(self, leader: Leader) -> None:
        self._leader = leader
        self._partition = leader.number
        self._record_counts: dict[Channel, int] = {}  # records about it, while it has this order

    def note(self, numbers: set[int]) -> None:
        """A record about the channels with these numbers was written, or failed: a failed one
        counts as written, and is held once the write succeeds."""
        has_others = len(self._leader.leadership.machine.record.wanted) > 1
        for channel in self._leader.topic.channels.values():
            if channel.number not in numbers or self._partition not in channel.windows:
                continue
            if channel.settings.order != ChannelOrder.STRICT or not has_others:
                self._record_counts.pop(channel, None)
                channel.open_gate(self._partition)
                continue
            count = self._record_counts[channel] = self._record_counts.get(channel, 0) + 1
            channel.close_gate(self._partition)
            self._leader.when_held(partial(self._held, channel, count))

    def _held(self, channel: Channel, count: int, error: PenstockError | None) -> None:
        window = channel.windows.get(self._partition)
        if error is not None or window is None or self._record_counts.get(channel) != count:
            return  # the leadership is over, or more was written since
        if not window.in_flight and not window.journal_dirty:
            channel.open_gate(self._partition)
