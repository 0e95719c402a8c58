"""One partition: the tail in memory, the log on disk, and the group commit between them.

    open batch --write--> sealed --(durability os) commit--> committed
                                 --(durability disk) sync job, then commit-->
                                 --a failed write or sync--> failed

At most one batch is sealed. While it is being synced the next one gathers, and it is written in
the moment the first is done. A write that was refused (a full disk) fails its batch and nothing
else: the next one may fit. A sync that failed stops the partition for good: what the file holds
is unknown, so nothing more may be built on it.

Damage below the synced end is found while reading, or was found at the start. The corrupt offsets
are stepped over, everything else is served, and health warns of it. Publishing goes on, unless the
end of the log is corrupt: then nobody knows where the next batch belongs, and somebody has to look.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock import limits
from penstock.broker.commits.blocks import put_in_place
from penstock.broker.context import Context
from penstock.broker.health import Trouble
from penstock.broker.options import Durability
from penstock.errors import (
    LogDamaged,
    NotFound,
    PartitionStopped,
    PenstockError,
    Refused,
    StorageError,
    WriteRefused,
)
from penstock.kernel import Pack, Source, Tail, TraceKind, Window
from penstock.log.damage import Damage
from penstock.log.partition import PartitionLog
from penstock.log.sync import SyncJob

if TYPE_CHECKING:
    from penstock.broker.deadletters import Letter

PublishDone = Callable[[PenstockError | None], None]
Encode = Callable[[int, int, int, int], bytes]  # base offset, base id, time, synced end
_length_of: Callable[[Any], int] = len  # the kernel's buffers are flat bytes, so len is bytes


class Partition:
    def __init__(
        self,
        context: Context,
        topic_name: str,
        tail: Tail,
        log: PartitionLog,
        durability: Durability,
        syncing: bool,
        on_trouble: Callable[[], None],
    ) -> None:
        self.tail = tail
        self.log = log
        self.durability = durability
        self.retain_age_ns = context.options.retain_age_ns
        self.retain_bytes = context.options.retain_bytes
        self.held_count = 0  # messages that wait for the next batch
        self.stopped = ""  # the reason
        self.blocked = ""  # why a commit that is decided cannot be finished here
        self.reserved_count = 0  # messages of a commit under way
        self.sealed_base = 0  # offset of the first message of the batch that was sealed last
        self.sealed_base_id = 0  # and its id
        self._context = context
        self._topic_name = topic_name
        self._syncs = context.syncs
        self._ids = context.ids
        self._commits_at_once = durability == "os"
        self._syncing = syncing  # False: of an ephemeral topic nothing outlives the process
        self._sync_every_count = context.options.sync_every_count
        self._sync_after_ns = 0
        self._on_trouble = on_trouble
        self._damage_count = 0  # of ranges, when retention was last looked at
        self._job: SyncJob | None = None
        self._retired = False
        self._gate: Callable[[], None] | None = None  # of the commit that has the log's end
        self._shut = False  # nothing ordinary is written: retired, or a commit has the log's end
        self._touched = context.touched
        self._refused_bytes = 0  # length of the write that failed last; 0: none has since
        self._mark_failed = False
        self._open_done: list[PublishDone] = []  # publishers in the open batch
        self._sealed_done: list[PublishDone] = []
        self._unread: dict[tuple[Window, int], int] = {}  # loads that failed, by offset
        self._held: deque[tuple[Callable[[], object], int, PublishDone]] = deque()
        self._alone: deque[tuple[Encode, int, PublishDone, int]] = deque()
        self._alone_first = False  # whose turn it is after a sync, when there is both
        self._writing_alone = False
        log.damage.on_added = self._report_damage
        for damage in log.damaged:
            self._report_damage(damage)
        if log.refusal is not None:
            context.health.report(topic_name, Trouble.DAMAGED, self.refusal)
        if log.stopped is not None:  # by the start; who makes this looks at `refusal` itself
            self.stopped = log.stopped.reason
            context.health.report(topic_name, Trouble.STOPPED, self.stopped)

    @property
    def refusal(self) -> str:
        """Why no publish is taken, for good; empty when they are."""
        if self.stopped:
            return self.stopped
        if self.log.refusal is not None:
            return f"the end of the log is corrupt: {_damage_text(self.log.refusal)}"
        return self.blocked

    @property
    def damaged(self) -> list[Damage]:
        """What readers cannot have: from offset, to offset, reason."""
        return self.log.damaged

    @property
    def busy(self) -> bool:
        """A sync thread holds the log's files."""
        return self._job is not None

    # --- publishing ---

    def publish(self, bodies: list[bytes], due_ns: int, done: PublishDone) -> None:
        """All of `bodies` into one batch. `done` is called when that batch is safe, or has
        failed."""
        self.publish_by(partial(self._append, bodies, due_ns), len(bodies), done)

    def publish_pack(
        self, pack: Pack, body: bytes, count: int, due_ns: int, done: PublishDone
    ) -> None:
        """The same for a sound pack of `count` messages (`Tail.count_pack`)."""
        self.publish_by(partial(self.tail.append_pack, pack, body, due_ns), count, done)

    def publish_by(self, append: Callable[[], object], count: int, done: PublishDone) -> None:
        """The same for `count` messages that `append` puts into the open batch, now or when there
        is room."""
        if self._is_full():
            self._held.append((append, count, done))
            self.held_count += count
            return
        append()
        self._open_done.append(done)

    def _is_full(self) -> bool:
        return bool(self._held) or self.tail.open_bytes >= limits.BATCH_BYTES_MAX

    def publish_letters(self, letters: Sequence[Letter], done: PublishDone) -> int:
        """All into the open batch; returns the index of the first. When `done` hears that they are
        safe, the first one's offset is that above `sealed_base`. Raises Refused when the batch is
        full."""
        tail = self.tail
        if self._is_full():
            raise Refused("the open batch is full")
        index = tail.open_count
        for letter in letters:
            tail.append(letter.body, 0, letter.sections)
        self._open_done.append(done)
        return index

    def _append(self, bodies: list[bytes], due_ns: int) -> None:
        append = self.tail.append
        for body in bodies:
            append(body, due_ns)

    def _append_held(self) -> None:
        while self._held and self.tail.open_bytes < limits.BATCH_BYTES_MAX:
            append, count, done = self._held.popleft()
            self.held_count -= count
            append()
            self._open_done.append(done)

    # --- the group commit ---

    def write(self, wall_ns: int) -> None:
        """Seal the open batch and write it. The path of every publish, so nothing slow is here."""
        tail = self.tail
        count = tail.open_count
        if not count or tail.sealed_count or self._shut:
            return
        log = self.log
        if wall_ns < log.last_timestamp_ns:
            wall_ns = log.last_timestamp_ns  # times rise along a log even when the clock steps back
        base_offset = self.sealed_base = tail.written_end
        ids = self._ids
        base_id = self.sealed_base_id = ids.take(count, wall_ns)
        buffers = tail.seal(base_id, wall_ns, log.synced_end)
        if self._open_done or self._held:
            self._open_done, self._sealed_done = [], self._open_done
            self._append_held()
        self._touched[tail.owner] = None
        length = sum(map(_length_of, buffers))
        try:
            log.write(buffers, length, base_offset, count, base_id, ids.last_id, wall_ns)
        except StorageError as error:
            self._fail_write(error, length)
            return
        self._context.headroom_bytes -= length
        if self._commits_at_once:
            self._commit()
            if (
                self._syncing
                and tail.written_end - log.synced_end >= self._sync_every_count
                and wall_ns >= self._sync_after_ns
            ):
                self._sync_after_ns = wall_ns + limits.SYNC_PAUSE_NS
                self.sync()
        elif not self.sync():
            self._commit()  # the log says that all of it is on the disk already

    # --- batches of their own ---

    def publish_alone(
        self, encode: Encode, count: int, done: PublishDone, producer_id: int
    ) -> None:
        """A batch that is shared with nobody. `encode` makes it when its turn has come."""
        self._alone.append((encode, count, done, producer_id))
        self.held_count += count
        self._write_alone(self._context.clock.wall_ns())

    def drop_alone(self, producer_id: int, error: PenstockError) -> None:
        """One batch of this producer failed, so none of its later ones may be stored."""
        dropped = [one for one in self._alone if one[3] == producer_id]
        self._alone = deque(one for one in self._alone if one[3] != producer_id)
        self.held_count -= sum(one[1] for one in dropped)
        for one in dropped:
            one[2](error)

    def _write_alone(self, wall_ns: int) -> None:
        if self._writing_alone or self._shut:
            return  # by someone who was just told: the loop below goes on with it
        self._writing_alone = True
        try:
            while self._alone and not (self.tail.sealed_count or self.stopped or self._shut):
                encode, count, done, _ = self._alone.popleft()
                self.held_count -= count
                self._sealed_done = [done]
                self._store_alone(encode, count, max(wall_ns, self.log.last_timestamp_ns))
        finally:
            self._writing_alone = False

    def _store_alone(self, encode: Encode, count: int, wall_ns: int) -> None:
        """As `write`, but for where the batch comes from."""
        tail, log, ids = self.tail, self.log, self._ids
        base_offset = tail.written_end  # `sealed_base` is about batches that were open
        base_id = ids.take(count, wall_ns)
        data = encode(base_offset, base_id, wall_ns, log.synced_end)
        buffers = tail.seal_batch(data)
        self._touched[tail.owner] = None
        try:
            log.write(buffers, len(data), base_offset, count, base_id, ids.last_id, wall_ns)
        except StorageError as error:
            self._fail_write(error, len(data))
            return
        self._context.headroom_bytes -= len(data)
        if not self._commits_at_once:
            if not self.sync():
                self._commit()
            return
        self._commit()
        if self._syncing and tail.written_end - log.synced_end >= self._sync_every_count:
            self.sync()

    def _write_next(self, wall_ns: int) -> None:
        """Both kinds in turn, so that neither waits for ever."""
        self._alone_first = not self._alone_first
        if self._alone_first:
            self._write_alone(wall_ns)
        self.write(wall_ns)  # nothing when something is sealed
        self._write_alone(wall_ns)

    def set_durability(self, durability: Durability) -> None:
        """From the next batch on. A change to `disk` also syncs what was acknowledged before."""
        if durability == self.durability:
            return
        self.durability = durability
        self._commits_at_once = durability == "os"
        if not self._commits_at_once and not self.stopped:
            self.sync()

    def sync(self) -> bool:
        """Hand what is unsynced to the sync threads. False when there is nothing to hand over."""
        if self._job is not None:
            return True
        job = self.log.sync_begin()
        if job is None:
            return False
        self._job = job
        self._syncs.submit(job, self._synced, awaited=self.tail.sealed_count > 0)
        return True

    def _synced(self, error: OSError | None) -> None:
        self._take_synced(error)
        self._pass_gate()

    def _take_synced(self, error: OSError | None) -> None:
        job, self._job = self._job, None
        if job is None:
            raise RuntimeError(f"{self._topic_name}: a sync ended that nobody began")
        self.log.sync_end(job, error)
        if self.log.stopped is not None:
            self._fail_sync(self.log.stopped)
            return
        if self.tail.sealed_count:
            if self.log.synced_end < self.tail.written_end:
                self.sync()  # that sync began when durability was still `os`
                return
            self._commit()
        elif self._commits_at_once:
            return
        if self._alone:
            self._write_next(self._context.clock.wall_ns())
            return
        self.write(self._context.clock.wall_ns())

    def _commit(self) -> None:
        self.tail.commit()
        if self._refused_bytes:
            self._note_writable()
        if self._sealed_done:
            self._tell_sealed(None)

    def _note_writable(self) -> None:
        self._refused_bytes = 0
        self._context.health.clear(self._topic_name, Trouble.WRITE)

    def _tell_sealed(self, error: PenstockError | None) -> None:
        told, self._sealed_done = self._sealed_done, []
        for done in told:
            done(error)

    def _fail_write(self, error: StorageError, length: int) -> None:
        """This batch was not stored; its publishers hear so. The next one is tried."""
        self._refused_bytes = length
        self._context.health.report(self._topic_name, Trouble.WRITE, error.reason)
        self.tail.fail()
        if self.log.stopped is not None:
            self.stop(error.reason)
        self._tell_sealed(error)

    def _fail_sync(self, error: StorageError) -> None:
        if self.tail.sealed_count:
            self.tail.fail()
        self.stop(error.reason)
        self._tell_sealed(error)

    # --- the part of a commit ---

    def hold(self, gate: Callable[[], None]) -> None:
        """From here to `release` the log's end belongs to a commit (`commits.py`); other publishes
        gather. `gate` is called when something has changed: see `quiet`, `stopped`."""
        if self._gate is not None:
            raise RuntimeError(f"{self._topic_name}: two commits want the log's end")
        self._gate = gate
        self._shut = True
        self.sync()

    @property
    def quiet(self) -> bool:
        """All that was written is safe, and nothing is on its way."""
        log = self.log
        return not self.tail.sealed_count and not self.busy and log.synced_end == log.written_end

    def _pass_gate(self) -> None:
        if self._gate is None:
            return
        if not (self.quiet or self.busy or self.stopped or self._retired):
            self.sync()
        self._gate()

    def store(self, batch: bytearray, count: int) -> None:
        """A sound batch, at the log's end. Nobody sees it before `release`. Raises StorageError,
        and then the log is as before."""
        log, ids = self.log, self._ids
        log.check_writable()
        wall_ns = max(self._context.clock.wall_ns(), log.last_timestamp_ns)
        base_id = ids.take(count, wall_ns)
        base_offset = log.written_end
        put_in_place(batch, base_offset, base_id, wall_ns, log.synced_end)
        log.write((batch,), len(batch), base_offset, count, base_id, ids.last_id, wall_ns)
        self._context.headroom_bytes -= len(batch)
        self._touched[self.tail.owner] = None
        self.tail.note_stored(batch)  # a commit that stores is decided: it will be shown

    def block(self, reason: str) -> None:
        """The commit cannot be finished now. What has gathered behind it is refused meanwhile."""
        if reason == self.blocked:
            return
        self.blocked = reason
        self._on_trouble()
        if reason:
            self._fail_open(WriteRefused(self.log.path, reason))

    def release(self, count: int, size: int) -> None:
        """What the commit has stored is visible: `count` messages, `size` bytes of bodies."""
        self._gate = None
        if self._retired:
            return
        self._shut = False
        self.block("")
        if count:
            self.tail.adopt(count, size)
        if not self.stopped:
            self._write_next(self._context.clock.wall_ns())

    # --- the end of a partition ---

    def stop(self, reason: str) -> None:
        """No more writes. What had gathered is refused."""
        if not self.stopped:
            self.stopped = reason or "the partition is stopped"
            self._context.health.report(self._topic_name, Trouble.STOPPED, self.stopped)
        self._on_trouble()
        self._fail_open(PartitionStopped(self._topic_name, self.stopped))

    def _fail_open(self, error: PenstockError) -> None:
        tail = self.tail
        if tail.open_count and not tail.sealed_count:
            # a batch can only fail once sealed; these numbers reach no disk
            tail.seal(0, 0, 0)
            tail.fail()
        told, self._open_done = self._open_done, []
        held, self._held, self.held_count = self._held, deque(), 0
        alone, self._alone = self._alone, deque()
        for done in told:
            done(error)
        for _, _, done in held:
            done(error)
        for _, _, done, _ in alone:
            done(error)

    def retire(self) -> None:
        """The topic is being deleted: what was published before is answered as published, and goes
        with it."""
        self._retired = self._shut = True
        self._syncs.wait_for(lambda: self.busy)
        tail = self.tail
        if tail.sealed_count:
            self._commit()
        while tail.open_count:
            tail.seal(self._ids.take(tail.open_count, self._context.clock.wall_ns()), 0, 0)
            self._open_done, self._sealed_done = [], self._open_done
            self._append_held()
            self._commit()
        alone, self._alone, self.held_count = self._alone, deque(), 0
        for _, _, done, _ in alone:
            done(NotFound("topic", self._topic_name))
        self._pass_gate()

    def close(self) -> None:
        """Write and sync what is open, then close the log. Raises nothing: the reason for a failed
        last write went to its publishers and to the log lines."""
        self._syncs.wait_for(lambda: self.busy)
        if not self.stopped:
            self.write(self._context.clock.wall_ns())
            self._syncs.wait_for(lambda: self.busy)
        while self._alone and not self.stopped and not self._shut:
            self._write_alone(self._context.clock.wall_ns())
            self._syncs.wait_for(lambda: self.busy)
        try:
            if self._syncing:
                self.log.close()
        except StorageError as error:
            self._context.health.report(self._topic_name, Trouble.WRITE, f"at close: {error}")
        if not self._syncing:
            self.destroy()

    def destroy(self) -> None:
        """Remove the log. What could not be removed is tried again by who removes the topic."""
        try:
            self.log.destroy()
        except StorageError as error:
            self._context.health.report(self._topic_name, Trouble.CLEANUP, error.reason)

    # --- reading ---

    def load(self, window: Window, which: int, offset: int) -> None:
        """The answer to a NEED: the block that holds `offset`. What is damaged is stepped over.
        What cannot be read just now is tried again at housekeeping, and the channel waits for
        it."""
        try:
            block = self.log.read(offset, limits.READ_BLOCK_BYTES)
        except LogDamaged as error:
            step_over(window, which, offset, max(error.to_offset, offset + 1))
        except StorageError as error:
            self._unread[window, which] = offset
            self._touched[self.tail.owner] = None
            self._context.health.report(self._topic_name, Trouble.READ, error.reason)
        else:
            window.load(which, block)

    def _load_again(self) -> None:
        unread, self._unread = self._unread, {}
        for (window, which), offset in unread.items():
            if not window.owner.deleted:
                self.load(window, which, offset)
        if unread and not self._unread:
            self._context.health.clear(self._topic_name, Trouble.READ)

    def _report_damage(self, newest: Damage) -> None:
        others = len(self.log.damage) - 1
        ranges = "range" if others == 1 else "ranges"
        rest = f" ({others} other {ranges} of offsets too)" if others else ""
        self._context.health.report(
            self._topic_name, Trouble.CORRUPT, f"{_damage_text(newest)}{rest}"
        )

    def _refresh_damage(self) -> None:
        """Retention may have removed what was corrupt."""
        left = self.log.damaged
        if not left:
            self._context.health.clear(self._topic_name, Trouble.CORRUPT)
        elif len(left) != self._damage_count:
            self._report_damage(left[-1])
        self._damage_count = len(left)

    # --- housekeeping ---

    def retain(self, floor_offset: int, wall_ns: int, old_end: int = 0) -> None:
        """Let go of old segments below `floor_offset`; what is below `old_end` is old."""
        health = self._context.health
        try:
            self.log.retain(floor_offset, wall_ns, self.retain_age_ns, self.retain_bytes, old_end)
        except StorageError as error:
            health.report(self._topic_name, Trouble.CLEANUP, error.reason)
        else:
            health.clear(self._topic_name, Trouble.CLEANUP)
        self._refresh_damage()
        self._notice_stop()

    def settle(self, wall_ns: int, sync: bool) -> bool:
        """Sync what is unsynced, repeat the synced end in the mark. True when nothing is left."""
        if self._unread:
            self._load_again()
        if not self.stopped:
            self._settle_log(wall_ns, sync)
        if self.stopped or not self._syncing:
            return not (self._unread or (self._refused_bytes and not self.stopped))
        failed = self._unread or self._mark_failed or self._refused_bytes
        return not (failed or self.log.unsynced_bytes)

    def _settle_log(self, wall_ns: int, sync: bool) -> None:
        log = self.log
        if self._refused_bytes and not self.busy and log.would_take(self._refused_bytes):
            self._note_writable()
        if not self._syncing:
            # only so that retention may let go of the oldest segment
            if log.unsynced_bytes > self._context.options.segment_bytes_max:
                self.sync()
            return
        if sync and log.unsynced_bytes:
            self.sync()
        self._mark(wall_ns)

    def _mark(self, wall_ns: int) -> None:
        """A mark that could not be written is tried again, and shown until it was."""
        try:
            self.log.mark(wall_ns)
        except StorageError as error:
            self._mark_failed = True
            self._context.health.report(self._topic_name, Trouble.MARK, error.reason)
            return
        if self._mark_failed and self.log.is_marked:
            self._mark_failed = False
            self._context.health.clear(self._topic_name, Trouble.MARK)

    def _notice_stop(self) -> None:
        """The log may stop on its own account, when it syncs outside of a job."""
        if self.log.stopped is not None and not self.stopped:
            self.stop(self.log.stopped.reason)
            self._pass_gate()

    def validate(self) -> None:
        self.tail.validate()
        self.log.validate()
        if self.tail.sealed_count and not self.busy:
            raise RuntimeError(f"{self._topic_name}: a sealed batch waits for nobody")
        if self.tail.written_end != self.log.written_end and not (self.stopped or self._gate):
            raise RuntimeError(
                f"{self._topic_name}: the tail ends at {self.tail.written_end}, the log at "
                f"{self.log.written_end}"
            )


def _damage_text(damage: Damage) -> str:
    start, end, reason = damage
    return f"offsets {start} to {end - 1} are corrupt: {reason}"


def step_over(window: Window, which: int, from_offset: int, to_offset: int) -> None:
    """`window` will not ask for [from, to) again."""
    if which == Source.STRAY:
        window.lose_range(from_offset, to_offset, TraceKind.CORRUPT)
    else:
        window.skip(from_offset, to_offset, TraceKind.CORRUPT)
