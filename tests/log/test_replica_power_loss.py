"""A thousand histories of three replicas: a leader's bytes on followers' and learners' disks.

`World` plays what the machines of replication will do, with no network: one replica leads, members
acknowledge, learners are copied and taken in, leaders change, and what a new leader does not have
is cut. The power of each goes again and again, and after each loss its log must be

- a beginning of what was written there, in bytes, with all that it ever said was synced;
- for a member, with all that any header promises that the members have synced;
- never called damaged; and with the epochs that its batches have.

What was cut was written with other bytes than all that came later, so it cannot come back unseen.
"""

import random
from collections.abc import Callable
from typing import Literal

from cases import each
from penstock.errors import WriteRefused
from penstock.kernel import decode_header
from penstock.log.epochs import BatchName
from penstock.log.head import LogOwner
from penstock.log.inspect import find
from penstock.log.partition import PartitionLog, SyncJob
from penstock.log.replica_file import ReplicaFile, State, read_replica, replica_id, write_replica
from penstock.log.segment import LogSettings
from penstock.log.verify import verify
from sim.disk import Fault, SimDisk

from .helpers import NOW_NS, SECOND, Writer

ROUNDS = 1000
ROUNDS_PER_TEST = 50
STEPS = 300
BATCHES_REFUSED = 2  # of an append: what is left of the second may stand behind another first one
PATH = "data/0"
OWNER = LogOwner("orders", 0, "005-18a26f9ac7a69000")
SETTINGS = LogSettings(
    segment_bytes_max=3000,
    index_every_bytes=400,
    preallocate_bytes_min=512,
    preallocate_bytes_max=4096,
    cut_kept_bytes_max=4000,
)
Durability = Literal["disk", "os"]


class Replica:
    """One disk with its log, and the books that are kept about it."""

    def __init__(self, number: int, rng: random.Random) -> None:
        self.number = number
        self.rng = rng
        self.disk = SimDisk()
        self.disk.mkdir("data")
        self.disk.sync_directory("")
        self.log = PartitionLog.create(self.disk, PATH, SETTINGS, OWNER)
        self.state: State = "copying"
        self.become("copying")
        self.job: SyncJob | None = None
        self.batches: list[bytes] = []  # all that the log holds
        self.refused: list[tuple[int, list[bytes]]] = []  # not written, perhaps on the disk
        self.synced_end = 0
        self.matched_epoch = 0
        self.acked_end = 0  # synced, as the leader of the epoch heard

    @property
    def end(self) -> int:
        return self.log.written_end

    def become(self, state: State) -> None:
        replica = ReplicaFile(
            replica_id=replica_id(self.number), identity=OWNER.identity, state=state
        )
        write_replica(self.disk, PATH, replica)
        self.state = state

    def took(self, batches: list[bytes]) -> None:
        self.batches += batches
        self.refused.clear()  # the removal of what they left is on the disk

    # --- syncs ---

    def sync_begin(self) -> None:
        if self.job is None:
            self.job = self.log.sync_begin()

    def sync_end(self) -> None:
        if self.job is not None:
            self.job.run()
            self.log.sync_end(self.job, None)
            self.job = None
            self._note_synced()

    def sync(self) -> None:
        self.sync_end()
        self.sync_begin()
        self.sync_end()

    def _note_synced(self) -> None:
        self.synced_end = self.log.synced_end

    # --- what a leader tells it to do ---

    def cut(self, offset: int) -> int:
        """How many messages went."""
        self.sync_end()
        gone = self.end - offset
        self.log.cut(offset)
        while self.batches and end_of(self.batches[-1]) > offset:
            self.batches.pop()
        if gone:
            self._note_synced()
        return gone

    def reset(self, start: int) -> None:
        self.sync_end()
        self.log.reset(start)
        self.batches.clear()
        self._note_synced()

    def forget_removed(self) -> None:
        """What retention took from the books' beginning."""
        start = self.log.start_offset
        self.batches = [one for one in self.batches if end_of(one) > start]

    # --- the power ---

    def crash(self) -> None:
        if self.job is not None and self.rng.random() < 0.5:
            self.disk.inject(Fault("sync", skip=self.rng.randint(0, 2)))
            try:
                self.job.run()
            except OSError:
                self.disk.faults.clear()
        start = self.log.start_offset
        promised = max((decode_header(one, 0).synced_end for one in self.batches), default=0)
        self.disk.crash(self.rng)
        self.open()
        assert self.log.start_offset == start
        assert self.end >= self.synced_end
        if self.state == "in_sync":
            assert self.end >= promised
        found = self.found()
        assert is_beginning(found, self.batches) or any(
            base >= self.synced_end and is_beginning(found, [*self._below(base), *append])
            for base, append in self.refused
        )
        self.check(found)

    def kill(self) -> None:
        self.disk.kill()
        self.open()
        found = self.found()
        assert found == self.batches
        self.check(found)

    def _below(self, offset: int) -> list[bytes]:
        return [one for one in self.batches if end_of(one) <= offset]

    def open(self) -> None:
        self.job = None
        self.matched_epoch = self.acked_end = 0
        self.log = PartitionLog.open(self.disk, PATH, SETTINGS, NOW_NS, OWNER)
        replica = read_replica(self.disk, PATH)
        assert replica is not None
        assert replica.state == self.state

    def found(self) -> list[bytes]:
        if self.log.start_offset == self.end:
            return []
        return [bytes(data) for _, data in self.log.batches(self.log.start_offset)]

    def check(self, found: list[bytes]) -> None:
        log = self.log
        assert (log.damaged, log.refusal, log.stopped) == ([], None, None)
        assert log.synced_end == log.written_end
        log.validate()
        epochs: dict[int, int] = {}
        for one in found:
            header = decode_header(one, 0)
            epochs.setdefault(header.leader_epoch, header.base_offset)
        assert log.epochs() == tuple(epochs.items())
        assert log.last() == (name_of(found[-1]) if found else (0, self.end, 0))
        assert log.agreed_end <= log.written_end
        if self.rng.random() < 0.1:
            log.close()
            findings = verify(self.disk, find(self.disk, PATH)).findings
            # an index is a hint: what a power loss did to one is put right when it is used
            assert [one for one in findings if not one.path.endswith(".index")] == []
            self.open()
            assert self.log.removed_tail is None
        self.batches = found
        self.synced_end = self.end
        self.refused.clear()


