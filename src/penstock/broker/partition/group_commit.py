"""The group commit of one leader: appends from the kernel's tail into the log, and the answers.

This is the one writer of a partition. What publishers bring gathers: in the tail's open batch,
behind it while that is full (`Gathered`), or as batches of their own (`Whole`, of producers that
number their messages). `write` makes one append of it, puts it into the log with one gathered
write, has it synced where the topic asks for that, and answers. The parts of a commit of stages are
appends too; they are hidden until `release`. `commit_state.py` says when what is allowed and done.

A write that was refused (a full disk) fails its append and nothing else: the next one may fit. A
sync that failed stops the partition for good: what the file holds is unknown, so nothing more may
be built on it.

Where other replicas have appends (`leadership.py`), an append goes to them between its write and
its sync. What was sent cannot be taken back: when a write or a sync fails, or the leadership ends,
the append in flight has an unknown outcome, and its publishers hear so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import TYPE_CHECKING, Any

from penstock import errors, limits
from penstock.broker.commits.blocks import put_in_place
from penstock.broker.health import Trouble
from penstock.broker.options import Durability
from penstock.broker.partition.appends import Encode, Gathered, LogAppend, PublishDone, Whole
from penstock.broker.partition.commit_state import NONE, CommitState, DirectPublish
from penstock.broker.partition.gathering import RowGathering
from penstock.broker.replicas.leadership import Leadership
from penstock.broker.replicas.outbox import Outbox
from penstock.kernel import Tail

if TYPE_CHECKING:
    from penstock.broker.partition.replica import Replica

_length_of: Callable[[Any], int] = len  # the kernel's buffers are flat bytes, so len is bytes


class GroupCommit:
    # Every publish comes here, and a dict of this many attributes costs it misses of the cache.
    __slots__ = (
        "_append", "_at_once", "_context", "_epoch", "_gate", "_gathered", "_gathering", "_ids",
        "_is_alone", "_kept", "_label", "_open_done", "_pace", "_rule", "_syncs",
        "_topic", "_touched", "_waits_end", "_waits_ns", "_whole", "_writing_whole", "blocked",
        "held_count", "is_retired", "leadership", "log", "refused_bytes",
        "reserved_count", "sealed_base", "sealed_base_id", "state", "stopped", "tail",
    )  # fmt: skip

    def __init__(self, replica: Replica, tail: Tail, leadership: Leadership) -> None:
        topic, label = replica.topic, replica.label
        context, self.log = topic.context, replica.log
        self.tail = tail
        self.held_count = 0  # messages that wait for an append
        tail.waiting_bytes_max = 0 if topic.internal else context.options.waiting_bytes_max
        self.reserved_count = 0  # messages of a commit under way
        self.stopped = ""  # the reason
        self.is_retired = False
        self.blocked = ""  # why a commit that is decided cannot be finished here
        self.sealed_base = 0  # offset of the first message of the open batch that was sealed last
        self.sealed_base_id = 0  # and its id
        # Length of the append that failed last, 1 where an earlier role failed; 0: none has since.
        self.refused_bytes = int(bool(context.health.reason(label, Trouble.WRITE)))
        self.leadership = leadership
        self.state = CommitState(leadership.machine, leadership.is_alone)
        self._context = context
        self._label = label  # of the partition, for people
        self._topic = topic
        self._rule = leadership.machine
        self._is_alone = leadership.is_alone
        self._epoch = leadership.machine.record.epoch
        self._kept = replica.kept
        self._ids = context.ids
        self._syncs = context.syncs
        self._touched = context.touched
        self._pace = topic.pace
        self._at_once = DirectPublish(replica, tail, self.state)
        self._gate: Callable[[], None] | None = None  # of the commit that has the log's end
        self._open_done: list[PublishDone] = []  # publishers in the open batch
        self._gathered: deque[Gathered] = deque()
        self._whole: deque[Whole] = deque()
        self._append = LogAppend(self.log.written_end, 0)  # in flight, or the last one
        self._writing_whole = False
        self._gathering = RowGathering(context.gathering, context.clock)
        self._waits_ns = 0  # since when publishes wait behind the same append
        self._waits_end = NONE  # where that begins
        if self.log.stopped is not None:  # by the start
            self.stopped = self.log.stopped.reason
            self.state.end()
            context.health.report(label, Trouble.STOPPED, self.stopped)
        leadership.on_change = self._look

    @property
    def busy(self) -> bool:
        return self.log.busy  # a sync thread holds its files

    @property
    def unsynced_count(self) -> int:
        return self.log.written_end - self.log.synced_end

    @property
    def quiet(self) -> bool:
        """All writes are safe, here and on the replicas, and nothing is on its way."""
        log = self.log
        if self.tail.sealed_count or self.busy or log.synced_end != log.written_end:
            return False
        return not self.leadership.is_shared or self._rule.committed >= log.written_end

    @property
    def agreed_end(self) -> int:
        """The end that every member has synced, according to the headers."""
        return self.log.synced_end if self._is_alone else self._rule.synced_everywhere

    @property
    def uncommitted(self) -> int:
        tail = self.tail
        storing = tail.written_end - tail.committed_end + tail.open_count
        return storing + self.held_count + self.reserved_count

    # --- publishing ---

    def publish(
        self, append: Callable[[], object], count: int, length: int, done: PublishDone
    ) -> None:
        """`count` messages that `append` puts into the open batch, now or when there is room.
        `done` is called when that batch is safe, or has failed. Raises TooMuchWaiting."""
        if self._gathered or self.tail.open_bytes >= limits.BATCH_BYTES_MAX:
            self.check_waiting(length)
            self._hold(count, length)
            self._gathered.append(Gathered(append, count, done, length))
            return
        append()
        self._open_done.append(done)

    def publish_whole(
        self, encode: Encode, count: int, length: int, done: PublishDone, producer_id: int
    ) -> None:
        """A batch shared with no other publisher; `encode` makes it when its position is known."""
        self._hold(count, length)
        self._whole.append(Whole(encode, count, done, producer_id, length))
        self._write_whole(self._context.clock.wall_ns())

    def drop_whole(self, producer_id: int, error: errors.PenstockError) -> None:
        """A batch of this producer failed, so none of its later ones may be stored."""
        dropped = [one for one in self._whole if one.producer_id == producer_id]
        self._whole = deque(one for one in self._whole if one.producer_id != producer_id)
        for one in dropped:
            self._let_go(one)
            one.done(error)

    def check_waiting(self, length: int) -> None:
        """Raises TooMuchWaiting when so many bytes more may not wait. One publish always may."""
        tail = self.tail
        waiting = tail.waiting_bytes + length
        if tail.waiting_bytes and 0 < tail.waiting_bytes_max < waiting:
            raise errors.TooMuchWaiting(waiting, tail.waiting_bytes_max)

    def check_append(self, length: int) -> None:
        """The same check for messages that join the open batch, though that may be full."""
        beyond = self.tail.open_bytes - limits.BATCH_BYTES_MAX
        if beyond > 0:
            self.check_waiting(beyond + length)

    def _hold(self, count: int, length: int) -> None:
        self.held_count += count
        self.tail.waiting_bytes += length

    def _let_go(self, held: Gathered | Whole) -> None:
        self.held_count -= held.count
        self.tail.waiting_bytes -= held.length

    def _append_gathered(self, bytes_max: float = limits.BATCH_BYTES_MAX) -> None:
        while self._gathered and self.tail.open_bytes < bytes_max:
            one = self._gathered.popleft()
            self._let_go(one)
            one.append()
            self._open_done.append(one.done)

    # --- appends ---

    def write(self, wall_ns: int) -> None:
        """Write the gathered publishes. The path of every publish, so nothing slow happens here."""
        count = self.tail.open_count
        if not (count or self._whole) or not self.state.ready:
            return
        may_wait = self._gathering.due_ns and not (self._whole or self._context.exiting)
        if may_wait and self._gathering.waits(self, count, self.tail.open_bytes):
            return
        log = self.log
        # Times rise along a log, even when the clock steps back.
        wall_ns = max(wall_ns, log.last_timestamp_ns)
        if not (self._open_done or self._gathered or self._whole):
            try:
                if self._at_once.write(wall_ns):
                    return
            except errors.StorageError as error:
                self._fail_write(self._seal_open(count, wall_ns), error)
                return
        append = self._seal_open(count, wall_ns) if count else self._empty_append()
        if self._whole:
            self._seal_whole(append, wall_ns)
        self._store(append, wall_ns)
        if self._whole:  # more than one append holds, or the append was refused
            self._write_whole(wall_ns)

    def stay(self) -> list[tuple[Any, ...]]:
        """After `write` for publishers that wait for each answer: their next publishes (see
        `DirectPublish`), and the kernel's events after that."""
        if self.state.ready and not (self._open_done or self._gathered or self._whole):
            try:
                return self._at_once.stay()
            except errors.StorageError as error:
                wall_ns = max(self._context.clock.wall_ns(), self.log.last_timestamp_ns)
                self._fail_write(self._seal_open(self.tail.open_count, wall_ns), error)
        return []

    def _write_whole(self, wall_ns: int) -> None:
        """Write only these batches: within a turn the open batch still gathers."""
        if self._writing_whole:
            return  # by one that was just answered: the loop below goes on with it
        self._writing_whole = True
        try:
            while self._whole and self.state.ready:
                append = self._empty_append()
                at_ns = max(wall_ns, self.log.last_timestamp_ns)
                self._seal_whole(append, at_ns)
                self._store(append, at_ns)
        finally:
            self._writing_whole = False

    def _seal_open(self, count: int, wall_ns: int) -> LogAppend:
        tail = self.tail
        base_id = self.sealed_base_id = self._ids.take(count, wall_ns)
        base_offset = self.sealed_base = tail.written_end
        agreed_end = self.agreed_end
        buffers = tail.seal(base_id, wall_ns, agreed_end, self._epoch)
        length = sum(map(_length_of, buffers))
        append = LogAppend(base_offset, agreed_end, base_id, count, length, buffers)
        if self._open_done or self._gathered:
            self._open_done, append.done = [], self._open_done
            self._append_gathered()
        return append

    def _empty_append(self) -> LogAppend:
        return LogAppend(self.log.written_end, self.agreed_end)

    def _seal_whole(self, append: LogAppend, wall_ns: int) -> None:
        for _ in range(limits.APPEND_BATCHES_MAX):
            if not self._whole or append.length >= limits.BATCH_BYTES_MAX:
                return
            one = self._whole.popleft()
            self._let_go(one)
            base_id = self._ids.take(one.count, wall_ns)
            data = one.encode(append.end, base_id, wall_ns, append.agreed_end, self._epoch)
            append.add(self.tail.seal_batch(data), len(data), one.count, base_id)
            (append.numbered_done if one.producer_id > 0 else append.done).append(one.done)

    def _store(self, append: LogAppend, wall_ns: int) -> None:
        try:
            self._put(append, wall_ns)
        except errors.StorageError as error:
            self._fail_write(append, error)
            return
        self._append = append
        leadership, end = self.leadership, append.end
        if self._takes_time:
            self._gathering.wrote()
        if not self._is_alone:
            leadership.in_flight = append
            leadership.wrote(end)
        if self.state.wrote(end):
            self._commit()
        elif self._rule.own < end:
            if not self.sync():
                leadership.synced()  # the log says that all of it is on the disk already
                if self.state.advanced():
                    self._commit()
            return
        unsynced_count = end - self.log.synced_end
        if unsynced_count >= self._pace.every_count and self._kept:
            self._pace.look(unsynced_count, wall_ns)

    def _look(self) -> None:
        """The leadership has news."""
        if self._rule.over:
            self.leave(f"the leadership has ended: {self.leadership.reason}")
        elif self.state.advanced():
            self._commit()
            self.write(self._context.clock.wall_ns())
        elif self.state.permitted():
            self.write(self._context.clock.wall_ns())
        self._pass_gate()

    def _put(self, append: LogAppend, wall_ns: int) -> None:
        """The only code that writes to the log. Raises StorageError, and then it is as before."""
        self._touched[self._topic] = None
        self.log.write(
            append.buffers, append.length, append.base_offset, append.count, append.base_id,
            self._ids.last_id, wall_ns, append.inner or (), self._epoch, append.agreed_end,
        )  # fmt: skip
        self._context.headroom_bytes -= append.length

    @property
    def _takes_time(self) -> bool:
        """An append waits for its sync, or for other replicas."""
        return self._rule.waits or not self._is_alone

    def _commit(self) -> None:
        tail, append = self.tail, self._append
        if not self._is_alone:
            self.leadership.let_go()
        if self._takes_time:
            self._gathering.committed(append.count, append.length, tail.open_count)
        tail.commit_to(tail.written_end)
        if self.refused_bytes:
            self.note_writable()
        if append.done or append.numbered_done:
            append.answer(None)

    def note_writable(self) -> None:
        self.refused_bytes = 0
        self._context.health.clear(self._label, Trouble.WRITE)

    def _fail_write(self, append: LogAppend, error: errors.StorageError) -> None:
        """The append was not stored, and its publishers get the error. The next one is tried."""
        self.refused_bytes = append.length
        self._context.health.report(self._label, Trouble.WRITE, error.reason)
        if self.leadership.is_shared:  # a part of it may stand in the file, and come back
            self._append = append
            self.leadership.failed(f"a write failed: {error.reason}")
            self.leave(error.reason)
            return
        self.tail.fail_from(append.base_offset)
        if self.log.stopped is not None:
            self.stop(error.reason)
        append.answer(error)

    # --- syncs ---

    def set_durability(self, durability: Durability) -> None:
        """From the next append on. A change to `disk` also syncs what was acknowledged before."""
        waits = durability == "disk"
        if waits == self._rule.waits:
            return
        self._rule.waits = waits
        if waits and not self.stopped:
            self.sync()

    def sync(self) -> bool:
        """Hand unsynced bytes to the sync threads. False when there are none."""
        awaited = self.state.in_flight_end != NONE
        return self._syncs.sync(self.log, self._synced, awaited) or self.log.busy

    def _synced(self, error: OSError | None) -> None:
        if self.log.stopped is not None:
            self._fail_sync(self.log.stopped)
        else:
            self._go_on()
        self._pass_gate()

    def _go_on(self) -> None:
        state, rule = self.state, self._rule
        awaited = state.in_flight_end != NONE
        if rule.waits:
            self.leadership.synced()
        elif awaited:
            self.leadership.wrote(rule.end)  # the topic has changed: no wait for the disk
        if state.advanced():
            self._commit()
        elif awaited:
            if rule.own < state.in_flight_end:
                self.sync()  # that sync began before the append was written
            return
        if awaited or rule.waits:
            self.write(self._context.clock.wall_ns())

    def _fail_sync(self, error: errors.StorageError) -> None:
        append = self._append
        if self.leadership.is_shared:
            self.leadership.failed(error.reason)
            self.leave(error.reason)
            return
        if self.state.in_flight_end != NONE:
            self.tail.fail_from(append.base_offset)
            self.state.failed()
        self.stop(error.reason)
        append.answer(error)

    def leave(self, reason: str) -> None:
        """The next leader gets the gathered publishes, and may commit the append."""
        if self.stopped:
            return
        append, tail = self._append, self.tail
        self.leadership.let_go()
        self.state.end()
        self.state.failed()
        self.stopped = reason
        if tail.sealed_count:
            tail.fail_from(tail.committed_end, True)
        self._topic.refresh_refusal()
        self._hand_on()
        self._fail_open(errors.LeadershipEnded(self._label, reason))
        append.answer(errors.PublishUnknown(self._label, reason))

    def expire(self, mono_ns: int) -> None:
        """Publishes that have waited too long behind appends are refused, and the publishers of the
        append in flight get an unknown outcome: it may be committed yet. An idempotent producer
        goes on waiting, since its repeat would wait for the same append."""
        waits = self.uncommitted and not self.state.ready and self._gate is None
        begins = self.tail.committed_end if waits else NONE  # an idle partition is not looked at
        if begins != self._waits_end:
            self._waits_ns, self._waits_end = mono_ns, begins
        if waits and mono_ns - self._waits_ns >= limits.PUBLISH_WAIT_NS:
            reason = f"a write was not committed for {limits.PUBLISH_WAIT_NS // limits.SECOND} s"
            self.refuse_gathered(reason)
            self.tail.doubt()
            self._append.answer_unnumbered(errors.PublishUnknown(self._label, reason))

    def _hand_on(self) -> None:
        host, tail = self._context.replica_host, self.tail
        if host is None or not (tail.open_count or self._gathered):
            return
        self._append_gathered(inf)
        outbox = Outbox(self._topic, tail.partition, host.forwarding, tail)
        outbox.adopt(self._open_done)
        self._open_done = []

    # --- the part of a commit of stages ---

    def hold(self, gate: Callable[[], None]) -> None:
        """From here to `release` the end of the log belongs to a commit (`commits/commit.py`);
        other publishes gather. `gate` is called after each change: see `quiet`, `stopped`."""
        if self._gate is not None:
            raise RuntimeError(f"{self._label}: two commits hold the end of the log")
        self.state.hold(True)
        self._gate = gate
        self.sync()

    def _pass_gate(self) -> None:
        if self._gate is None:
            return
        if not (self.quiet or self.busy or self.stopped or self.is_retired):
            self.sync()
        self._gate()

    def store(self, batches: Sequence[tuple[bytearray, int]]) -> None:
        """One append, invisible before `release`. Raises StorageError: the log is unchanged."""
        log, ids = self.log, self._ids
        log.check_writable()
        wall_ns = max(self._context.clock.wall_ns(), log.last_timestamp_ns)
        append = self._empty_append()
        for batch, count in batches:
            base_id = ids.take(count, wall_ns)
            put_in_place(batch, append.end, base_id, wall_ns, append.agreed_end, self._epoch)
            append.add([batch], len(batch), count, base_id)
        self._put(append, wall_ns)
        self.leadership.wrote(append.end)
        for batch, _ in batches:
            self.tail.note_stored(batch)  # a commit that stores is decided: it will be shown

    def block(self, reason: str) -> None:
        """Publishes gathered behind it are refused meanwhile. Without a reason: it continues."""
        if reason == self.blocked:
            return
        self.blocked = reason
        self._topic.refresh_refusal()
        if reason:
            self._fail_open(errors.WriteRefused(self.log.path, reason))

    def release(self, count: int, size: int) -> None:
        """The messages of the commit become visible: `count` messages, `size` bytes of bodies."""
        self._gate = None
        if self.is_retired:
            return
        self.block("")
        self.state.hold(False)
        if count:
            self.tail.adopt(count, size)
        self.write(self._context.clock.wall_ns())

    # --- the end ---

    def stop(self, reason: str) -> None:
        """No more writes. Gathered publishes are refused."""
        self.state.end()
        if not self.stopped:
            self.stopped = reason or "the partition is stopped"
            self._context.health.report(self._label, Trouble.STOPPED, self.stopped)
        self._topic.refresh_refusal()
        self._fail_open(errors.PartitionStopped(self._label, self.stopped))

    def notice_stop(self) -> None:
        """The log may stop on its own account, when it syncs outside of a job."""
        if self.log.stopped is not None and not self.stopped:
            self.stop(self.log.stopped.reason)
            self._pass_gate()

    def refuse_gathered(self, reason: str) -> None:
        self._fail_open(errors.WriteRefused(self._label, reason))

    def _fail_open(self, error: errors.PenstockError) -> None:
        if self.tail.owner.group is self:  # else an outbox has it
            self.tail.drop_open()
        waiting = self._open_done + [one.done for one in self._gathered]
        waiting += [one.done for one in self._whole]
        self._open_done, self._gathered, self._whole = [], deque(), deque()
        self.held_count = self.tail.waiting_bytes = 0
        for done in waiting:
            done(error)

    def retire(self) -> None:
        """Earlier publishes are answered as published, and are deleted with the topic."""
        self.is_retired = True
        self.state.end()
        self._syncs.wait_for(lambda: self.busy)
        tail = self.tail
        if tail.sealed_count:
            tail.commit_to(tail.written_end)
            self._append.answer(None)
        while tail.open_count:
            append = self._seal_open(tail.open_count, self._context.clock.wall_ns())
            tail.commit_to(tail.written_end)
            append.answer(None)
        whole, self._whole = self._whole, deque()
        self.held_count = self.tail.waiting_bytes = 0
        for one in whole:
            one.done(errors.NotFound("topic", self.tail.topic.decode()))
        self._pass_gate()

    def close(self) -> None:
        """Raises nothing: the error of a last append went to its publishers and to health."""
        self._syncs.wait_for(lambda: self.busy)
        while self.state.ready and (self.tail.open_count or self._whole):
            self.write(self._context.clock.wall_ns())
            self._syncs.wait_for(lambda: self.busy)

    def validate(self) -> None:
        self.tail.validate()
        self.state.validate()
        if self._rule.own < self.state.in_flight_end and not self.busy:
            raise RuntimeError(f"{self._label}: an append in flight waits for no sync")
        if (self.state.in_flight_end != NONE) != (self.tail.sealed_count > 0):
            raise RuntimeError(f"{self._label}: sealed batches are not the append in flight")
        if self.tail.written_end != self.log.written_end and not (self.stopped or self._gate):
            raise RuntimeError(
                f"{self._label}: the tail ends at {self.tail.written_end}, the log at "
                f"{self.log.written_end}"
            )
