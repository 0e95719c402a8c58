"""Idempotent publishing: retries store nothing twice, gaps are seen, and the table is the log's."""

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cases import each, examples
from penstock import limits
from penstock.broker.health import Health
from penstock.broker.partition.appends import Stored
from penstock.broker.partition.idempotent import SEQUENCE_END_MAX, Stamp, is_new
from penstock.broker.partition.producers import Known, ProducerTable, decode_table, read_producers
from penstock.errors import (
    PenstockError,
    ProducerFenced,
    Refused,
    SequenceGap,
    StorageError,
    WriteRefused,
)
from penstock.kernel import decode_bodies, encode_batch
from penstock.log.head import HEAD_BYTES
from penstock.log.partition import PartitionLog
from sim.clock import FakeClock
from sim.disk import Fault, SimDisk

from ..following import NOW_NS, OWNER, PATH, SETTINGS, new_disk
from ..staging import empty, on
from ..tripwire import Tripwire, interrupted, steps_of
from ..world import Start, World, bodies

pytestmark = pytest.mark.usefixtures("quiet")


class Answers:
    def __init__(self) -> None:
        self.answers: list[tuple[PenstockError | None, bool]] = []

    def __call__(self, error: PenstockError | None, where: Stored | None) -> None:
        self.answers.append((error, where is None))
        self.where = where


def send(world: World, sequence: int, *text: bytes, epoch: int = 0, producer: int = 7) -> Answers:
    answers = Answers()
    stamp = Stamp(producer, epoch, sequence)
    world.broker.topic("t").publish_stamped(stamp, list(text), 0, answers)
    world.turns()
    return answers


STORED, REPEATED = [(None, False)], [(None, True)]


def stored(world: World) -> list[bytes]:
    """All that is in the log."""
    log = world.broker.topic("t").leader().log
    found: list[bytes] = []
    for _, batch in log.batches(log.start_offset) if log.written_end else ():
        found += decode_bodies(batch, 0)
    return found


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_repeat_stores_nothing(start: Start, durability: str) -> None:
    world = start(durability=durability)
    consumer = world.consumer("t", "c")
    assert send(world, 0, b"a", b"b").answers == STORED
    assert send(world, 0, b"a", b"b").answers == REPEATED
    assert send(world, 2, b"c").answers == STORED
    assert send(world, 0, b"a", b"b").answers == REPEATED
    assert bodies(consumer.take()) == [b"a", b"b", b"c"]


def test_gaps_overlaps_and_old_epochs(world: World) -> None:
    with pytest.raises(SequenceGap) as gap:
        send(world, 1, b"x")
    assert gap.value.expected == 0
    send(world, 0, b"a", b"b")
    for sequence in (1, 3):
        with pytest.raises(SequenceGap) as gap:
            send(world, sequence, b"x", b"y")
        assert gap.value.expected == 2
    with pytest.raises(SequenceGap) as gap:
        send(world, 2, b"x", epoch=1)
    assert gap.value.expected == 0
    assert send(world, 0, b"c", epoch=1).answers == STORED
    with pytest.raises(ProducerFenced) as fenced:
        send(world, 2, b"x")
    assert fenced.value.epoch == 1
    with pytest.raises(Refused, match="used up"):
        send(world, SEQUENCE_END_MAX, b"x", epoch=1)
    assert stored(world) == [b"a", b"b", b"c"]


def test_a_repeat_waits_for_the_first_attempt(start: Start) -> None:
    world = start(durability="disk")
    send(world, 0, b"a")
    world.threads.held = True
    first, repeat, after = send(world, 1, b"b"), send(world, 1, b"b"), send(world, 2, b"c")
    ordinary = world.publish("t", b"plain")
    assert not first.answers + repeat.answers + after.answers + ordinary.answers
    world.release()
    world.turns()
    assert (first.answers, repeat.answers, after.answers) == (STORED, REPEATED, STORED)
    assert ordinary.stored
    assert sorted(stored(world)) == [b"a", b"b", b"c", b"plain"]


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_failed_write_takes_the_later_ones_along(disk: SimDisk, durability: str) -> None:
    world = on(disk, durability=durability)
    send(world, 0, b"a")
    world.threads.held = True
    if durability == "disk":
        send(world, 0, b"other", producer=8)  # the sync that the next ones wait for
    disk.inject(Fault("write", path_part=".log"))
    answers = [send(world, 1, b"b")]
    if durability == "disk":
        answers += [send(world, 2, b"c"), send(world, 2, b"c")]
    world.release()
    disk.faults.clear()
    assert [one.answers[0][0] is None for one in answers] == [False] * len(answers)
    with pytest.raises(SequenceGap):
        send(world, 2, b"c")
    assert send(world, 1, b"b").answers == STORED
    assert [one for one in stored(world) if one != b"other"] == [b"a", b"b"]