class World:
    def __init__(self, seed: int, durability: Durability) -> None:
        self.rng = random.Random(seed)
        self.durability = durability
        self.replicas = [Replica(number, self.rng) for number in range(3)]
        self.members = self.replicas[: self.rng.choice((1, 2, 3))]
        for replica in self.members:
            replica.become("in_sync")
        self.demanded: list[Replica] = []
        self.epoch = 0
        self.leader = self.members[0]
        self.writer = Writer(self.leader.log)
        self.committed_end = 0
        self.serial = 0
        self.refused_sizes: list[int] = []  # of the bodies of a batch in the append refused last
        self.counts = dict.fromkeys(("cuts", "resets", "losses", "admissions", "refusals"), 0)
        self.elect()

    # --- what holds in an epoch ---

    def agreed_end(self) -> int:
        """What every member, and each that is being taken in, has synced."""
        needed = [*self.members, *self.demanded]
        ends = [r.acked_end if r is not self.leader else r.synced_end for r in needed]
        return min(ends)

    def others(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica is not self.leader]

    def any_other(self) -> Replica:
        return self.rng.choice(self.others())

    def follows(self, replica: Replica) -> bool:
        """It may get appends: matched, and sure of what it may believe of their headers."""
        known = replica.state == "copying" or replica in self.members or replica in self.demanded
        return replica.matched_epoch == self.epoch and known

    def elect(self) -> None:
        """A member leads, in a new epoch. With durability `os` the one that has most."""
        self.epoch += self.rng.choice((1, 1, 2))
        self.demanded.clear()
        electable = self.members
        if self.durability == "os":
            best = max((r.log.last().epoch, r.end) for r in electable)
            electable = [r for r in electable if (r.log.last().epoch, r.end) == best]
        self.leader = self.rng.choice(electable)
        if self.durability == "disk":
            assert self.leader.end >= self.committed_end
        for replica in self.replicas:
            replica.matched_epoch = replica.acked_end = 0
        self.writer = Writer(self.leader.log, node_id=self.leader.number + 1)

    # --- steps ---

    def write(self) -> None:
        bodies = []
        for _ in range(self.rng.choice((1, 1, 2, 3, 8))):
            self.serial += 1
            bodies.append(b"%d:" % self.serial + self.rng.randbytes(self.rng.choice((0, 10, 300))))
        if self.refused_sizes and self.rng.random() < 0.7:  # its publisher tries again
            bodies = [self.rng.randbytes(size) for size in self.refused_sizes]
        self.refused_sizes = []
        agreed = self.agreed_end()
        append = self.writer.write(bodies, NOW_NS, epoch=self.epoch, synced_end=agreed)
        self.leader.took([append])

    def refuse(self) -> None:
        """A write that fails ends the leadership."""
        rng, leader, ids = self.rng, self.leader, self.writer.ids
        agreed = self.agreed_end()
        self.refused_sizes = [rng.choice((5, 100, 600))] * 2
        batches, inner, length, base_id = [], [], 0, ids.last_id + 1
        for offset in range(leader.end, leader.end + 2 * BATCHES_REFUSED, 2):
            if batches:
                inner.append((offset, length, ids.last_id + 1))
            bodies = [rng.randbytes(size) for size in self.refused_sizes]
            batches.append(self.writer.encode(bodies, offset, self.epoch, agreed))
            length += len(batches[-1])
        before = (leader.end, leader.log.last(), leader.log.epochs())
        written = rng.choice((rng.random(), 1.0))
        leader.disk.inject(Fault("write", path_part=".log", written=written, times=0))
        count = 2 * BATCHES_REFUSED
        try:
            leader.log.write(
                batches, length, leader.end, count, base_id, ids.last_id, NOW_NS, inner, self.epoch
            )
        except WriteRefused:
            self.counts["refusals"] += 1
        leader.disk.faults.clear()
        assert before == (leader.end, leader.log.last(), leader.log.epochs())
        leader.refused.append((leader.end, batches))
        self.elect()

    def match(self) -> None:
        """As the leader's hello does: the common end, and what stands above it goes."""
        replica, leader = self.any_other(), self.leader
        if replica.matched_epoch == self.epoch:
            return
        if replica not in self.members and replica.state != "copying":
            replica.become("copying")
        common = common_end(leader.log, replica.log)
        if common is None:
            assert replica not in self.members
            replica.reset(leader.log.start_offset)
            self.counts["resets"] += 1
        else:
            self.counts["cuts"] += replica.cut(common) > 0
        replica.matched_epoch = self.epoch
        self.acknowledge(replica)

    def ship(self) -> None:
        replica, leader = self.any_other(), self.leader
        if not self.follows(replica) or replica.end >= leader.end:
            return
        start = leader.log.start_offset
        if replica.end < start or (replica.end == start and replica.batches):
            assert replica not in self.members
            replica.become("copying")  # it needs what retention has removed
            replica.reset(start)
            self.counts["resets"] += 1
        previous = leader.log.name_before(replica.end)
        assert previous is not None
        block = leader.log.read(replica.end, self.rng.choice((100, 1000, 20_000)))
        append = split(block)
        if self.rng.random() < 0.1:
            replica.disk.inject(Fault("write", path_part=".log", written=self.rng.random()))
        try:
            replica.log.append_batches([block], previous)
        except WriteRefused:
            replica.refused.append((replica.end, append))
        else:
            replica.took(append)
        replica.disk.faults.clear()

    def sync_begin(self) -> None:
        self.rng.choice(self.replicas).sync_begin()

    def sync_end(self) -> None:
        replica = self.rng.choice(self.replicas)
        replica.sync_end()
        self.acknowledge(replica)

    def acknowledge(self, replica: Replica) -> None:
        if replica.matched_epoch == self.epoch:
            replica.acked_end = replica.synced_end

    def demand(self) -> None:
        replica = self.any_other()
        is_ready = self.follows(replica) and replica.end >= self.committed_end
        if is_ready and replica not in self.members and replica not in self.demanded:
            self.demanded.append(replica)

    def admit(self) -> None:
        if not self.demanded:
            return
        replica = self.demanded[0]
        if replica.matched_epoch == self.epoch and replica.end >= self.committed_end:
            replica.sync()
            replica.become("in_sync")
            self.members.append(self.demanded.pop(0))
            self.acknowledge(replica)
            self.counts["admissions"] += 1

    def drop(self) -> None:
        replica = self.any_other()
        if replica in self.members:
            self.members.remove(replica)

    def mark(self) -> None:
        self.rng.choice(self.replicas).log.mark(NOW_NS + 10 * SECOND)

    def retain(self) -> None:
        leader = self.leader
        if leader.job is None:
            # one below: the leader can still name the last batch that each member has
            leader.log.retain(max(self.agreed_end() - 1, 0), NOW_NS, 10**18, 2000)
            leader._note_synced()
            leader.forget_removed()

    def follow_start(self) -> None:
        replica = self.any_other()
        if replica.job is None and self.follows(replica):
            replica.log.drop_below(self.leader.log.start_offset)
            replica.forget_removed()

    def crash(self) -> None:
        replica = self.rng.choice(self.replicas)
        before = replica.end
        replica.crash()
        self.counts["losses"] += replica.end < before
        if self.durability == "os" and replica in self.members and len(self.members) > 1:
            self.members.remove(replica)  # suspect
        self._is_back(replica)

    def kill(self) -> None:
        replica = self.rng.choice(self.replicas)
        replica.kill()
        self._is_back(replica)

    def _is_back(self, replica: Replica) -> None:
        if replica in self.demanded:
            self.demanded.remove(replica)
        if replica is self.leader:
            self.elect()

    def play(self) -> None:
        steps: dict[Callable[[], None], int] = {
            self.write: 40,
            self.match: 30,
            self.ship: 60,
            self.sync_begin: 22,
            self.sync_end: 22,
            self.demand: 30,
            self.admit: 20,
            self.drop: 2,
            self.elect: 3,
            self.refuse: 3,
            self.mark: 5,
            self.retain: 3,
            self.follow_start: 3,
            self.crash: 10,
            self.kill: 2,
        }
        for step in self.rng.choices(list(steps), list(steps.values()), k=STEPS):
            step()
            assert self.agreed_end() <= self.leader.end
            self.committed_end = max(self.committed_end, self.agreed_end())
        for replica in self.replicas:
            replica.crash()


