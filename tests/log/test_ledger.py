"""A node's ledger: what was synced is there, and what was corrupt is never taken for less."""

import contextlib
import random

import pytest

from cases import each
from penstock import limits
from penstock.errors import WriteRefused
from penstock.log.errors import LedgerLost, LedgerStopped, LedgerUnreadable
from penstock.log.inspect import find
from penstock.log.ledger import (
    ENTRY,
    MAGIC,
    Ledger,
    LedgerJob,
    LedgerNode,
    ReplicaEntry,
    ReplicaKey,
    encode_node,
    encode_record,
)
from penstock.log.verify import verify
from sim.disk import Fault, SimDisk

from .helpers import durable_disk, put

FILE = "data/ledger"
CLUSTER = bytes(range(16))
NODE = LedgerNode(generation=7, incarnation=1 << 63, revision=100, cluster=CLUSTER)
ORDERS = ReplicaKey("005-18a26f9ac7a69000", 0)


def entry(epoch: int, record: bytes = b'{"leader":1}') -> ReplicaEntry:
    return ReplicaEntry(epoch, record)


def reopened(disk: SimDisk, seed: int = 0) -> Ledger:
    disk.crash(random.Random(seed))
    return Ledger.open(disk, "data")


# --- what it keeps ---


def test_a_new_ledger_is_durable(disk: SimDisk) -> None:
    Ledger.create(disk, "data", NODE)
    assert reopened(disk).node == NODE
    with pytest.raises(WriteRefused):
        Ledger.create(disk, "data", NODE)


def test_epochs_never_fall(disk: SimDisk) -> None:
    ledger = Ledger.create(disk, "data", NODE)
    ledger.put(ORDERS, entry(3))
    with pytest.raises(ValueError, match="epoch 2"):
        ledger.put(ORDERS, entry(2))
    with pytest.raises(ValueError, match="generation 6"):
        ledger.set_node(NODE._replace(generation=6))
    with pytest.raises(ValueError, match="revision 99"):
        ledger.set_node(NODE._replace(revision=99))
    ledger.set_node(NODE._replace(revision=1, cluster=bytes(16)))  # another cluster counts anew


@pytest.mark.parametrize(
    ("key", "record"),
    [
        (ReplicaKey("", 0), b""),
        (ReplicaKey("x" * 25, 0), b""),
        (ORDERS, bytes(limits.LEDGER_RECORD_BYTES_MAX + 1)),
    ],
)
def test_oversized_entries_are_refused(disk: SimDisk, key: ReplicaKey, record: bytes) -> None:
    ledger = Ledger.create(disk, "data", NODE)
    with pytest.raises(ValueError, match="bytes"):
        ledger.put(key, ReplicaEntry(1, record))
    assert ledger.sync_begin() is None
    with pytest.raises(ValueError, match="16 bytes"):
        ledger.set_node(NODE._replace(cluster=b"short"))


# --- group commit ---


def test_a_turn_has_one_write_and_one_sync(disk: SimDisk) -> None:
    ledger = Ledger.create(disk, "data", NODE)
    syncs = disk.syncs
    numbers = [ledger.put(ReplicaKey("topic", n), entry(1)) for n in range(255)]
    assert ledger.synced_number == 0
    job = ledger.sync_begin()
    assert job is not None
    number = ledger.put(ORDERS, entry(9))  # while it runs: for the next
    assert ledger.sync_begin() is None
    job.run()
    assert disk.syncs == syncs + 1
    ledger.sync_end(job, None)
    assert numbers[-1] <= ledger.synced_number < number
    ledger.sync()
    assert ledger.synced_number == number
    assert disk.syncs == syncs + 2
    assert ledger.sync_begin() is None
    assert len(reopened(disk).replicas) == 256


def test_a_failed_sync_is_final(disk: SimDisk) -> None:
    ledger = Ledger.create(disk, "data", NODE)
    ledger.put(ORDERS, entry(3))
    disk.inject(Fault("sync", path_part="ledger"))
    with pytest.raises(LedgerStopped, match="a sync failed"):
        ledger.sync()
    assert ledger.synced_number == 0
    with pytest.raises(LedgerStopped):
        ledger.sync_begin()


# --- a large file ---


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "LEDGER_BYTES_MAX", 2000)


