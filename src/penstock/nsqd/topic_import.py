"""Topics that an nsqd had by itself become topics of its cluster (`--cluster-import-topics`).

| step, in the data directory or in etcd | after a crash |
|---|---|
| etcd has no topic of these names, else the start is refused | nothing has changed |
| each partition gets a `replica.json`, "alone" | it is a topic of this node, as before |
| etcd gets the topic, its channels, and a record of each partition | the next start goes on |
| `topic.json` says that a cluster places it | it is a topic of the cluster |

A record names this node as the only member, and no leader: it elects itself.

The controller gives it further replicas. Offsets, ids of messages, numbers of channels and the
log's identity stay, so that readers of the log go on where they were.

The log of a node by itself has epoch 0, and its record begins at 2. At 1, a replica that was lost
before it ever led would be taken for one that never had a message (see `cluster/reconciler.py`).
"""

import logging
import os
import secrets
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple

import msgspec

from penstock.broker.topics.directories import (
    TOPICS,
    partition_directory,
    topic_directory,
    topic_name,
)
from penstock.broker.topics.settings import is_internal
from penstock.broker.topics.topic_file import TopicFile, read_topic_file, write_topic_file
from penstock.cluster import keys
from penstock.cluster.coordinator import (
    Failed,
    KeyValue,
    Put,
    Reading,
    RevisionIs,
    Settled,
    Transaction,
)
from penstock.cluster.documents import (
    CHANNEL,
    CHANNEL_NUMBERS,
    EPOCH_FLOOR,
    RECORD,
    TOPIC,
    ChannelNumbers,
    EpochFloor,
    identity_text,
)
from penstock.cluster.metadata_topics import channel_document, topic_document
from penstock.errors import Refused, StorageError
from penstock.limits import REPLICAS_DEFAULT, TRANSACTION_KEYS_MAX
from penstock.log.disk import Disk, lock_directory
from penstock.log.replica_file import ReplicaFile, read_replica, replica_id, write_replica
from penstock.replication.leader import Outcome
from penstock.replication.record import Member, PartitionRecord
from penstock.takeover.diskqueue import list_old_files
from penstock.wire.names import is_ephemeral

log = logging.getLogger("penstock.nsqd")
NAMED_MAX = 5
_OFFICIAL = "Start it once without --cluster, which reads it into topics, and then import these"
_IMPORT = (
    "With --cluster-import-topics they become topics of the cluster, for good. Or begin with an "
    "empty --data-path, and serve this one without --cluster on other ports"
)
EPOCH = 2  # of the records
Read = Callable[[str], Awaitable[Reading | Failed]]
Transact = Callable[[Transaction], Awaitable[Settled]]


class OwnTopic(NamedTuple):
    """A topic of a single node, as on disk."""

    directory: str
    file: TopicFile


def own_topics(disk: Disk, data_path: str) -> list[OwnTopic]:
    """Raises Refused for data of an official nsqd."""
    if disk.is_directory(data_path) and list_old_files(disk.listdir(data_path)):
        raise Refused(f"{data_path} holds the data of an nsqd without a cluster. {_OFFICIAL}")
    topics = os.path.join(data_path, TOPICS)
    names = map(topic_name, sorted(disk.listdir(topics)) if disk.is_directory(topics) else [])
    kept = [name for name in names if not (is_ephemeral(name) or is_internal(name))]
    found = []
    for name in kept:
        directory = topic_directory(topics, name)
        try:
            file = read_topic_file(disk, directory)
        except StorageError:
            continue  # the broker sets it aside, and says so
        if not file.deleted and file.replicated is not True:
            found.append(OwnTopic(directory, file))
    return found


def check_import(data_path: str, own: Iterable[OwnTopic], wanted: bool) -> None:
    """A topic of a single node has one replica, and no lookup finds it. Raises Refused."""
    names = [one.file.name for one in own]
    if names and not wanted:
        named = ", ".join(names[:NAMED_MAX]) + (", ..." if len(names) > NAMED_MAX else "")
        raise Refused(f"{data_path} has topics that are of no cluster ({named}). {_IMPORT}")