def end_of(batch: bytes) -> int:
    header = decode_header(batch, 0)
    return header.base_offset + header.count


def name_of(batch: bytes) -> BatchName:
    header = decode_header(batch, 0)
    return BatchName(header.leader_epoch, header.base_offset, int.from_bytes(batch[4:8], "little"))


def split(block: memoryview) -> list[bytes]:
    found, position = [], 0
    while position < len(block):
        length = decode_header(block, position).length
        found.append(bytes(block[position : position + length]))
        position += length
    return found


def is_beginning(found: list[bytes], whole: list[bytes]) -> bool:
    return found == whole[: len(found)]


def common_end(leader: PartitionLog, follower: PartitionLog) -> int | None:
    """How far two logs are one, by their epochs; None when they share nothing that both keep."""
    ends = []
    for log in (leader, follower):
        table = log.epochs()
        tops = [one.first_offset for one in table[1:]] + [log.written_end]
        ends.append({one.epoch: end for one, end in zip(table, tops, strict=False)})
    shared = max(set(ends[0]) & set(ends[1]), default=None)
    start = max(leader.start_offset, follower.start_offset)
    common = start if shared is None else min(ends[0][shared], ends[1][shared])
    if common < start or (shared is None and follower.start_offset < start < follower.written_end):
        return None
    if common == start:
        return start if start <= min(leader.written_end, follower.written_end) else None
    assert leader.batch_at(common - 1) == follower.batch_at(common - 1)
    return common


@each("first_seed", range(0, ROUNDS, ROUNDS_PER_TEST))
def test_no_power_loss_breaks_an_acknowledgement(first_seed: int) -> None:
    counts: dict[str, int] = {}
    for seed in range(first_seed, first_seed + ROUNDS_PER_TEST):
        world = World(seed, "os" if seed % 2 else "disk")
        try:
            world.play()
        except BaseException as error:
            error.add_note(f"seed {seed}, durability {world.durability}")
            raise
        for name, count in world.counts.items():
            counts[name] = counts.get(name, 0) + count
    assert min(counts.values()) > ROUNDS_PER_TEST // 10, counts  # each was really met
