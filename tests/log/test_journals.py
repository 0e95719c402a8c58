"""Channel journals from outside: which records count, and what ends their row."""

from __future__ import annotations

import struct

from cases import each
from penstock.kernel import crc32c
from penstock.log.fold import (
    FLAG_SNAPSHOT,
    Entry,
    Group,
    cursor_entry,
    encode_record,
    generation_of,
)
from penstock.log.journals import RECORD_BYTES, read_journal

GROUPS = [Group(1, cursor_entry(Entry.CURSOR, 5, 9)), Group(2, cursor_entry(Entry.CURSOR, 0, 9))]
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


def test_a_row_of_records() -> None:
    journal = read_journal(SNAPSHOT + change(1) + change(2))
    assert (journal.problem, journal.is_torn, journal.generation) == ("", False, 3)
    assert [(r.position, r.is_snapshot, r.sequence, r.entries) for r in journal.records] == [
        (0, True, 0, 2),
        (len(SNAPSHOT), False, 1, 1),
        (len(SNAPSHOT) + len(change(1)), False, 2, 1),
    ]


def test_an_empty_file_has_no_generation() -> None:
    journal = read_journal(b"")
    assert (journal.records, journal.problem, journal.generation) == ([], "", 0)


@each(
    ("record", "reason"),
    [
        (b"PSJ2" + change(1)[4:], "no record begins here"),
        (forged(change(1), claimed=RECORD_BYTES - 1), "a record cannot be 39 bytes long"),
        (change(1)[:-1] + b"\xff", "the checksum of the record is wrong"),
        (forged(change(1), flags=4), "the record's parts do not fit its length"),
        (forged(change(1), cut=1), "the record's parts do not fit its length"),
        (forged(change(1), cut=33), "the record's parts do not fit its length"),
        (SNAPSHOT, "a journal has one snapshot, at its front"),
        (change(2), "sequence 2 follows 0"),
        (change(1, generation=4), "generation 4 in a file of 3"),
        (change(1, generation=generation_of(7, 0)), "generation 7.0 in a file of 3"),
    ],
)
def test_what_ends_the_row(record: bytes, reason: str) -> None:
    assert problem(SNAPSHOT + record) == (1, reason, False)


def test_a_journal_that_begins_with_a_change() -> None:
    assert problem(change(0)) == (0, "a journal has one snapshot, at its front", False)


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


def test_a_generation_of_a_cluster_is_shown_with_its_epoch() -> None:
    journal = read_journal(encode_record(FLAG_SNAPSHOT, generation_of(6, 2), 0, 9, GROUPS))
    assert (journal.records[0].epoch, journal.records[0].generation) == (6, 2)
    assert journal.generation == generation_of(6, 2)
    assert read_journal(SNAPSHOT).records[0][3:5] == (0, 3)