@pytest.mark.usefixtures("small")
def test_a_snapshot_that_cannot_be_made_stops_nothing(disk: SimDisk) -> None:
    ledger = Ledger.create(disk, "data", NODE)
    disk.inject(Fault("write", path_part="ledger.tmp", times=0))
    for epoch in range(100):
        ledger.put(ORDERS, entry(epoch))
        ledger.sync()
    assert ledger.synced_number == 100
    assert disk.size(FILE) > 4000
    disk.faults.clear()
    assert reopened(disk).replicas == {ORDERS: entry(99)}


@pytest.mark.usefixtures("small")
def test_a_replacement_that_may_be_undone_stops_the_ledger(disk: SimDisk) -> None:
    ledger = Ledger.create(disk, "data", NODE)
    disk.inject(Fault("sync_directory"))

    def change_until_it_is_replaced() -> None:
        for epoch in range(100):
            ledger.put(ORDERS, entry(epoch))
            ledger.sync()

    with pytest.raises(LedgerStopped):
        change_until_it_is_replaced()


# --- what is corrupt ---


def written(disk: SimDisk, turns: int = 6) -> bytes:
    ledger = Ledger.create(disk, "data", NODE)
    for epoch in range(1, turns):
        ledger.put(ORDERS, entry(epoch))
        ledger.sync()
    return disk.content(FILE)


def test_a_missing_ledger_is_not_an_empty_one(disk: SimDisk) -> None:
    with pytest.raises(LedgerLost) as caught:
        Ledger.open(disk, "data")
    assert caught.value.is_missing


def test_any_flipped_bit_makes_the_ledger_unreadable(disk: SimDisk) -> None:
    """But in the last record: nothing behind it has counted it."""
    content = written(disk)
    last = content.rindex(MAGIC)
    refused = 0
    for position in range(len(content)):
        changed = bytearray(content)
        changed[position] ^= 1 << position % 8
        disk.replace(FILE, bytes(changed))
        if position >= last:
            assert Ledger.open(disk, "data").replicas == {ORDERS: entry(4)}
            continue
        with pytest.raises((LedgerLost, LedgerUnreadable)) as caught:
            Ledger.open(disk, "data")
        refused += 1
        assert caught.value.where == FILE
        assert disk.content(FILE) == bytes(changed)  # it is evidence
    assert refused == last


def test_a_clean_stop_covers_the_last_record_too(disk: SimDisk) -> None:
    written(disk)
    ledger = Ledger.open(disk, "data")
    ledger.put(ORDERS, entry(50))
    ledger.close()
    content = disk.content(FILE)
    last_but_one = content.rindex(MAGIC, 0, content.rindex(MAGIC))
    disk.flip(FILE, last_but_one + 40, 2)
    with pytest.raises(LedgerLost):
        Ledger.open(disk, "data")


def test_a_torn_last_record_is_ordinary_and_removed(disk: SimDisk) -> None:
    content = written(disk)
    last = content.rindex(MAGIC)
    for end in range(last, len(content)):
        disk.replace(FILE, content[:end])
        ledger = Ledger.open(disk, "data")
        assert ledger.replicas == {ORDERS: entry(4)}
        assert disk.size(FILE) == last
        ledger.put(ORDERS, entry(7))
        ledger.sync()
        assert reopened(disk).replicas == {ORDERS: entry(7)}


@pytest.mark.parametrize("content", [b"", b"PSL1", bytes(200)])
def test_a_file_without_a_snapshot_is_lost(disk: SimDisk, content: bytes) -> None:
    put(disk, FILE, content)
    with pytest.raises(LedgerLost):
        Ledger.open(disk, "data")


def test_records_out_of_sequence_are_lost_ones(disk: SimDisk) -> None:
    written(disk, 2)
    content = disk.content(FILE)
    second = encode_record([encode_node(NODE)], 1, len(content))
    put(disk, FILE, content + second)
    with pytest.raises(LedgerLost, match="record 1 stands at"):
        Ledger.open(disk, "data")
    put(disk, FILE, second)
    with pytest.raises(LedgerLost, match="does not begin with a snapshot"):
        Ledger.open(disk, "data")


@pytest.mark.parametrize(
    "newer",
    [
        b"PSL2" + bytes(100),
        encode_record([ENTRY.pack(9, 0, 0)], 0, 0, is_snapshot=True),
        encode_record([ENTRY.pack(1, 3, 0)], 0, 0, is_snapshot=True),
    ],
)
def test_a_ledger_of_a_newer_release_is_left_alone(disk: SimDisk, newer: bytes) -> None:
    put(disk, FILE, newer)
    with pytest.raises(LedgerUnreadable, match="newer release"):
        Ledger.open(disk, "data")
    assert disk.content(FILE) == newer


