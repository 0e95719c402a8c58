"""Channel journals from outside: which records count, and what ends their row."""

import contextlib
import random
import struct
from collections.abc import Callable

import pytest

from cases import each
from penstock.kernel import crc32c
from penstock.log.errors import JournalRefused
from penstock.log.fold import (
    FLAG_SNAPSHOT,
    PARTITION,
    EntryKind,
    Group,
    Position,
    corrupt_generation,
    cursor_entry,
    decode_record,
    encode_record,
    generation_of,
    start_entry,
)
from penstock.log.follower_journal import NOTHING, FollowedJournal
from penstock.log.journal_file import read_journal
from sim.disk import Fault, SimDisk

from .helpers import durable_disk

GROUPS = [
    Group(1, cursor_entry(EntryKind.CURSOR, 5, 9)),
    Group(2, cursor_entry(EntryKind.CURSOR, 0, 9)),
]
SNAPSHOT = encode_record(FLAG_SNAPSHOT, 3, 0, 9, GROUPS)


def change(sequence: int, generation: int = 3) -> bytes:
    return encode_record(0, generation, sequence, 9, GROUPS[:1])


def forged(record: bytes, *, flags: int = 0, cut: int = 0, claimed: int | None = None) -> bytes:
    """The record with other fields and a checksum that fits them."""
    body = record[: len(record) - cut]
    length = len(body) if claimed is None else claimed
    covered = struct.pack("<II", length, flags) + body[16:]
    return body[:4] + struct.pack("<I", crc32c(covered)) + covered


def problem(data: bytes) -> tuple[int, str, bool]:
    """How many records count, and why no more; whether an append was cut short."""
    journal = read_journal(data)
    assert journal.end_position == sum(record.length for record in journal.records)
    return len(journal.records), journal.problem, journal.is_torn


@each(
    ("record", "reason"),
    [
        (b"PSJ2" + change(1)[4:], "no record begins here"),
        (forged(change(1), claimed=39), "a record cannot be 39 bytes long"),
        (change(1)[:-1] + b"\xff", "the checksum of the record is wrong"),
        (forged(change(1), flags=4), "it says of itself that it is synced"),
        (forged(change(1), cut=1), "the record's parts do not fit its length"),
        (forged(change(1), cut=33), "the record's parts do not fit its length"),
        (SNAPSHOT, "a journal has one snapshot, at its front"),
        (change(2), "sequence 2 follows 0"),
        (change(1, generation=4), "generation 4 in a file of 3"),
        (change(1, generation=generation_of(7, 0)), "generation 7.0 in a file of 3"),
    ],
)
def test_records_that_end_the_chain(record: bytes, reason: str) -> None:
    assert problem(SNAPSHOT + record) == (1, reason, False)


def test_an_append_that_was_cut_short_at_any_byte() -> None:
    whole = change(1)
    for length in range(1, len(whole)):
        torn = (1, "the file ends inside a record", True)
        assert problem(SNAPSHOT + whole[:length]) == torn, length


def test_a_record_that_is_whole_but_for_its_length_is_not_torn() -> None:
    longer = bytearray(change(1))
    longer[8:12] = struct.pack("<I", len(longer) + 8)
    assert problem(SNAPSHOT + longer) == (1, "the file ends inside a record", False)
    followed = SNAPSHOT + change(1)[:-10] + change(2)
    assert problem(followed)[::2] == (1, False)  # more was appended: that is no cut


# --- A follower's journal: its leader's records on its own disk, through every stop ---


HISTORIES = 1000
HISTORIES_PER_TEST = 100
STEPS = 60


class LeaderBooks:
    """What a leader says: its only channel has a cursor, and each record moves it."""

    def __init__(self, epoch: int = 6) -> None:
        self.generation = generation_of(epoch, 0)
        self.sequence = -1
        self.at = 0
        self.text: dict[Position, int] = {NOTHING: 0}

    def record(self) -> bytes:
        """With a count of records that are synced on the leader's disk: all of them."""
        self.sequence += 1
        self.at += 1
        self.text[Position(self.generation, self.sequence)] = self.at
        flags = FLAG_SNAPSHOT if self.sequence == 0 else 0
        groups = [
            Group(1, cursor_entry(EntryKind.CURSOR, self.at, self.at)),
            Group(PARTITION, start_entry(self.at // 2)),
        ]
        synced = self.sequence
        return encode_record(flags, self.generation, self.sequence, self.at, groups, synced)

    def snapshot(self, epoch: int | None = None) -> bytes:
        self.generation += 1
        if epoch is not None:
            self.generation = generation_of(epoch, 0)
        self.sequence = -1
        return self.record()


def disk_and_journal() -> tuple[SimDisk, FollowedJournal]:
    disk = durable_disk()
    return disk, FollowedJournal.open(disk, "data")


def followed(records: int) -> tuple[SimDisk, FollowedJournal, LeaderBooks]:
    disk, journal = disk_and_journal()
    books = LeaderBooks()
    journal.replace(books.snapshot())
    for _ in range(records - 1):
        journal.append(books.record())
    return disk, journal, books


def at(journal: FollowedJournal) -> int:
    folded = journal.folded()
    return folded.channels[1].next if folded is not None else 0


def test_records_of_a_leader_are_folded_and_survive_a_restart() -> None:
    disk, journal, books = followed(5)
    before = journal.folded()
    assert (journal.position, at(journal)) == ((books.generation, 4), 5)
    assert journal.start_offset == 2
    journal.close()
    again = FollowedJournal.open(disk, "data")
    assert again.folded() == before
    assert again.position == journal.position
    again.append(books.record())
    assert at(again) == 6
    again.validate()


def test_the_leaders_count_of_synced_records_is_not_taken_over() -> None:
    """On this disk nothing is synced: a power loss that takes a record but not the one behind it
    is no rot."""
    disk, _, books = followed(3)
    data = disk.content("data/channels.0")
    first = decode_record(data, 0)
    assert first is not None
    for position in (0, first.length):
        found = decode_record(data, position)
        assert found is not None
        assert found.synced_records == 0
    holed = data[: first.length] + bytes(first.length) + data[2 * first.length :]
    assert not corrupt_generation(holed)
    books.sequence = 1
    leaders = data[: first.length] + bytes(first.length) + books.record()
    assert corrupt_generation(leaders)  # as it would be with the leader's count


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda books, record: record[:-1], "bytes that are not one intact record"),
        (lambda books, record: record + b"\0", "bytes that are not one intact record"),
        (lambda books, record: books.record(), "record 6.1/4 does not follow 6.1/2"),
        (lambda books, record: books.snapshot(), "record 6.2/0 does not follow 6.1/2"),
    ],
)
def test_a_record_out_of_sequence_is_refused(
    change: Callable[[LeaderBooks, bytes], bytes], fault: str
) -> None:
    disk, journal, books = followed(3)
    before = disk.content("data/channels.0")
    with pytest.raises(JournalRefused, match=fault):
        journal.append(change(books, books.record()))
    assert disk.content("data/channels.0") == before
    assert at(journal) == 3


