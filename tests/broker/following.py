"""A follower on a simulated disk, and the frames of a leader, made by hand."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from log.helpers import NOW_NS as NOW_NS
from log.helpers import SMALL as SETTINGS
from penstock.broker.health import Health
from penstock.broker.ports import PeerLane, Syncs
from penstock.broker.replicas.context import EpochLedger, ReplicationContext, target_of
from penstock.broker.replicas.log_follower import LogFollower
from penstock.broker.replicas.replica_file import ReplicaFileStore
from penstock.kernel import encode_batch
from penstock.log.head import LogOwner
from penstock.log.ledger import Ledger, LedgerNode, ReplicaKey
from penstock.log.partition import PartitionLog
from penstock.log.replica_file import ReplicaFile, State, read_replica, replica_id, write_replica
from penstock.replication.effects import Hello, MatchAt
from penstock.replication.frames import AppendFrame, Frames
from replication.received import received
from sim.disk import SimDisk
from sim.threads import Threads

LEADER = 7  # the node
SESSION = 1 << 32
IDENTITY = "005-18a26f9ac7a69000"
KEY = ReplicaKey(IDENTITY, 0)
OWNER = LogOwner("orders", 0, IDENTITY)
PATH = "data/0"


class Wire:
    """Peers: what was sent, as the other end reads it."""

    def __init__(self) -> None:
        self.sent: list[tuple[PeerLane, Any]] = []

    def send(self, node: int, lane: PeerLane, frames: Sequence[Any]) -> None:
        reader = Frames(3)
        for parts in frames:
            self.sent += [(lane, frame) for _, frame in received(reader, b"".join(parts))]

    def take(self) -> list[Any]:
        taken, self.sent = self.sent, []
        return [frame for _, frame in taken]


def batch(offset: int, epoch: int, bodies: Sequence[bytes], synced_end: int = 0) -> bytes:
    base_id = (NOW_NS >> 10) + offset
    return encode_batch(list(bodies), offset, base_id, NOW_NS, synced_end, epoch)


def put(log: PartitionLog, data: bytes, count: int, epoch: int, synced_end: int = 0) -> None:
    last_id = (NOW_NS >> 10) + log.written_end + count - 1
    base_id = last_id - count + 1
    log.write([data], len(data), log.written_end, count, base_id, last_id, NOW_NS, (), epoch,
              synced_end)  # fmt: skip


def new_disk() -> SimDisk:
    disk = SimDisk()
    disk.mkdir("data")
    disk.sync_directory("")
    return disk


def content(log: PartitionLog) -> bytes:
    return b"".join(bytes(data) for _, data in log.batches(log.start_offset))


class LeaderLog:
    """What a leader has, and the frames that it sends of it."""

    def __init__(self) -> None:
        self.log = PartitionLog.create(new_disk(), PATH, SETTINGS, OWNER)
        self.view = self.log

    def write(self, *bodies: bytes, epoch: int = 1, synced_end: int = 0) -> int:
        """Returns where it begins."""
        start = self.log.written_end
        put(self.log, batch(start, epoch, bodies, synced_end), len(bodies), epoch, synced_end)
        return start

    def match_at(self, end: int, session: int = SESSION) -> MatchAt:
        chain = self.view.name_before(end)
        assert chain is not None
        return MatchAt(LEADER, session, end, chain)

    def append(
        self, start: int, epoch: int = 1, committed: int = 0, session: int = SESSION
    ) -> AppendFrame:
        chain = self.view.name_before(start)
        assert chain is not None
        is_there = start < self.log.written_end
        batches = bytes(self.log.read(start, 1 << 20)) if is_there else b""
        return AppendFrame(session, epoch, chain, start, batches, committed)


class Lab:
    """The follower's node."""

    def __init__(self, state: State = "copying") -> None:
        self.disk = new_disk()
        PartitionLog.create(self.disk, PATH, SETTINGS, OWNER).close()
        file = ReplicaFile(replica_id=replica_id(99), identity=IDENTITY, state=state)
        write_replica(self.disk, PATH, file)
        Ledger.create(self.disk, "data", LedgerNode(generation=4, incarnation=5)).close()
        self.stops: list[str] = []
        self.drops: list[int] = []
        self.open()

    def open(self) -> None:
        """The process begins."""
        file = read_replica(self.disk, PATH)
        assert file is not None
        self.threads, self.wire, self.health = Threads(), Wire(), Health()
        self.syncs = Syncs(self.threads)
        self.log = PartitionLog.open(self.disk, PATH, SETTINGS, 0, OWNER)
        self.epoch_ledger = EpochLedger(Ledger.open(self.disk, "data"), self.syncs)
        self.own = ReplicaFileStore(self.disk, PATH, file)
        self.replication = ReplicationContext(3, 5, 4, self.epoch_ledger, self.wire)
        producers = SimpleNamespace(appended=lambda headers: None)
        stop = self.stops.append
        self.owner: Any = SimpleNamespace(
            key=KEY, target=target_of(KEY), own=self.own, replication=self.replication,
            replica=SimpleNamespace(label="orders", log=self.log, producers=producers),
            context=SimpleNamespace(syncs=self.syncs, health=self.health),
            assignment=SimpleNamespace(note_stopped=stop, stop=stop),
            cut=lambda removed: None, drop_below=self.drops.append,
        )  # fmt: skip
        self.followed = LogFollower(self.owner, waits=True)

    def turn(self) -> list[Any]:
        """Until nothing more happens. Returns what was sent."""
        for _ in range(20):
            self.epoch_ledger.flush()
            self.syncs.settle()
        self.followed.validate()
        return self.wire.take()

    def release(self) -> list[Any]:
        """Jobs that were held end. Returns what was sent then."""
        self.threads.held = False
        self.threads.run()
        return self.turn()

    def send(self, frame: Any) -> list[Any]:
        """An append stands in a link's buffer, which is used again."""
        buffer = bytearray(frame.batches) if isinstance(frame, AppendFrame) else bytearray()
        if isinstance(frame, AppendFrame):
            frame = frame._replace(batches=memoryview(buffer))
        self.followed.receive(LEADER, frame)
        buffer[:] = bytes(len(buffer))
        return self.turn()

    def hello(self, epoch: int = 1, session: int = SESSION) -> list[Any]:
        return self.send(Hello(LEADER, session, epoch))

    def match(self, leader: LeaderLog, end: int) -> list[Any]:
        """A session up to its match."""
        self.hello()
        return self.send(leader.match_at(end))