def test_a_lost_ledger_is_kept_and_another_begun_by_decision_alone(disk: SimDisk) -> None:
    content = bytearray(written(disk))
    content[50] ^= 1
    disk.replace(FILE, bytes(content))
    with pytest.raises(LedgerLost):
        Ledger.open(disk, "data")
    ledger = Ledger.begin_again(disk, "data", NODE._replace(generation=9))
    assert (ledger.node.generation, ledger.replicas) == (9, {})
    assert disk.content(f"{FILE}.lost") == bytes(content)
    disk.crash(random.Random(1))
    assert Ledger.open(disk, "data").node.generation == 9


def test_verify_checks_the_ledger(disk: SimDisk) -> None:
    content = written(disk)
    disk.mkdir("data/topics")
    put(disk, "data/node.json", b'{"version":1,"crc32c":"00000000"}')
    reports = {}
    for name, data in {
        "sound": content,
        "torn": content[:-3],
        "corrupt": content[:50] + b"\xff" + content[51:],
    }.items():
        disk.replace(FILE, data)
        report = verify(disk, find(disk, "data"))
        reports[name] = (
            [one.reason for one in report.findings if one.path == FILE],
            [one.reason for one in report.notes if one.path == FILE],
        )
    assert reports["sound"] == ([], [])
    assert reports["torn"] == ([], ["an unfinished write"])
    assert "first record is not intact" in reports["corrupt"][0][0]
    assert verify(disk, find(disk, FILE)).findings != []


class History:
    """Changes, turns, large files and power losses. After each loss the ledger is as it was at the
    end of some turn, and of none before the last one that was synced."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk = durable_disk()
        self.ledger = Ledger.create(self.disk, "data", NODE)
        self.job: LedgerJob | None = None
        self.states = [self._state()]  # the synced one, and those that may be on the disk

    def _state(self) -> tuple[LedgerNode, dict[ReplicaKey, ReplicaEntry]]:
        return self.ledger.node, dict(self.ledger.replicas)

    def change(self) -> None:
        ledger, rng = self.ledger, self.rng
        key = ReplicaKey("topic", rng.randrange(6))
        old = ledger.replica(key)
        if rng.random() < 0.1:
            ledger.drop(key)
        elif rng.random() < 0.2:
            ledger.set_node(ledger.node._replace(revision=ledger.node.revision + 1))
        else:
            epoch = (old.epoch if old else 0) + rng.randrange(3)
            ledger.put(key, ReplicaEntry(epoch, rng.randbytes(rng.choice((0, 5, 700)))))

    def begin(self) -> None:
        if self.job is None:
            state = self._state()
            self.job = self.ledger.sync_begin()
            if self.job is not None:
                self.states.append(state)

    def end(self) -> None:
        if self.job is not None:
            self.job.run()
            self.ledger.sync_end(self.job, None)
            self.job = None
            self.states = self.states[-1:]

    def refuse(self) -> None:
        self.disk.inject(Fault("write", path_part="ledger", written=self.rng.random()))
        with contextlib.suppress(WriteRefused):
            self.begin()
        self.disk.faults.clear()

    def stop(self) -> None:
        self.end()
        state = self._state()
        self.ledger.close()
        self.ledger = Ledger.open(self.disk, "data")
        assert self._state() == state
        self.states = [state]

    def crash(self) -> None:
        if self.job is not None and self.rng.random() < 0.5:
            self.disk.inject(Fault(self.rng.choice(("sync", "sync_directory", "rename"))))
            try:
                self.job.run()
            except OSError:
                self.disk.faults.clear()
        self.job = None
        self.disk.crash(self.rng)
        self.ledger = Ledger.open(self.disk, "data")
        assert self._state() in self.states
        self.states = [self._state()]

    def play(self) -> None:
        steps = {
            self.change: 30,
            self.begin: 15,
            self.end: 15,
            self.refuse: 2,
            self.crash: 6,
            self.stop: 2,
        }
        for step in self.rng.choices(list(steps), list(steps.values()), k=120):
            step()
        self.crash()


@pytest.mark.usefixtures("small")
@each("first_seed", range(0, 300, 100))
def test_no_power_loss_takes_back_what_was_synced(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 100):
        try:
            History(seed).play()
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
