"""One topic: its channels, its place in the data directory, and the point where messages go over
from topic to channels.

The topic's cursor is `tail.handed_end`. It follows the committed end only while the topic is not
paused and has a channel; what lies above it is the topic's own queue. The first channel starts at
it and so gets that queue; a later one starts at it too, and finds it at the committed end.

An ephemeral topic has a directory for its log, which is removed at the next start, and no files of
its own beside it: nothing of it is synced, nothing is brought back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from penstock import limits
from penstock.broker.age import AgeBound, is_log_ahead
from penstock.broker.agemarks import AgeMarks
from penstock.broker.channel import NOT_KEPT, Channel
from penstock.broker.context import Change, Context
from penstock.broker.cursors import Cursors
from penstock.broker.depth import DepthBound
from penstock.broker.directories import partition_directory
from penstock.broker.health import Trouble
from penstock.broker.internal import is_internal
from penstock.broker.partition import Partition, PublishDone, step_over
from penstock.broker.producers import Producers, Stamp, StampedDone, read_producers
from penstock.broker.settings import Effective, effective, sample_below
from penstock.broker.topicfile import ChannelEntry, TopicFile
from penstock.broker.topicstore import TopicStore
from penstock.broker.traced import Traced, TracedDone, publish_traced
from penstock.errors import NameInvalid, NotFound, Refused, StorageError
from penstock.kernel import Conn, Pack, Source, TraceKind
from penstock.log.partition import PartitionLog
from penstock.trace import events as traceevents
from penstock.wire.names import is_ephemeral, is_valid_name

if TYPE_CHECKING:
    from penstock.broker.deadletters import Letter

INTERNAL = "only nsqd publishes to this topic"
DRAINING = "draining"  # the reason of all refusals while a drain goes on

_log = logging.getLogger("penstock.broker")


class Topic:
    def __init__(
        self,
        context: Context,
        directory: str,
        file: TopicFile,
        log: PartitionLog,
        on_last_channel_deleted: Callable[[Topic], None],
    ) -> None:
        # First, for it may be corrupt, and then the kernel must not know the topic.
        ephemeral = is_ephemeral(file.name)
        producers = None if ephemeral else read_producers(context.disk, log.path)
        self.name = file.name
        self.ephemeral = ephemeral
        self.internal = is_internal(file.name)
        self.identity = file.identity
        self.created_ns = file.created_ns
        self.settings = file.settings
        self.depth_bound = DepthBound(self)
        self.age_bound = AgeBound(self)
        self.age_bound.marks = AgeMarks(file.age_marks)
        self._retain_marks = AgeMarks(file.retain_marks)
        self._marks_stored_ns = 0
        self._marks_unstored = False
        self.directory = directory
        self._store = TopicStore(context, file.name, directory, self._file, self._touch)
        self.paused = file.paused
        self.channels: dict[str, Channel] = {}
        self.deleted = False
        self.refusal = ""  # why no publish is taken
        self._begun = False  # its trace rate is in force
        self.trouble = ""  # the same, but for what is always so
        self.mem_queue_size = context.options.mem_queue_size
        self.latency_quantiles = context.options.latency_quantiles
        self._context = context
        self._channel_number_next = file.channel_number_next
        self._on_last_channel_deleted = on_last_channel_deleted
        self._cursors = (
            None if self.ephemeral else Cursors(context, self.name, partition_directory(directory))
        )
        tail = context.engine.tail(
            self.name.encode(), log.written_end, context.options.tail_memory_bytes_max
        )
        tail.owner = self
        tail.traceable = not self.internal
        durability = effective(file.settings, context.options).durability
        self.tail = tail
        self.partition = Partition(
            context,
            self.name,
            tail,
            log,
            "os" if self.ephemeral else durability,
            not self.ephemeral,
            self.refresh_refusal,
        )
        self.producers = Producers(
            context, self.name, self.partition, not self.ephemeral, producers
        )
        self._bring_back(file.channels)
        self._apply_settings()
        self.refresh_refusal()

    def _bring_back(self, entries: list[ChannelEntry]) -> None:
        """The channels as they were, and the point of handing over."""
        if self._cursors is None:
            return
        tail, log, engine = self.tail, self.partition.log, self._context.engine
        states = {
            entry.number: self._cursors.state(entry.number, entry.name, log) for entry in entries
        }
        gathers = self.paused or not entries
        handed_end = self._cursors.handed_end(log, gathers and not self.internal)
        if not gathers:
            handed_end = log.written_end
        tail.handed_end = max([handed_end, *(state.next for state in states.values())])
        for entry in entries:
            state = states[entry.number]
            window = engine.window(tail, state.low)
            window.attempts_max = entry.settings.max_attempts
            window.restore(state.low, state.next, state.finished, state.strays)
            window.searched = state.searched
            window.paused = entry.paused
            channel = Channel(self, entry.name, entry.number, window, entry.created_ns)
            channel.adopt(entry.settings)
            self._prepare(channel)
            self._cursors.adopt(entry.number, window)
        self._cursors.begin(tail)
        self._cursors.report_missing(log.start_offset)
        if self._context.killed:
            self._touch()
        tail.handing = self._hands_over
        if self.internal:
            tail.hand()

    def _prepare(self, channel: Channel) -> None:
        window = channel.window
        window.touch_max_ns = self._context.options.message_timeout_max_ns
        channel.refresh_trace()  # what is stepped over here is in the trace, too
        for start, end, _ in self.partition.damaged:
            if end > window.low:
                step_over(window, Source.STRAY, start, end)
                step_over(window, Source.FORWARD, max(start, window.low), end)
        self.channels[channel.name] = channel

    @property
    def wall_ns(self) -> int:
        return self._context.clock.wall_ns()

    # --- channels ---

    def find_channel(self, name: str) -> Channel:
        channel = self.channels.get(name)
        if channel is None:
            raise NotFound("channel", name)
        return channel

    def channel(self, name: str) -> Channel:
        """The channel of that name, made when it is not there."""
        channel = self.channels.get(name)
        return channel if channel is not None else self._create_channel(name)

    def _create_channel(self, name: str) -> Channel:
        if not is_valid_name(name.encode("utf-8", "surrogateescape")):
            raise NameInvalid("channel", name)
        if self._context.exiting:
            raise Refused("exiting")
        kept = self._cursors is not None and not is_ephemeral(name)
        number = self._channel_number_next if kept else NOT_KEPT
        if self.ephemeral and not self.channels:
            self._trim_queue()
        start_offset = self.tail.handed_end
        window = self._context.engine.window(self.tail, start_offset)
        channel = Channel(self, name, number, window, self._context.clock.wall_ns())
        self._prepare(channel)
        if self._cursors is not None and kept:
            self._channel_number_next += 1
            self._cursors.add(number, window, start_offset)
            self.store_or(lambda: self._forget(channel))
        elif channel.ephemeral:
            self._context.bounded[channel] = None
        self._update_handing()
        self._touch()
        self._context.changed(Change.CHANNEL_CREATED, self, channel)
        return channel

    def delete_channel(self, name: str) -> None:
        """`on_topic_changed` is told while the consumers are still in the list; those that nobody
        takes away are made to leave."""
        channel = self.find_channel(name)
        del self.channels[name]
        if channel.number != NOT_KEPT:
            self.store_or(lambda: self.channels.update({name: channel}))
        channel.deleted = True
        self._let_go(channel)
        if not self.channels:
            self.tail.handing = self._hands_over
            self.store_cursors()
            if self.ephemeral:
                self._on_last_channel_deleted(self)

    def _let_go(self, channel: Channel) -> None:
        self._context.changed(Change.CHANNEL_DELETED, self, channel)
        for conn in list(channel.consumers):
            channel.leave(conn)
        self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        if self.channels.get(channel.name) is channel:
            del self.channels[channel.name]
        self._context.bounded.pop(channel, None)
        if self._cursors is not None:
            self._cursors.drop(channel.number)
        self._context.engine.forget_window(channel.window)

    # --- handing over ---

    @property
    def _hands_over(self) -> bool:
        """Do messages go to the channels, or gather here? What is internal never gathers."""
        return self.internal or (bool(self.channels) and not self.paused)

    def _update_handing(self) -> None:
        handing = self._hands_over
        if handing and not self.tail.handing:
            self.tail.hand()
        self.tail.handing = handing

    def pause(self) -> None:
        self._set_paused(True)

    def unpause(self) -> None:
        self._set_paused(False)

    def _set_paused(self, paused: bool) -> None:
        if paused == self.paused:
            return
        self.paused = paused
        self.store_or(lambda: setattr(self, "paused", not paused))
        self._update_handing()
        self.store_cursors()

    def empty(self) -> None:
        """Drop the topic's own queue; what channels have is theirs."""
        tail = self.tail
        self.tell_time()
        for channel in self.channels.values():
            channel.window.skip(tail.handed_end, tail.committed_end, TraceKind.EMPTIED)
        tail.begin_at(tail.committed_end)
        self.store_cursors()

    def _trim_queue(self) -> None:
        """The queue of an ephemeral topic without a channel keeps the newest `mem_queue_size`."""
        tail = self.tail
        oldest = tail.committed_end - self.mem_queue_size
        if oldest > tail.handed_end:
            tail.handed_end = oldest

    # --- settings ---

    def configure(self, changes: Mapping[str, Any]) -> None:
        """Change settings, by name; None goes back to the daemon's option. Raises StorageError, and
        then nothing has changed."""
        before = self.settings
        self.settings = msgspec.structs.replace(before, **changes)
        self.store_or(lambda: setattr(self, "settings", before))
        self._apply_settings()

    @property
    def effective(self) -> Effective:
        return effective(self.settings, self._context.options)

    def _refresh_trace(self) -> None:
        below, before = sample_below(self.trace_rate), self.tail.trace_below
        self.tail.trace_below = below
        if self._begun and below != before:
            self.tell_switched()
        self._begun = True

    def tell_switched(self, channel: Channel | None = None) -> None:
        self._context.switched(self, channel)

    @property
    def trace_rate(self) -> float:
        """Of its messages whose life is traced."""
        return 0.0 if self.internal else self.effective.trace_rate

    def tell_time(self) -> None:
        """To the kernel, before what people do outside of its turns."""
        self._context.engine.tell_time(self._context.clock.wall_ns())

    def _apply_settings(self) -> None:
        chosen, partition, aging = self.effective, self.partition, self._context.aging
        if not self.ephemeral:
            partition.set_durability(chosen.durability)
        partition.retain_age_ns = chosen.retain_age_ns
        partition.retain_bytes = chosen.retain_bytes
        self._refresh_trace()
        for channel in self.channels.values():
            channel.refresh_trace()
        self.depth_bound.set(chosen.max_depth)
        self.age_bound.set(chosen.max_age_ns)
        aging.pop(self, None)
        if chosen.max_age_ns:
            aging[self] = None

    # --- publishing ---

    def publish(self, bodies: list[bytes], due_ns: int, done: PublishDone) -> None:
        """Messages from HTTP. `done` is called once, with None when they are as safe as the topic's
        durability says, or with what went wrong. Raises Refused when none are taken."""
        self._check_publish(len(bodies), due_ns)
        self.partition.publish(bodies, due_ns, done)
        if self.partition.held_count:
            self.depth_bound.renew()  # the kernel does not see those

    def publish_pack(
        self, pack: Pack, body: bytes, count: int, due_ns: int, done: PublishDone
    ) -> None:
        """The same for the `count` messages of `body`, found sound by `Tail.count_pack`."""
        self._check_publish(count, due_ns)
        self.partition.publish_pack(pack, body, count, due_ns, done)
        if self.partition.held_count:
            self.depth_bound.renew()  # the kernel does not see those

    def publish_traced(self, messages: Sequence[Traced], due_ns: int, done: TracedDone) -> None:
        """The same for messages with trace ids; `done` hears where the first one is."""
        self._check_publish(len(messages), due_ns)
        publish_traced(self.partition, messages, due_ns, done)
        if self.partition.held_count:
            self.depth_bound.renew()

    def publish_stamped(
        self,
        stamp: Stamp,
        bodies: list[bytes],
        due_ns: int,
        done: StampedDone,
        trace_ids: Sequence[int] = (),
    ) -> None:
        """The same for a producer that numbers its messages: a repeat stores nothing. Raises
        SequenceGap and ProducerFenced, too. While draining, only a repeat is answered."""
        if self.refusal not in ("", DRAINING):
            raise Refused(self.refusal)
        if not self.producers.is_repeat(stamp, len(bodies)):
            self._check_publish(len(bodies), due_ns)
        self.producers.publish(stamp, bodies, due_ns, done, trace_ids)
        if self.partition.held_count:
            self.depth_bound.renew()

    def publish_letters(self, letters: Sequence[Letter], done: PublishDone) -> int:
        """Messages that bring their past along, all into one batch. Returns the index of the first
        in that batch. Raises Refused when none are taken, also for a moment. A drain is no reason
        against it: nothing comes in, it only changes its place."""
        if self.refusal not in ("", DRAINING):
            raise Refused(self.refusal)
        self.depth_bound.check(len(letters))
        return self.partition.publish_letters(letters, done)

    def append(self, conn: Conn, verb: int, body: bytes, due_ns: int) -> None:
        """One message of a V2 connection that the kernel left to Python (DPUB). Its OK or its error
        comes from the kernel. Raises Refused when none are taken."""
        self._check_publish(1, due_ns)
        self.tail.append(body, due_ns)
        conn.appended(self.tail, verb)

    def _check_publish(self, count: int, due_ns: int) -> None:
        if self.refusal:
            raise Refused(self.refusal)
        if due_ns:
            self.age_bound.check(due_ns - self._context.clock.wall_ns())
        self.depth_bound.check(count)

    def refusal_of(self, count: int) -> str:
        """Why so many messages are not taken now; empty when they are."""
        return self.refusal or self.depth_bound.reason(count)

    def refresh_refusal(self) -> None:
        """Find out anew whether publishes are taken, and tell the kernel."""
        context = self._context
        trouble = "exiting" if context.exiting else self.partition.refusal or context.disk_refusal
        self.trouble = trouble or (DRAINING if context.draining else "")
        self.refusal = INTERNAL if self.name == traceevents.TOPIC else self.trouble
        self.tail.refusing = bool(self.refusal)

    # --- files ---

    def store_or(self, undo: Callable[[], object]) -> None:
        """Write topic.json; when that fails, take the change back and raise StorageError."""
        if not self.ephemeral:
            self._store.write_or(undo)

    def make_known(self, topics_path: str) -> None:
        """The last step of a creation: from here on a start brings the topic back."""
        if self.ephemeral:
            return
        self._store.write(self._file())
        try:
            self._context.disk.sync_directory(topics_path)
        except OSError as error:
            raise StorageError(self.directory, f"cannot be made to last: {error}") from error

    def mark_deleted(self) -> None:
        """From here on a start removes the topic. Raises StorageError, and then nothing has
        changed."""
        if not self.ephemeral:
            file = self._file()
            file.deleted = True
            self._store.write(file)

    def _file(self) -> TopicFile:
        return TopicFile(
            name=self.name,
            identity=self.identity,
            created_ns=self.created_ns,
            paused=self.paused,
            channel_number_next=self._channel_number_next,
            settings=self.settings,
            age_marks=self.age_bound.marks.marks,
            retain_marks=self._retain_marks.marks,
            channels=[
                ChannelEntry(
                    channel.name,
                    channel.number,
                    channel.created_ns,
                    channel.paused,
                    channel.settings,
                )
                for channel in self.channels.values()
                if channel.number != NOT_KEPT
            ],
        )

    def store_cursors(self) -> None:
        """Put into the journal what changed outside of a turn."""
        if self._cursors is not None:
            self._cursors.append_changes()
            self._touch()

    @property
    def cursors(self) -> Cursors | None:
        return self._cursors

    def was_read(self) -> None:
        """Its files are open now: housekeeping is to close them when it rests again."""
        self._touch()

    def _touch(self) -> None:
        self._context.touched[self] = None

    # --- housekeeping and the end ---

    def settle(self, wall_ns: int, sync_log: bool, sync_journal: bool) -> bool:
        """True when nothing is left to do until the next write."""
        settled = self.partition.settle(wall_ns, sync_log)
        settled &= self.producers.settle()
        settled &= self._store.settle()
        if self._cursors is not None:
            settled &= self._cursors.settle(sync_journal)
        return settled

    def rest(self) -> None:
        """While nothing is to do, hold no descriptors: so ten thousand topics fit a node."""
        self.partition.log.rest()
        if self._cursors is not None:
            self._cursors.rest()

    def retain(self, wall_ns: int) -> None:
        """Nothing that the topic or a channel still wants is let go."""
        if self.ephemeral and not self.channels:
            self._trim_queue()
        floor, kept = self.floor, self.producers.floor
        if self._cursors is not None:
            floor = min(floor, self._cursors.floor_synced)
        old_end = self._old_end(wall_ns)
        self.partition.retain(floor if kept is None else min(floor, kept), wall_ns, old_end)

    def _old_end(self, wall_ns: int) -> int:
        """What is older than it is to be kept, when the log's timestamps cannot say so."""
        marks, age_ns, end = self._retain_marks, self.partition.retain_age_ns, 0
        if not is_log_ahead(self.partition.log, wall_ns):
            marks.clear()
        elif not age_ns:
            end = self.tail.committed_end
        else:
            end = marks.old_end(wall_ns, age_ns)
            if marks.note(self.tail.committed_end, wall_ns, age_ns):
                self.note_marks(wall_ns)
        if self._marks_unstored:
            self.note_marks(wall_ns)
        return end

    def note_marks(self, wall_ns: int) -> None:
        """Marks of ages have changed: topic.json has them, within a while."""
        self._marks_unstored = True
        if 0 <= wall_ns - self._marks_stored_ns < limits.AGE_MARKS_STORE_NS:
            return
        self._marks_stored_ns, self._marks_unstored = wall_ns, False
        try:
            self.store_or(lambda: None)
        except StorageError as error:
            self._marks_unstored = True  # tried again
            _log.warning("%s: when messages were seen could not be stored: %s", self.name, error)

    @property
    def floor(self) -> int:
        """The lowest offset that the topic or a channel still wants."""
        floor = self.tail.handed_end
        for channel in self.channels.values():
            floor = min(floor, channel.window.floor)
        return floor

    def close_partition(self) -> None:
        """Before `close_cursors` of every topic: a dead letter that is stored here is finished
        there."""
        self.partition.close()
        self.producers.close()

    def close_cursors(self) -> None:
        if self._cursors is not None:
            self._cursors.close()

    def delete(self, keep_files: bool = False) -> None:
        """Let go of everything in memory and destroy the log. `mark_deleted` came before, or the
        topic could not be made: then its files are not touched."""
        self.deleted = True
        self.partition.retire()
        self.producers.wait()
        for channel in list(self.channels.values()):
            channel.deleted = True
            self._let_go(channel)
        self._context.engine.forget_tail(self.name.encode())
        if self._cursors is not None:
            self._cursors.discard()
        self._context.touched.pop(self, None)
        self._context.aging.pop(self, None)
        if keep_files:
            self.partition.close()
        else:
            self.partition.destroy()

    # --- numbers ---

    @property
    def failure(self) -> str:
        """Why the batch that just failed was not stored; empty when none has."""
        return self.refusal or self._context.health.reason(self.name, Trouble.WRITE)

    @property
    def depth(self) -> int:
        if self.ephemeral and not self.channels:
            self._trim_queue()
        return self.tail.committed_end - self.tail.handed_end

    @property
    def uncommitted(self) -> int:
        """Messages that are still being stored."""
        tail = self.tail
        storing = tail.written_end - tail.committed_end + tail.open_count
        return storing + self.partition.held_count + self.partition.reserved_count

    @property
    def backend_depth(self) -> int:
        """How many of `depth` have to be read from the disk."""
        return max(0, min(self.tail.memory_start, self.tail.committed_end) - self.tail.handed_end)

    @property
    def message_count(self) -> int:
        return self.tail.message_count

    @property
    def message_bytes(self) -> int:
        return self.tail.message_bytes

    def validate(self) -> None:
        self.partition.validate()
        if self._cursors is not None:
            self._cursors.validate()
        for channel in self.channels.values():
            channel.validate()
        if self.tail.handing != self._hands_over:
            raise RuntimeError(f"{self.name}: handing is {self.tail.handing}")
        if self.tail.handing and self.tail.handed_end != self.tail.committed_end:
            raise RuntimeError(f"{self.name}: handing, but behind the committed end")
        numbers = [c.number for c in self.channels.values() if c.number != NOT_KEPT]
        if len(set(numbers)) != len(numbers):
            raise RuntimeError(f"{self.name}: two channels share a number")
        if numbers and max(numbers) >= self._channel_number_next:
            raise RuntimeError(f"{self.name}: a channel number could be given out twice")
