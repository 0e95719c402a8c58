"""Topics of a node by itself become topics of a cluster: what the disk and the metadata have after
each step, and after a start that was interrupted."""

import errno
from pathlib import Path

import pytest

from penstock.broker.topics.topic_file import (
    ChannelEntry,
    TopicFile,
    read_topic_file,
    write_topic_file,
)
from penstock.cluster import keys
from penstock.cluster.coordinator import Failed, Reading, Settled, Transaction
from penstock.cluster.documents import CHANNEL, EPOCH_FLOOR, RECORD, TOPIC, EpochFloor
from penstock.errors import Refused, StorageError
from penstock.limits import TRANSACTION_KEYS_MAX
from penstock.log.disk import OsDisk
from penstock.log.replica_file import read_replica
from penstock.nsqd.topic_import import TopicImport, check_import, own_topics
from penstock.replication.leader import Outcome
from sim.store import Store

IDENTITY = "001-17f0a1b2c3d4e5f6"
DISK = OsDisk()


class World:
    def __init__(self, data_path: Path, partitions: int = 2, channels: int = 1) -> None:
        self.store = Store()
        self.outcomes: list[Outcome] = []  # of transactions that are not carried out
        self.transactions: list[Transaction] = []
        self.is_up = True
        self.data_path = str(data_path)
        self.directory = data_path / "topics" / "orders"
        for number in range(partitions):
            (self.directory / str(number)).mkdir(parents=True)
        entries = [ChannelEntry(f"c{n}", n, 5) for n in range(1, channels + 1)]
        file = TopicFile(
            "orders", IDENTITY, 5, partitions=partitions, channels=entries,
            channel_number_next=channels + 1,
        )  # fmt: skip
        write_topic_file(DISK, str(self.directory), file)

    async def run(self) -> None:
        own = own_topics(DISK, self.data_path)
        await TopicImport(DISK, 7, 3, self._read, self._transact).run(self.data_path, own)

    async def _read(self, key: str) -> Reading | Failed:
        if not self.is_up:
            return Failed("nobody is there")
        return Reading(self.store.revision, self.store.entries.get(key))

    async def _transact(self, change: Transaction) -> Settled:
        self.transactions.append(change)
        if self.outcomes:
            return Settled(self.outcomes.pop(0), 0)
        return self.store.transact(change)

    def value(self, key: str) -> bytes:
        return self.store.entries[key].value

    @property
    def is_placed(self) -> bool:
        return read_topic_file(DISK, str(self.directory)).replicated is True


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_the_metadata_has_what_the_node_had(world: World) -> None:
    await world.run()
    topic = TOPIC.decode("", world.value(keys.topic("orders")))
    channel = CHANNEL.decode("", world.value(keys.channel("orders", "c1")))
    records = [RECORD.decode("", world.value(keys.partition("orders", n))) for n in (0, 1)]
    replicas = [read_replica(DISK, str(world.directory / str(n))) for n in (0, 1)]
    assert (topic.replicas, topic.hash_partitions, channel.number) == (3, 2, 1)
    assert topic.identity == channel.identity == records[0].identity
    assert b'"identity":"001-17f0a1b2c3d4e5f6"' in world.value(keys.topic("orders"))
    for record, replica in zip(records, replicas, strict=True):
        assert replica is not None
        (member,) = record.members
        assert (member.node, member.generation, record.leader, record.wanted) == (7, 3, None, (7,))
        assert (member.replica, replica.state) == (int(replica.replica_id, 16), "alone")
        floor = EPOCH_FLOOR.decode("", world.value(keys.epochs("orders")))
        assert record.epoch > floor.epoch + 1  # it is not taken for one that never had a message
    assert world.is_placed
    assert own_topics(DISK, world.data_path) == []


async def test_a_start_that_was_interrupted_goes_on(world: World) -> None:
    await world.run()
    before = dict(world.store.entries)
    file = read_topic_file(DISK, str(world.directory))
    file.replicated = False
    write_topic_file(DISK, str(world.directory), file)
    await world.run()
    assert world.is_placed
    assert world.store.entries == before


async def test_a_topic_with_many_channels_comes_last(tmp_path: Path) -> None:
    world = World(tmp_path, channels=2 * TRANSACTION_KEYS_MAX)
    world.outcomes = [Outcome.UNKNOWN]
    with pytest.raises(Refused, match="start again"):
        await world.run()
    assert not world.is_placed
    await world.run()
    assert world.is_placed
    assert len(world.transactions) == 4
    assert keys.topic("orders") in [one.key for one in world.transactions[-1].operations]
    assert len(world.store.entries_of(keys.CHANNELS)) == 2 * TRANSACTION_KEYS_MAX


async def test_the_name_of_another_topic_is_refused(world: World) -> None:
    world.store.put(keys.epochs("orders"), EPOCH_FLOOR.encode(EpochFloor(4)))  # of a deleted one
    with pytest.raises(Refused, match="has, or had, another topic orders"):
        await world.run()
    assert not world.is_placed
    assert not world.transactions


async def test_nothing_changes_while_etcd_does_not_answer(world: World) -> None:
    world.is_up = False
    with pytest.raises(Refused, match="nobody is there"):
        await world.run()
    assert not world.is_placed


async def test_a_full_disk_is_named_and_the_next_start_goes_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("penstock.nsqd.topic_import.write_replica", full)
        with pytest.raises(StorageError, match=r"topics are not imported: .*No space left"):
            await world.run()
    assert not world.is_placed
    assert not world.transactions
    await world.run()
    assert world.is_placed


async def test_another_node_makes_it_meanwhile(world: World) -> None:
    world.outcomes = [Outcome.REFUSED]
    with pytest.raises(Refused, match="another node has just made it"):
        await world.run()
    assert not world.is_placed


def test_an_import_must_be_requested(world: World) -> None:
    own = own_topics(DISK, world.data_path)
    with pytest.raises(Refused, match=r"of no cluster \(orders\)\. With --cluster-import-topics"):
        check_import(world.data_path, own, wanted=False)
    check_import(world.data_path, own, wanted=True)