def test_a_snapshot_bounds_what_a_start_reads(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_LOG_COUNT", 5)
    world = start(retain_age_ns=0, retain_bytes=0, segment_bytes_max=500)
    producers = world.broker.topic("t").leader().replica.producers
    send(world, 0, b"first", producer=5)
    for number in range(30):
        send(world, number, b"x" * 50)
        world.pass_ns(limits.SECOND)
    assert producers.floor is not None
    assert producers.floor >= 25
    consumer = world.consumer("t", "c")
    consumer.finish(*consumer.take())
    for _ in range(5):
        world.pass_ns(40 * limits.SECOND)
    assert world.broker.topic("t").leader().log.start_offset > 10
    world = world.killed()
    assert send(world, 0, b"first", producer=5).answers == REPEATED
    assert send(world, 29, b"x").answers == REPEATED
    assert send(world, 30, b"x").answers == STORED


def test_unused_producers_are_forgotten(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_MAX", 2)
    world = start()
    send(world, 0, b"a", producer=1)
    send(world, 0, b"b", producer=2)
    with pytest.raises(Refused, match="2 producers"):
        send(world, 0, b"c", producer=3)
    assert send(world, 1, b"a", producer=1).answers == STORED
    world.clock.pass_ns(limits.PRODUCER_FORGET_NS + 1)
    assert send(world, 0, b"c", producer=3).answers == STORED
    with pytest.raises(SequenceGap):
        send(world, 2, b"a", producer=1)


def test_a_producer_whose_last_batches_are_corrupt_gets_a_gap(disk: SimDisk) -> None:
    world = on(disk)
    for number in range(3):
        send(world, number, b"x" * 100)
    world.publish("t", b"ordinary")
    disk.kill()
    for batch in (1, 2):
        disk.flip("/data/topics/t/0/00000000000000000000.log", HEAD_BYTES + batch * 176 + 100, 0)
    again = on(disk)
    assert "offsets 1 to 2 are corrupt" in again.broker.health
    assert send(again, 0, b"x" * 100).answers == REPEATED
    with pytest.raises(SequenceGap):
        send(again, 3, b"x" * 100)
    assert send(again, 1, b"x" * 100).answers == STORED


# --- interrupted ---


class Retrier:
    """Producers that send again what was not answered, until it is."""

    def __init__(self, disk: Tripwire, durability: str) -> None:
        self.disk = disk
        self.durability = durability
        self.clock = FakeClock()
        self.acknowledged = {1: 0, 2: 0}

    def run(self, upto: int) -> None:
        options = {"durability": self.durability, "segment_bytes_max": 700}
        world = on(self.disk, clock=self.clock, **options)
        while min(self.acknowledged.values()) < upto:
            for producer in (1, 2):
                first = self.acknowledged[producer]
                if first < upto:
                    text = [b"%d-%d" % (producer, first + n) for n in range(2)]
                    answers = send(world, first, *text, producer=producer)
                    assert answers.answers in (STORED, REPEATED)
                    self.acknowledged[producer] = first + 2
            world.publish("t", b"plain")
            world.pass_ns(limits.SECOND)
        self.world = world
        world.broker.close()

    def check(self, upto: int) -> None:
        world = on(self.disk, clock=self.clock)
        found = [one for one in stored(world) if one != b"plain"]
        for producer in (1, 2):
            mine = [one for one in found if one.startswith(b"%d-" % producer)]
            assert mine == [b"%d-%d" % (producer, number) for number in range(upto)]
        world.close()


def retried(steps: Sequence[int], seed: int | None, durability: str = "disk") -> bool:
    retrier = Retrier(empty(Tripwire()), durability)
    ended = interrupted(retrier.disk, steps, seed, lambda: retrier.run(8))
    retrier.run(8)
    retrier.check(8)
    return ended


@pytest.mark.parametrize(
    ("seed", "durability", "least"),
    [(None, "disk", 60), (1, "disk", 60), (2, "disk", 60), (3, "disk", 60), (None, "os", 40)],
    ids=["killed", "power 1", "power 2", "power 3", "killed os"],
)
def test_ended_at_every_step_and_begun_again(
    seed: int | None, durability: str, least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "PRODUCERS_LOG_COUNT", 3)
    assert steps_of(lambda steps: retried(steps, seed, durability)) > least


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(st.integers(1, 90), min_size=2, max_size=5), st.integers(0, 1 << 20))
def test_interrupted_again_and_again(steps: list[int], seed: int) -> None:
    retried(steps, seed)


@pytest.mark.parametrize("seed", range(20))
def test_the_table_never_knows_more_than_the_log(
    seed: int, disk: SimDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power loss with durability `os` takes acknowledged messages back; the producer hears so."""
    monkeypatch.setattr(limits, "PRODUCERS_LOG_COUNT", 1)
    rng = random.Random(seed)
    options = {"durability": "os", "sync_timeout_ns": 3 * limits.SECOND}
    world = on(disk, **options)
    for number in range(rng.randrange(12)):
        send(world, number, b"%d" % number)
        if rng.random() < 0.7:
            world.pass_ns(limits.SECOND)
    disk.crash(rng)
    again = on(disk, **options)
    with pytest.raises(SequenceGap) as gap:
        send(again, 100, b"x")
    found = stored(again)
    assert found == [b"%d" % number for number in range(gap.value.expected)]


CALLS = ["create", "write", "sync", "rename", "sync_directory"]


@pytest.mark.parametrize("call", CALLS)
def test_a_failing_write_of_the_first_table_is_shown_until_it_succeeds(
    simulate: Start, call: str
) -> None:
    world = simulate()
    world.broker.topic("t")
    world.pass_ns(limits.SECOND)  # nothing else is left to do for the topic
    world.fail(call, "producers" if call != "sync_directory" else "topics/t/0")
    with pytest.raises(WriteRefused):
        send(world, 0, b"a")
    for _ in range(3):
        assert "topic t: " in world.broker.health
        assert "the table of producers cannot be written" in world.broker.health
        world.pass_ns(limits.SECOND)
    world.disk.faults.clear()
    for _ in range(3):
        world.pass_ns(limits.SECOND)  # though nobody publishes
    assert world.broker.health == "OK"
    assert send(world, 0, b"a").answers == STORED
    world = world.killed()
    assert send(world, 0, b"a").answers == REPEATED
    assert stored(world) == [b"a"]


# --- the table of producers of one replica of several, on real files ---


PRODUCER = 7


class Replica:
    """A log with batches of one message each, and its table."""

    def __init__(self) -> None:
        self.disk = new_disk()
        self.log = PartitionLog.create(self.disk, PATH, SETTINGS, OWNER)
        self.table = self.opened(0)
        self.table.begin()

    def opened(self, committed_end: int) -> ProducerTable:
        syncs = SimpleNamespace(wait_for=lambda is_busy: None)  # no thread here writes the file
        clock = FakeClock()
        context: Any = SimpleNamespace(disk=self.disk, health=Health(), syncs=syncs, clock=clock)
        topic = SimpleNamespace(context=context, touch=lambda: None)
        replica: Any = SimpleNamespace(topic=topic, label="orders", log=self.log, kept=True)
        return ProducerTable(replica, committed_end)

    def write(self, *sequences: int, producer: int = PRODUCER, epoch: int = 1) -> None:
        for sequence in sequences:
            offset = self.log.written_end
            base_id = (NOW_NS >> 10) + offset
            data = encode_batch([b"x"], offset, base_id, NOW_NS, 0, epoch, producer, 0, sequence)
            self.log.write([data], len(data), offset, 1, base_id, base_id, NOW_NS, (), epoch, 0)
        self.log.sync()

    @property
    def next_sequence(self) -> int:
        known = self.table.find(PRODUCER)
        return known.next_sequence if known is not None else 0


@pytest.fixture
def replica() -> Replica:
    return Replica()


def test_a_start_folds_no_more_than_is_committed(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table = replica.opened(1)
    assert replica.next_sequence == 1
    replica.table.learn(3)
    assert replica.next_sequence == 3


def test_a_cut_takes_what_was_above_it(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table.learn(1)
    replica.log.cut(2)
    assert replica.table.cut(2)
    replica.table.learn(3)
    assert replica.next_sequence == 2
    replica.write(2)
    replica.table.learn(3)
    replica.table.learn(1)  # what an older frame says
    assert replica.next_sequence == 3
    assert not replica.table.cut(2)


def test_the_file_does_not_reach_above_the_committed_end(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table.learn(2)
    replica.table.close(2)
    file = read_producers(replica.disk, PATH)
    assert file is not None
    assert (file.end, [entry[2] for entry in file.producers]) == (2, [2])


def test_restored_batches_enter_the_producer_table(replica: Replica) -> None:
    """Else a retry of it is stored again, or the next publish of its producer is a gap."""
    replica.write(0, 1)
    headers = [header for header, _ in replica.log.batches(0)]
    (segment,) = replica.log.segments
    corrupt = b"".join(bytes(data) for _, data in replica.log.batches(1))
    place = replica.disk.content(segment.path).find(corrupt)
    replica.disk.flip(segment.path, place + len(corrupt) - 1, 2)
    replica.write(0, producer=PRODUCER + 1)
    table = replica.opened(3)
    assert table.find(PRODUCER) == Known(0, 1, NOW_NS)
    table.restored(headers)
    assert table.find(PRODUCER) == Known(0, 2, NOW_NS)
    assert table.find(PRODUCER + 1) == Known(0, 1, NOW_NS)


def test_a_cut_below_the_committed_end_rebuilds_the_table(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.table.learn(3)
    replica.table.close(3)
    replica.log.cut(1, unclean=True)
    assert not replica.table.cut(1)
    assert replica.next_sequence == 1
    replica.table = replica.opened(1)
    assert replica.next_sequence == 1


def learner(start: int) -> Replica:
    replica = Replica()
    replica.log.reset(start)
    replica.table = replica.opened(start)
    return replica


def test_a_learner_receives_entries_whose_batches_are_removed(replica: Replica) -> None:
    replica.write(0, 1, 2)
    replica.write(0, producer=8)
    replica.table.learn(4)
    other = learner(3)  # the leader's log begins there now
    other.write(0, producer=8)
    other.table.learn(4)
    assert other.table.find(PRODUCER) is None
    other.table.install(replica.table.snapshot())
    assert other.next_sequence == 3
    other.write(3)
    other.table.learn(5)
    assert other.next_sequence == 4
    other.table = other.opened(5)
    assert other.next_sequence == 4


@pytest.mark.parametrize(
    ("start", "records", "reason"),
    [
        (3, 0, r"a table that ends at 2 was sent: the log here goes from 3 to 3, synced"),
        (0, 1, r"a table that ends at 2 was sent: the log here goes from 0 to 1, synced"),
    ],
)
def test_a_table_with_a_gap_or_newer_entries_is_refused(
    replica: Replica, start: int, records: int, reason: str
) -> None:
    replica.write(0, 1)
    replica.table.learn(2)
    other = learner(start) if start else Replica()
    other.write(*range(records))
    with pytest.raises(StorageError, match=reason):
        other.table.install(replica.table.snapshot())
    assert other.next_sequence == 0


def test_a_corrupt_table_is_refused(replica: Replica) -> None:
    replica.write(0)
    replica.table.learn(1)
    sent = replica.table.snapshot()
    assert decode_table(sent).end == 1
    for position in range(len(sent)):
        changed = bytearray(sent)
        changed[position] ^= 1
        with pytest.raises(StorageError, match="a table that was sent is corrupt"):
            replica.table.install(bytes(changed))
    assert replica.next_sequence == 1


def test_a_table_that_cannot_be_written_is_not_installed(replica: Replica) -> None:
    replica.write(0, 1)
    replica.table.learn(2)
    other = Replica()
    other.write(0, 1, producer=PRODUCER + 1)
    other.disk.inject(Fault("write", path_part="producers"))
    with pytest.raises(StorageError, match="cannot be written"):
        other.table.install(replica.table.snapshot())
    assert other.next_sequence == 0
    other.table.install(replica.table.snapshot())
    assert other.next_sequence == 2


# --- what a publish is, by what is committed and what is not yet ---


KNOWN = Known(3, 10, 0)  # committed: 0 to 9 of epoch 3
COMMITTED, PENDING = (3, 10), (3, 14)  # 10 to 13 are above the committed end


@each(
    ("last", "sequence", "count", "new", "stored"),
    [
        ((3, 0), 0, 5, True, True),
        (COMMITTED, 10, 1, True, False),
        (COMMITTED, 9, 1, False, True),
        (COMMITTED, 0, 10, False, True),
        (PENDING, 14, 1, True, False),
        (PENDING, 13, 1, False, False),
        (PENDING, 10, 4, False, False),
        (PENDING, 8, 4, False, False),  # safe when the last of them is
        (PENDING, 8, 2, False, True),
    ],
)
def test_verdicts_on_a_publish(
    last: tuple[int, int], sequence: int, count: int, new: bool, stored: bool
) -> None:
    assert is_new(last, 3, sequence, count) is new
    assert KNOWN.covers(3, sequence + count) is stored
