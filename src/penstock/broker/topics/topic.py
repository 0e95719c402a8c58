"""One topic: its identity and settings, its channels, and the point where messages go over from
topic to channels. Its partitions and the way to them are in `publishing.py`.

What belongs to a partition (log, tail, cursors, producers) is a `Replica`'s and its role's; the
topic asks all those that it leads, and adds up.

The topic's cursor is `tail.handed_end`. It follows the committed end only while the topic is not
paused and has a channel; what lies above it is the topic's own queue. The first channel starts at
it and so gets that queue; a later one starts at it too, and finds it at the committed end.

An ephemeral topic has a directory for its log, which is removed at the next start, and no files of
its own beside it: nothing of it is synced, nothing is brought back.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from penstock import limits
from penstock.broker.channels.channel import NOT_KEPT, Channel
from penstock.broker.context import Context, TopicChange
from penstock.broker.options import Durability
from penstock.broker.partition.commit_state import SyncPace
from penstock.broker.partition.leader import Leader
from penstock.broker.partition.replica import Replica
from penstock.broker.replicas.replica_file import ReplicaFileStore
from penstock.broker.topics.publishing import DepthBound, TopicPublishing
from penstock.broker.topics.retention import AgeBound, is_log_ahead
from penstock.broker.topics.settings import Effective, effective, sample_below
from penstock.broker.topics.topic_file import (
    PLACED_VERSION,
    SEVERAL_VERSION,
    ChannelEntry,
    Marks,
    TopicFile,
    TopicStore,
)
from penstock.errors import ChannelUnregistered, NameInvalid, NotFound, Refused, StorageError
from penstock.kernel import TraceKind
from penstock.log.partition import PartitionLog
from penstock.wire.names import is_ephemeral, is_valid_name

Logs = Mapping[int, PartitionLog]  # by partition
Owns = Mapping[int, ReplicaFileStore] | None  # of replicas that a cluster has placed here

_log = logging.getLogger("penstock.broker")
_SEEN_OUTSIDE = ("ordered", "disable_channel_auto_create")  # settings that an nsqlookupd hears of


class Topic(TopicPublishing):
    def __init__(
        self,
        context: Context,
        directory: str,
        file: TopicFile,
        logs: Logs,
        on_last_channel_deleted: Callable[[Topic], None],
        owns: Owns = None,
    ) -> None:
        owns = owns or {}
        super().__init__(context, file)
        self.ephemeral = is_ephemeral(file.name)
        self.identity = file.identity
        self.created_ns = file.created_ns
        self.leaderships_ended = 0  # on this node, since its start
        self.silent: set[int] = set()  # partitions of which nothing may be delivered at present
        self.settings = file.settings
        self.depth_bound = DepthBound(self)
        self.age_bound = AgeBound(self)
        self._marks_stored_ns, self._marks_unstored = 0, False
        self.directory = directory
        self.store = TopicStore(self)
        self.paused = file.paused
        self.channels: dict[str, Channel] = {}
        self.deleted = False
        self._begun = False  # its trace rate is in force
        self.pace = SyncPace(
            lambda: [leader.group for leader in self.leaders], context.options.sync_every_count
        )
        self.channel_number_next = file.channel_number_next
        self._on_last_channel_deleted = on_last_channel_deleted
        # All files are read before the kernel knows of the topic: they may be corrupt.
        self.replicas = {
            number: Replica(self, number, log, file.marks(number), owns.get(number))
            for number, log in logs.items()
        }
        if not self.replicated:
            for replica in self.replicas.values():
                replica.lead()
        self.prepare_route()
        self._bring_back(file.channels)
        self.apply_settings()
        self.refresh_refusal()

    def prepare_route(self) -> None:
        """The kernel's data to accept publishes with keys and headers by itself. It ignores a topic
        of which this node leads no partition."""
        if not (self.leaders or self.outboxes):
            return
        engine, name = self.context.engine, self.name.encode("ascii")
        engine.set_hash_partitions(name, self.hash_partitions)
        engine.set_extended(name, self.extended)

    def _bring_back(self, entries: list[ChannelEntry]) -> None:
        if self.ephemeral:
            return
        found = [(entry, Channel(self, entry.name, entry.number, entry.created_ns))
                 for entry in entries]  # fmt: skip
        for entry, channel in found:
            channel.adopt(entry.settings)
            channel.paused = entry.paused
            channel.skips.restore(entry)
        gathers = self.paused or not entries
        self.channels = {channel.name: channel for _, channel in found}
        for leader in self.leaders:
            leader.bring_back(list(self.channels.values()), gathers, self.internal or not gathers)
        if self.context.killed:
            self.touch()

    def grow(self, replicas: Sequence[Replica], hash_partitions: int) -> None:
        """New partitions, empty. Raises StorageError, and then nothing has changed."""
        before, self.hash_partitions = self.hash_partitions, hash_partitions
        count = self.partition_count
        self.partition_count += len(replicas)
        self.replicas.update((replica.number, replica) for replica in replicas)

        def undo() -> None:
            self.hash_partitions, self.partition_count = before, count
            for replica in replicas:
                del self.replicas[replica.number]

        self.store_or(undo)
        for replica in replicas:
            self.begin(replica.lead(), (), not self.hands_over)
        self.prepare_route()
        self.apply_settings()
        self.refresh_refusal()
        self.touch()
        if replicas:
            self.context.changed(TopicChange.TOPIC_RESHAPED, self)

    def extend(self) -> None:
        """Raises StorageError, and then nothing has changed."""
        if not self.extended:
            self.check_own()
            self.extended = True
            self.store_or(lambda: setattr(self, "extended", False))
            self.prepare_route()
            self.context.changed(TopicChange.TOPIC_RESHAPED, self)

    def begin(self, leader: Leader, known: Sequence[Channel], gathers: bool) -> None:
        """The channels have windows of it, those that its journal knows or may know as they were,
        and their consumers are subscribed to these."""
        leader.tail.trace_below = sample_below(self.trace_rate)
        leader.bring_back(known, gathers, self.hands_over)
        for channel in self.channels.values():
            if channel not in known:
                leader.add_window(channel, channel.number != NOT_KEPT)
            channel.follow(leader.number)
        leader.update_handing(self.hands_over)

    # --- a topic of a cluster ---

    def take_in(self, replica: Replica) -> None:
        self.replicas[replica.number] = replica
        self.replicas = dict(sorted(self.replicas.items()))

    def reshaped(self) -> None:
        """A leadership has begun or ended, completely."""
        self.apply_settings()
        self.refresh_refusal()
        self.touch()
        self.context.changed(TopicChange.TOPIC_RESHAPED, self)

    def add_channel(self, channel: Channel) -> None:
        self.channels[channel.name] = channel
        self.channel_number_next = max(self.channel_number_next, channel.number + 1)
        for leader in self.leaders:
            leader.add_window(channel, kept=True)
        self.context.changed(TopicChange.CHANNEL_CREATED, self, channel)

    @property
    def wall_ns(self) -> int:
        return self.context.clock.wall_ns()

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

    def channel_of_consumer(self, name: str) -> Channel:
        """The same for a consumer. Raises ChannelUnregistered."""
        self.check_consumer(name)
        return self.channel(name)

    def check_consumer(self, name: str) -> None:
        """Raises ChannelUnregistered. An ephemeral channel is always made: nothing of it stays."""
        makes = is_ephemeral(name) or not self.settings.disable_channel_auto_create
        if not makes and name not in self.channels:
            raise ChannelUnregistered(self.name, name)

    def _create_channel(self, name: str) -> Channel:
        if not is_valid_name(name):
            raise NameInvalid("channel", name)
        if self.context.exiting:
            raise Refused("exiting")
        kept = not self.ephemeral and not is_ephemeral(name)
        if kept and self.replicated:
            raise Refused(f"channels of topic {self.name} are made by the cluster")
        number = self.channel_number_next if kept else NOT_KEPT
        if self.ephemeral and not self.channels:
            self._trim_queue()
        channel = Channel(self, name, number, self.context.clock.wall_ns())
        self.channels[name] = channel
        for leader in self.leaders:
            leader.add_window(channel, kept)
        if kept:
            self.channel_number_next += 1
            self.store_or(lambda: self._forget(channel))
        elif channel.ephemeral:
            self.context.bounded[channel] = None
        self.update_handing()
        self.touch()
        self.context.changed(TopicChange.CHANNEL_CREATED, self, channel)
        return channel

    def delete_channel(self, name: str) -> None:
        """The hooks run while the list still has the consumers; those that no hook removes are made
        to leave."""
        channel = self.find_channel(name)
        if self.replicated and channel.number != NOT_KEPT:
            raise Refused(f"channels of topic {self.name} are deleted by the cluster")
        del self.channels[name]
        if channel.number != NOT_KEPT:
            self.store_or(lambda: self.channels.update({name: channel}))
        channel.deleted = True
        self.let_go(channel)
        if not self.channels:
            for tail in self.tails:
                tail.handing = self.hands_over
            self.store_cursors()
            if self.ephemeral:
                self._on_last_channel_deleted(self)

    def let_go(self, channel: Channel) -> None:
        self.context.changed(TopicChange.CHANNEL_DELETED, self, channel)
        for conn in list(channel.consumers):
            channel.leave(conn)
        self._forget(channel)

    def _forget(self, channel: Channel) -> None:
        if self.channels.get(channel.name) is channel:
            del self.channels[channel.name]
        self.context.bounded.pop(channel, None)
        for leader in self.leaders:
            leader.drop_window(channel)

    def step_over(self, partition: int, start: int, end: int, owner: Channel) -> None:
        """These messages are for one channel, though they stand in the log of all."""
        for channel in self.channels.values():
            if channel is not owner and partition in channel.windows:
                channel.windows[partition].skip(start, end, 0)  # never theirs: no event
        self.store_cursors()

    # --- handing over ---

    @property
    def hands_over(self) -> bool:
        """Do messages go to the channels, or gather here? What is internal never gathers."""
        return self.internal or (bool(self.channels) and not self.paused)

    def update_handing(self) -> None:
        for leader in self.leaders:
            leader.update_handing(self.hands_over)

    def set_paused(self, paused: bool) -> None:
        if paused == self.paused:
            return
        self.check_own()
        self.paused = paused
        self.store_or(lambda: setattr(self, "paused", not paused))
        self.update_handing()
        self.store_cursors()

    def empty(self) -> None:
        """Drop the topic's own queue; channels keep theirs."""
        self.set_time()
        for leader in self.leaders:
            tail = leader.tail
            for channel in self.channels.values():
                window = channel.windows[leader.number]
                window.skip(tail.handed_end, tail.committed_end, TraceKind.EMPTIED)
            tail.begin_at(tail.committed_end)
        self.store_cursors()

    def _trim_queue(self) -> None:
        """The queue of an ephemeral topic without a channel keeps the newest `mem_queue_size`."""
        for tail in self.tails:
            oldest = tail.committed_end - self.context.options.mem_queue_size
            if oldest > tail.handed_end:
                tail.handed_end = oldest

    # --- settings ---

    def configure(self, changes: Mapping[str, Any]) -> None:
        """By name; None restores the option. Raises StorageError, and then nothing has changed."""
        self.check_own()
        before = self.settings
        self.settings = msgspec.structs.replace(before, **changes)
        self.store_or(lambda: setattr(self, "settings", before))
        self.apply_settings()
        self.refresh_refusal()
        if any(getattr(before, name) != getattr(self.settings, name) for name in _SEEN_OUTSIDE):
            self.context.changed(TopicChange.TOPIC_RESHAPED, self)

    @property
    def durability(self) -> Durability:
        if self.ephemeral:
            return "os"
        return self.settings.durability or self.context.options.durability

    @property
    def effective(self) -> Effective:
        return effective(self.settings, self.context.options)

    def _refresh_trace(self) -> None:
        below, switched = sample_below(self.trace_rate), False
        for tail in self.tails:
            switched |= below != tail.trace_below
            tail.trace_below = below
        if self._begun and switched:
            self.context.switched(self, None)
        self._begun = True

    @property
    def trace_rate(self) -> float:
        return 0.0 if self.internal else self.effective.trace_rate

    def set_time(self) -> None:
        """Give the kernel the time, before operator commands outside of its turns."""
        self.context.engine.set_time(self.context.clock.wall_ns())

    def apply_settings(self) -> None:
        chosen, aging = self.effective, self.context.aging
        self.ordered = bool(self.settings.ordered)
        self.needs_partition = self.ordered and self.partition_count > 1
        if self.leaders:
            self.context.engine.require_partition(self.name.encode("ascii"), self.needs_partition)
        for leader in self.leaders:
            if not self.ephemeral:
                leader.group.set_durability(chosen.durability)
            leader.retain_age_ns = chosen.retain_age_ns
            leader.retain_bytes = chosen.retain_bytes
        self._refresh_trace()
        for channel in self.channels.values():
            channel.refresh_trace()
        self.depth_bound.set(chosen.max_depth)
        self.age_bound.set(chosen.max_age_ns)
        aging.pop(self, None)
        if chosen.max_age_ns:
            aging[self] = None

    # --- files ---

    def store_or(self, undo: Callable[[], object], changed: bool = True) -> None:
        """Write topic.json; when that fails, take the change back and raise StorageError."""
        if not self.ephemeral and (changed or self.store.failed):
            self.store.write_or(undo)

    def make_known(self, topics_path: str) -> None:
        """The last step of a creation: from here on a start brings the topic back."""
        if self.ephemeral:
            return
        self.store.write(self.file())
        try:
            self.context.disk.sync_directory(topics_path)
        except OSError as error:
            raise StorageError(self.directory, f"cannot be made durable: {error}") from error

    def mark_deleted(self) -> None:
        """From here on a start removes it. Raises StorageError, and then nothing has changed."""
        if not self.ephemeral:
            file = self.file()
            file.deleted = True
            self.store.write(file)

    def file(self) -> TopicFile:
        marks = {number: replica.marks for number, replica in self.replicas.items()}
        first = marks.pop(0, Marks())
        count = self.partition_count
        # An older release knows one partition and no headers.
        version = SEVERAL_VERSION if count > 1 or self.extended else 1
        if self.replicated:
            version = PLACED_VERSION
        return TopicFile(
            name=self.name,
            identity=self.identity,
            created_ns=self.created_ns,
            version=version,
            paused=self.paused,
            partitions=count,
            channel_number_next=self.channel_number_next,
            settings=self.settings,
            age_marks=first.age,
            retain_marks=first.retain,
            more_marks=marks or msgspec.UNSET,
            hash_partitions=self.hash_partitions if count > 1 else msgspec.UNSET,
            producer_partitions=self.producer_partitions or msgspec.UNSET,
            extended=self.extended or msgspec.UNSET,
            replicated=self.replicated or msgspec.UNSET,
            channels=[
                ChannelEntry(
                    channel.name,
                    channel.number,
                    channel.created_ns,
                    channel.paused,
                    channel.settings,
                    channel.skips.state.whole or msgspec.UNSET,
                    sorted(channel.skips.state.chosen) or msgspec.UNSET,
                    channel.skips.state.tests or msgspec.UNSET,
                )
                for channel in self.channels.values()
                if channel.number != NOT_KEPT
            ],
        )

    def store_cursors(self) -> None:
        """Write changes outside of a turn to the journals."""
        if self.ephemeral:
            return
        for leader in self.leaders:
            leader.store_cursors()
        self.touch()

    def touch(self) -> None:
        """Have housekeeping look at it. Files that are open it closes when the topic rests."""
        self.context.touched[self] = None

    # --- housekeeping and the end ---

    def settle(self, wall_ns: int, sync_log: bool, sync_journal: bool) -> bool:
        """True when nothing is left to do until the next write."""
        settled = self.store.settle()
        for leader in self.leaders:
            settled &= leader.settle(wall_ns, sync_log, sync_journal)
        return settled

    def rest(self) -> None:
        """An idle topic holds no descriptors, and no memory that others need."""
        for replica in self.replicas.values():
            replica.rest()
        for leader in self.leaders:
            leader.tail.rest()

    def retain(self, wall_ns: int) -> None:
        """Remove nothing that the topic or a channel still needs."""
        if self.ephemeral and not self.channels:
            self._trim_queue()
        for leader in self.leaders:
            leader.retain(wall_ns, self._old_end(leader, wall_ns))
        if self not in self.context.touched:
            self.rest()  # a look at the age of a segment opens it

    def _old_end(self, leader: Leader, wall_ns: int) -> int:
        """Messages below it are too old, where the log's timestamps cannot tell."""
        marks, age_ns, end = leader.retain_marks, leader.retain_age_ns, 0
        if not is_log_ahead(leader.log, wall_ns):
            marks.clear()
        elif not age_ns:
            end = leader.tail.committed_end
        else:
            end = marks.old_end(wall_ns, age_ns)
            if marks.note(leader.tail.committed_end, wall_ns, age_ns):
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
            _log.warning("%s: ages of messages could not be stored: %s", self.name, error)

    def close_partitions(self) -> None:
        """Call before `close_cursors` of every topic: dead letters stored here are finished
        there."""
        for replica in self.replicas.values():
            (replica.led or replica).close()

    def close_cursors(self) -> None:
        for leader in self.leaders:
            if leader.cursors is not None:
                leader.cursors.close()

    def delete(self, keep_files: bool = False) -> None:
        """Let go of everything in memory and destroy the logs. `mark_deleted` came before, or the
        topic could not be made: then its files are not touched."""
        self.deleted = True
        for outbox in self.outboxes.values():
            outbox.close(f"topic {self.name} was deleted")
        self.outboxes.clear()
        for leader in self.leaders:
            leader.retire()
        for channel in list(self.channels.values()):
            channel.deleted = True
            self.let_go(channel)
        for leader in self.leaders:
            leader.leave()
        self.context.touched.pop(self, None)
        self.context.aging.pop(self, None)
        for leader in self.leaders:
            if keep_files:
                leader.close()
            else:
                leader.replica.destroy()

    # --- numbers ---

    @property
    def depth(self) -> int:
        if self.ephemeral and not self.channels:
            self._trim_queue()
        return sum(leader.depth for leader in self.leaders)

    @property
    def uncommitted(self) -> int:
        return sum(leader.group.uncommitted for leader in self.leaders)

    @property
    def backend_depth(self) -> int:
        return sum(leader.backend_depth for leader in self.leaders)

    @property
    def message_count(self) -> int:
        return sum(tail.message_count for tail in self.tails)

    @property
    def message_bytes(self) -> int:
        return sum(tail.message_bytes for tail in self.tails)

    def validate(self) -> None:
        for leader in self.leaders:
            leader.validate()
            if leader.tail.handing != self.hands_over:
                raise RuntimeError(f"{self.name}: handing is {leader.tail.handing}")
        for channel in self.channels.values():
            channel.validate()
        numbers = [c.number for c in self.channels.values() if c.number != NOT_KEPT]
        if len(set(numbers)) != len(numbers):
            raise RuntimeError(f"{self.name}: two channels share a number")
        if numbers and max(numbers) >= self.channel_number_next:
            raise RuntimeError(f"{self.name}: a channel number could be given out twice")