@pytest.mark.parametrize("epoch", [5, 6])
def test_a_snapshot_that_is_not_newer_is_refused(epoch: int) -> None:
    _, journal, books = followed(2)
    older = LeaderBooks(epoch).snapshot()
    with pytest.raises(JournalRefused, match=r"is no snapshot of a generation after 6\.1"):
        journal.replace(older)
    with pytest.raises(JournalRefused, match="is no snapshot of a generation after"):
        journal.replace(books.record())
    journal.replace(books.snapshot(epoch=7))
    assert journal.position == (generation_of(7, 0), 0)


def test_a_corrupt_journal_is_replaced() -> None:
    disk, journal, books = followed(3)
    journal.files.sync()
    journal.append(books.record())
    journal.close()
    data = bytearray(disk.content("data/channels.0"))
    data[3 * len(data) // 4 - 1] ^= 1  # in the third record
    disk.replace("data/channels.0", bytes(data))
    journal = FollowedJournal.open(disk, "data")
    assert journal.position == NOTHING
    assert at(journal) == 2
    assert "is corrupt, and 1 intact ones follow" in journal.files.corrupt
    with pytest.raises(JournalRefused, match="does not follow 0/0"):
        journal.append(books.record())
    journal.replace(books.snapshot())
    assert at(journal) == books.at
    assert not journal.files.corrupt


class History:
    """A follower and its books: what it has reported as written, and as synced."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disk, self.journal = disk_and_journal()
        self.books = LeaderBooks()
        self.written = self.synced = NOTHING

    def play(self) -> None:
        for _ in range(STEPS):
            step = self.rng.choice(
                (self.follow, self.follow, self.follow, self.renew, self.sync, self.fail, self.stop)
            )
            step()
            self.check()

    def follow(self) -> None:
        """One more record, or a snapshot where that does not help."""
        books, journal = self.books, self.journal
        if journal.position != (books.generation, books.sequence):
            self.renew()
            return
        with contextlib.suppress(OSError):
            journal.append(books.record())
            self.note_written()

    def renew(self) -> None:
        """The leader begins a generation, or there is another leader."""
        epoch = (self.books.generation >> 32) + 1 if self.rng.random() < 0.3 else None
        with contextlib.suppress(OSError):
            self.journal.replace(self.books.snapshot(epoch))
            self.note_written()

    def note_written(self) -> None:
        self.written = max(self.written, self.journal.position)

    def sync(self) -> None:
        self.journal.files.sync()
        self.synced = max(self.synced, self.journal.synced)

    def fail(self) -> None:
        call = self.rng.choice(("write", "truncate", "create"))
        self.disk.inject(Fault(call, written=self.rng.random()))  # type: ignore[arg-type]

    def stop(self) -> None:
        """By a kill or a loss of power, perhaps in the middle of a beginning."""
        if self.rng.random() < 0.3:
            self.fail()
            self.renew()
        if self.rng.random() < 0.5:
            self.disk.kill()
        else:
            self.disk.crash(self.rng)
            self.written = self.synced
        self.disk.faults.clear()
        self.journal = FollowedJournal.open(self.disk, "data")
        found = self.journal.files.written
        assert found >= self.written, f"{found} of {self.written}"
        self.written = found

    def check(self) -> None:
        self.journal.validate()
        position = self.journal.files.written
        if not self.journal.files.broken:
            assert at(self.journal) == self.books.text[position]
        assert not self.journal.files.corrupt


@each("first", range(0, HISTORIES, HISTORIES_PER_TEST))
def test_no_reported_position_is_lost_in_a_thousand_histories(first: int) -> None:
    for seed in range(first, first + HISTORIES_PER_TEST):
        history = History(seed)
        try:
            history.play()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
