"""All topics of one daemon, on one data directory.

The daemon's turn calls `write`, `load`, `journal` and `synced`; once a second it calls
`housekeeping`. Everything here runs in the loop's thread. What blocks goes to the sync threads,
save for rare things that operators and first uses do: making and deleting topics and channels,
pausing, the start, the stop.

What the kernel's objects belong to: `tail.owner` is the `Leader`, `window.owner` the `Channel`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from penstock import limits
from penstock.broker.channels.channel import refill
from penstock.broker.channels.cursors import ChannelRecords
from penstock.broker.channels.dead_letters import DeadLetters
from penstock.broker.channels.delays import DelaySearch
from penstock.broker.channels.latency import LatencyTurns
from penstock.broker.commits.commits import Commits
from penstock.broker.context import Context, TopicChange
from penstock.broker.health import Trouble
from penstock.broker.node_state import ClockAhead, NodeState, look_at_clock
from penstock.broker.options import BrokerOptions
from penstock.broker.partition.leader import Leader
from penstock.broker.ports import Syncer, Syncs
from penstock.broker.replicas.context import ReplicationContext
from penstock.broker.replicas.leadership import Records
from penstock.broker.replicas.outbox import Outbox
from penstock.broker.replicas.replica_host import ReplicaHost
from penstock.broker.topics import directories
from penstock.broker.topics.deletions import EndedTopics
from penstock.broker.topics.directories import (
    TopicDirectories,
    close_all,
    open_logs,
    stored_messages,
)
from penstock.broker.topics.growth import grow
from penstock.broker.topics.retention import RetentionTurns, drop_aged
from penstock.broker.topics.settings import is_internal, settings_of
from penstock.broker.topics.topic import Logs, Owns, Topic
from penstock.broker.topics.topic_file import TOPIC_FILE, TopicFile, read_topic_file
from penstock.broker.trace import TraceLog
from penstock.broker.usage import Hourly, IdleSweep
from penstock.clock import Clock
from penstock.errors import NameInvalid, NotFound, Refused, StorageError, TopicDamaged
from penstock.ids.guid import IdRange
from penstock.kernel import Engine, Tail, Window
from penstock.log.disk import Disk, Lock, lock_directory
from penstock.wire.names import is_ephemeral, is_valid_name

_log = logging.getLogger("penstock.broker")


class Broker:
    def __init__(
        self,
        engine: Engine,
        disk: Disk,
        data_path: Path,
        options: BrokerOptions,
        clock: Clock,
        syncer: Syncer,
    ) -> None:
        self.ended = EndedTopics(disk, str(data_path))
        self.path = str(data_path)
        self._disk = disk
        self._clock = clock
        self._lock: Lock | None = None
        ids = IdRange(options.node_id)
        self.context = Context(engine, disk, self.path, options, clock, Syncs(syncer), ids)
        self.topics = self.context.topics
        self._state = NodeState(self.context)
        self._disk_checked_ns = self._logs_synced_ns = self._journals_synced_ns = clock.mono_ns()
        self.directories = TopicDirectories(self.context)
        self._idle = IdleSweep(self)
        self.delays = DelaySearch(self.context)
        self.hourly = Hourly(self.topics)
        self.clock_leap = ClockAhead(self.context.health)
        self.commits = Commits(self.context)
        self.records = ChannelRecords(self.context)
        self.gathering = self.context.gathering
        self.dead_letters = DeadLetters(self.context, self.topic)
        self.trace = TraceLog(self.context, self.topic)
        self._latency_turns = LatencyTurns(self.topics, options.latency_window_ns, clock.mono_ns())
        self._retention = RetentionTurns(self.topics)

    @property
    def health(self) -> str:
        return self.context.health.text

    @property
    def healthy(self) -> bool:
        """True without trouble, or with warnings only."""
        return not self.context.health.failing

    def refuse(self, **states: bool | str) -> None:
        """States of the context that say which publishes are refused."""
        for name, state in states.items():
            setattr(self.context, name, state)
        for topic in self.topics.values():
            topic.refresh_refusal()

    # --- start and stop ---

    def open(self, before_topics: Callable[[], object] = lambda: None) -> None:
        """Lock the directory and bring back all topics. `before_topics` is called with the lock
        held. Raises StorageError or ConfigError, and then nothing is held."""
        if not self._disk.is_directory(self.path):
            raise StorageError(self.path, "the data directory does not exist")
        self._lock = lock_directory(self._disk, self.path)
        try:
            self._state.begin()
            self.ended.open()
            before_topics()
            topics_path = self.directories.topics_path
            if not self._disk.is_directory(topics_path):
                self._disk.mkdir(topics_path)
                self._disk.sync_directory(self.path)
            for directory_name in sorted(self._disk.listdir(topics_path)):
                self._open_or_set_aside(directory_name)
            self.commits.open()
            self._check_disk()
            look_at_clock(self.context, self._clock.wall_ns())
            newest = (leader.log.last_timestamp_ns for leader in self._leaders())
            self.clock_leap.look(
                max(newest, default=0), self._clock.wall_ns(), self._clock.mono_ns()
            )
            self.trace.record_start()
            self.hourly.begin(self._clock.wall_ns())
        except OSError as error:
            self._abandon()
            raise StorageError(self.path, str(error)) from error
        except BaseException:
            self._abandon()
            raise

    def _open_or_set_aside(self, directory_name: str) -> None:
        """One corrupt topic is no reason to serve none: its files and its name stay as they are."""
        name = directories.topic_name(directory_name)
        try:
            self._open_directory(name, directory_name)
        except TopicDamaged as error:
            reason = f"set aside until it is repaired: {error}"
            self.context.set_aside[name] = f"topic {name} is {reason}"
            self.context.health.report(name, Trouble.SET_ASIDE, reason)

    def _open_directory(self, name: str, directory_name: str) -> None:
        directory = os.path.join(self.directories.topics_path, directory_name)
        if not is_valid_name(name):
            _log.warning("%s: not a topic's directory, left alone", directory)
        elif is_ephemeral(name):
            self.directories.remove(name)
        elif not self._disk.exists(os.path.join(directory, TOPIC_FILE)):
            self._remove_unfinished(name, directory)
        else:
            self._open_topic(name, directory)

    def _open_topic(self, name: str, directory: str) -> None:
        file = read_topic_file(self._disk, directory)
        if file.deleted:
            _log.info("%s: the deletion is finished now", directory)
            self.directories.remove(name)
            return
        if file.name != name:
            raise TopicDamaged(directory, f"topic.json is about another topic, {file.name!r}")
        replica_host, settings = self.replica_host, self.directories.settings
        wall_ns = self._clock.wall_ns()
        if file.replicated is not True:
            logs = open_logs(self._disk, directory, file, settings, wall_ns)
            self.add_topic(directory, file, logs)
        elif replica_host is None:
            raise StorageError(directory, "a cluster places its replicas, and none is named")
        else:
            owns = replica_host.find_owns(directory, file)
            logs = open_logs(self._disk, directory, file, settings, wall_ns, owns)
            replica_host.add(self.add_topic(directory, file, logs, owns))

    def _remove_unfinished(self, name: str, directory: str) -> None:
        """Nothing was published; or topic.json was lost, and an operator has to look at it."""
        stored = stored_messages(self._disk, directory, self.directories.settings)
        if stored:
            raise TopicDamaged(directory, f"{TOPIC_FILE} is gone, but {stored} messages are there")
        self.directories.remove(name)

    def add_topic(self, directory: str, file: TopicFile, logs: Logs, owns: Owns = None) -> Topic:
        ids = self.context.ids
        ids.last_id = max([ids.last_id, *(log.last_id for log in logs.values())])
        try:
            topic = Topic(self.context, directory, file, logs, self._delete_ephemeral, owns)
        except BaseException:
            close_all(logs.values())
            raise
        self.topics[file.name] = topic
        return topic

    # --- a node of a cluster ---

    @property
    def replica_host(self) -> ReplicaHost | None:
        return self.context.replica_host

    def join(self, replication: ReplicationContext, records: Records) -> ReplicaHost:
        """Call before `open`, or in its `before_topics`: a cluster places replicas on this node."""
        self.context.replica_host = replica_host = ReplicaHost(self, replication, records)
        return replica_host

    def _abandon(self) -> None:
        for topic in self.topics.values():
            topic.close_partitions()
            topic.close_cursors()
        self.topics.clear()
        self._unlock()

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def close(self) -> None:
        """Write, sync, mark and journal everything, then release the directory. Raises nothing:
        publishes that could not be stored were answered with errors, and the log lines name
        them."""
        self.write_trace()
        self.refuse(exiting=True)
        self.commits.close()
        wall_ns = self._clock.wall_ns()
        for leader in self._leaders():
            leader.group.write(wall_ns)  # all syncs set off before any is waited for
        if self.replica_host is not None:
            self.replica_host.close()
        for topic in self.topics.values():
            topic.close_partitions()
        for topic in self.topics.values():
            topic.close_cursors()
        ephemeral = [topic.name for topic in self.topics.values() if topic.ephemeral]
        self.topics.clear()
        for name in ephemeral:
            self.directories.remove(name)
        self.context.touched.clear()
        self.context.bounded.clear()
        self.context.skipping.clear()
        self.context.limited.clear()
        self.context.aging.clear()
        self._state.note_clean_stop()
        self._unlock()

    # --- topics ---

    def _leaders(self) -> Iterator[Leader]:
        for topic in self.topics.values():
            yield from topic.leaders

    def find_topic(self, name: str) -> Topic:
        topic = self.topics.get(name)
        if topic is None:
            raise NotFound("topic", name)
        return topic

    def topic(
        self, name: str, partitions: int = 0, extended: bool = False, registered: bool = False
    ) -> Topic:
        """`partitions` 0: as many as the options say. `registered`: consumers make no channels."""
        if name in self.topics:
            return self.topics[name]
        count = partitions or self.default_partitions(name)
        return self._create_topic(name, count, extended, registered)

    def default_partitions(self, name: str) -> int:
        """Ephemeral and internal topics are small."""
        single = is_ephemeral(name) or is_internal(name)
        return 1 if single else self.context.options.default_partitions

    def _create_topic(self, name: str, partitions: int, extended: bool, registered: bool) -> Topic:
        if not is_valid_name(name):
            raise NameInvalid("topic", name)
        if not 1 <= partitions <= limits.PARTITIONS_MAX:
            raise Refused(f"{partitions} partitions: a topic has 1 to {limits.PARTITIONS_MAX}")
        if partitions > 1 and is_internal(name):
            raise Refused(f"{partitions} partitions: topic {name} of penstock's own has 1")
        if self.context.exiting:
            raise Refused("exiting")
        if name in self.context.set_aside:
            raise Refused(self.context.set_aside[name])
        try:
            topic = self._make_topic(name, partitions, extended, registered)
        except StorageError as error:
            self.directories.note_unmade(name, error)
            raise
        self.directories.note_made(name)
        topic.refresh_refusal()
        self.context.changed(TopicChange.TOPIC_CREATED, topic)
        return topic

    def _make_topic(self, name: str, partitions: int, extended: bool, registered: bool) -> Topic:
        wall_ns = self._clock.wall_ns()
        identity = f"{self.context.options.node_id:03x}-{wall_ns:016x}"
        file = TopicFile(
            name=name,
            identity=identity,
            created_ns=wall_ns,
            partitions=partitions,
            settings=settings_of(name, registered),
            extended=extended or msgspec.UNSET,
        )
        logs = self.directories.make(file)
        return self.make_known(file, dict(enumerate(logs)))

    def make_known(self, file: TopicFile, logs: Logs, owns: Owns = None) -> Topic:
        """From here on a start brings the topic back. Raises StorageError."""
        topic = self.add_topic(self.directories.path(file.name), file, logs, owns)
        try:
            topic.make_known(self.directories.topics_path)
        except BaseException:
            self.drop_topic(topic, made=False)
            self.directories.remove_unmade(file.name)
            raise
        return topic

    def grow_topic(self, topic: Topic, partitions: int, rehash: bool = False) -> None:
        """Raises GrowthRefused, Refused and StorageError, and then nothing has changed."""
        grow(self.context, self.directories, topic, partitions, rehash)

    def delete_topic(self, name: str) -> None:
        """What is being published to it is answered first. Raises StorageError when the deletion
        could not be written down; then nothing is deleted."""
        topic = self.find_topic(name)
        if topic.replicated:
            raise Refused(f"topic {name} is deleted by the cluster")
        self.remove_topic(topic)

    def remove_topic(self, topic: Topic) -> None:
        self.ended.add(topic.name, topic.identity, topic.ends())
        topic.mark_deleted()
        self.drop_topic(topic)
        self.directories.remove(topic.name)
        self.ended.settle()
        self.context.changed(TopicChange.TOPIC_DELETED, topic)

    def _delete_ephemeral(self, topic: Topic) -> None:
        if topic.name in self.topics:
            self.delete_topic(topic.name)

    def drop_topic(self, topic: Topic, made: bool = True) -> None:
        del self.topics[topic.name]
        topic.delete(keep_files=not made)
        for replica in topic.replicas.values():
            self.context.health.forget(replica.label)

    # --- one turn ---

    def write(self, tails: list[Tail], wall_ns: int) -> None:
        context = self.context
        if context.bounded:
            self._trim_bounded()
        for tail in tails:
            tail.owner.group.write(wall_ns)
        if context.headroom_bytes < 0:
            self._check_disk()  # fast publishers must not overrun the watermark between two looks

    def write_gathered(self, mono_ns: int, wall_ns: int) -> None:
        for group in self.gathering.take(mono_ns):
            group.write(wall_ns)

    def stay(self, tail: Tail) -> list[tuple[Any, ...]]:
        """Stay in the kernel after a turn that wrote to this partition alone, for the publishes to
        it that follow at once. Returns the kernel's events after them."""
        if self.context.bounded:
            return []  # what is trimmed before a write may be any of its topics
        owner: Leader | Outbox = tail.owner
        return owner.group.stay()

    def write_trace(self) -> None:
        if self.context.engine.trace_pending:
            self.trace.write()

    def load(self, window: Window, which: int, offset: int) -> None:
        """The answer of a NEED event."""
        channel = window.owner
        leader = window.tail.owner
        if channel.has(window) and not channel.deleted and isinstance(leader, Leader):
            leader.load(window, which, offset)

    def journal(self, windows: list[Window]) -> None:
        if self.context.limited:
            refill(self.context)
        for window in windows:
            if window.exhausted:
                self.dead_letters.collect(window.owner)
        self.records.write(windows)

    def synced(self) -> None:
        """Take the sync jobs that have ended: commit or fail their batches, write the next ones."""
        if self.context.bounded:
            self._trim_bounded()
        self.context.syncs.settle()
        for channel in list(self.context.skipping):
            channel.skips.sweep()
        if self.context.limited:
            refill(self.context)

    def _trim_bounded(self) -> None:
        for channel in self.context.bounded:
            channel.trim()

    # --- housekeeping ---

    def housekeeping(self) -> None:
        """About once a second."""
        mono_ns = self._clock.mono_ns()
        wall_ns = self._clock.wall_ns()
        self.synced()
        due = mono_ns - self._disk_checked_ns >= limits.DISK_CHECK_EVERY_NS
        if due or self.context.headroom_bytes < 0:  # by batches that `write` has not seen
            self._disk_checked_ns = mono_ns
            self._check_disk()
        look_at_clock(self.context, wall_ns)
        self.clock_leap.follow(wall_ns, mono_ns)
        if not self.clock_leap.stands(mono_ns):
            drop_aged(self.context, wall_ns)
        self._idle.sweep(mono_ns)
        self.dead_letters.housekeeping()
        self.delays.housekeeping(mono_ns, wall_ns)
        self.commits.housekeeping(wall_ns)
        self.directories.settle()
        self.ended.settle()
        self.hourly.housekeeping(wall_ns)
        if self.context.options.latency_quantiles:
            self._latency_turns.housekeeping(mono_ns)
        self._settle(mono_ns, wall_ns)
        self._retention.housekeeping(wall_ns)
        self.trace.housekeeping()

    def _settle(self, mono_ns: int, wall_ns: int) -> None:
        sync_logs = mono_ns - self._logs_synced_ns >= self.context.options.sync_timeout_ns
        if sync_logs:
            self._logs_synced_ns = mono_ns
        sync_journals = mono_ns - self._journals_synced_ns >= limits.JOURNAL_SYNC_EVERY_NS
        if sync_journals:
            self._journals_synced_ns = mono_ns
        if self.replica_host is not None:
            self.replica_host.settle(wall_ns, sync_logs, sync_journals)
        touched = self.context.touched
        for topic in list(touched):
            if topic.settle(wall_ns, sync_logs, sync_journals):
                touched.pop(topic, None)
                topic.rest()

    def _check_disk(self) -> None:
        context, refusal = self.context, ""
        least = context.options.disk_free_bytes_min
        try:
            free_bytes = self._disk.free_bytes(self.path) - context.reserved_bytes
        except OSError as error:
            refusal = f"cannot determine free disk space: {error}"
        else:
            context.headroom_bytes = max(free_bytes - least, 0) // 2
            if free_bytes < least:
                refusal = f"disk almost full: {free_bytes} bytes free, {least} are to stay free"
        if bool(refusal) != bool(context.disk_refusal):  # the number of each second is no news
            context.health.show("", Trouble.DISK_LOW, refusal)
            self.refuse(disk_refusal=refusal)

    def validate(self) -> None:
        self.commits.validate()
        if self.replica_host is not None:
            self.replica_host.validate()
        for name, topic in self.topics.items():
            if topic.name != name:
                raise RuntimeError(f"topic {topic.name} is listed as {name}")
            topic.validate()
            last_id = max((leader.log.last_id for leader in topic.leaders), default=0)
            if last_id > self.context.ids.last_id:
                raise RuntimeError(f"{name}: id {last_id} is above the last one given out")