class TopicImport:
    """`read` and `transact`: of the coordinator. `generation`: of this node's next start."""

    def __init__(
        self, disk: Disk, node: int, generation: int, read: Read, transact: Transact
    ) -> None:
        self._disk = disk
        self._node, self._generation = node, generation
        self._read, self._transact = read, transact

    async def run(self, data_path: str, own: list[OwnTopic]) -> None:
        """While no other process has the directory. Raises Refused and StorageError."""
        lock = lock_directory(self._disk, data_path)
        try:
            await self._run(own)
        except OSError as error:
            raise StorageError(data_path, f"topics are not imported: {error}") from error
        finally:
            lock.release()

    async def _run(self, own: list[OwnTopic]) -> None:
        there = {one.file.name: await self._find(one.file) for one in own}
        for directory, file in own:
            replicas = self._replicas(directory, file)
            if not there[file.name]:
                await self._put(file, replicas)
            spread = file.hash_count
            replicated = msgspec.structs.replace(file, replicated=True, hash_partitions=spread)
            write_topic_file(self._disk, directory, replicated)
            log.info("TOPIC(%s): it is a topic of the cluster now", file.name)

    async def _find(self, file: TopicFile) -> bool:
        """Did an earlier start put it? Raises Refused where the name is another topic's."""
        found = await self._entry(keys.topic(file.name))
        if found is not None:
            topic = TOPIC.decode(found.key, found.value)
            if not topic.deleted and identity_text(topic.identity) == file.identity:
                return True
        if found is not None or await self._entry(keys.epochs(file.name)) is not None:
            raise Refused(
                f"the cluster has, or had, another topic {file.name}: this one cannot be imported. "
                "Serve it without --cluster, on other ports, and send it on with nsq_to_nsq"
            )
        return False

    async def _entry(self, key: str) -> KeyValue | None:
        found = await self._read(key)
        if isinstance(found, Failed):
            raise Refused(f"topics are not imported, since etcd does not answer: {found.reason}")
        return found.entry

    def _replicas(self, directory: str, file: TopicFile) -> list[int]:
        """Their ids, by partition, durable."""
        found = []
        for number in range(file.partitions):
            path = partition_directory(directory, number)
            there = read_replica(self._disk, path)
            if there is None:
                new = replica_id(secrets.randbits(63))
                there = ReplicaFile(replica_id=new, identity=file.identity, state="alone")
                write_replica(self._disk, path, there)
            found.append(int(there.replica_id, 16))
        return found

    async def _put(self, file: TopicFile, replicas: list[int]) -> None:
        """The topic comes last: until then nobody reads its channels and partitions."""
        topic = topic_document(file, REPLICAS_DEFAULT)
        puts = [
            Put(
                keys.channel(file.name, one.name),
                CHANNEL.encode(channel_document(one, topic.identity)),
            )
            for one in file.channels
        ]
        for number, replica in enumerate(replicas):
            member = Member(self._node, replica, self._generation)
            record = PartitionRecord(topic.identity, EPOCH, None, (member,), 1, (self._node,))
            puts.append(Put(keys.partition(file.name, number), RECORD.encode(record)))
        numbers = ChannelNumbers(topic.identity, file.channel_number_next - 1)
        puts += [
            Put(keys.numbers(file.name), CHANNEL_NUMBERS.encode(numbers)),
            Put(keys.epochs(file.name), EPOCH_FLOOR.encode(EpochFloor(0))),
            Put(keys.topic(file.name), TOPIC.encode(topic)),
        ]
        for first in range(0, len(puts), TRANSACTION_KEYS_MAX):
            some = puts[first : first + TRANSACTION_KEYS_MAX]
            await self._change(file.name, some)

    async def _change(self, topic: str, puts: list[Put]) -> None:
        """Keys of an interrupted start are put again: the topic does not exist yet."""
        compare = RevisionIs(keys.topic(topic), 0)
        settled = await self._transact(Transaction((compare,), tuple(puts)))
        if settled.outcome is not Outcome.DONE:
            reason = (
                "another node has just made it"
                if settled.outcome is Outcome.REFUSED
                else ("etcd does not answer: start again")
            )
            raise Refused(f"topic {topic} is not imported: {reason}")
