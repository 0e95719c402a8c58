"""The bytes of a channel journal's frames: fields and rest, as in the table of `frames`.

| kind | | fields | then |
|---|---|---|---|
| 9 | HelloJournal | epoch u32 | |
| 10 | TellPlace | epoch u32, replica u64, place | |
| 11 | AskSnapshot | epoch u32 | |
| 12 | AcknowledgePlace | epoch u32, replica u64, written place, synced place | |
| 13 | SendRecord | epoch u32, place, held place; before u32, crc u32 | payload: the record |
| 14 | SendHeld | epoch u32, held place | |
| 16 | AskSync | epoch u32, place | |

A place is generation u64 and sequence u64. A record is as in the leader's file; how it travels, and
what the last two fields of 13 are, the table of `frames` says. Whether it is sound, and of this
place, the file checks that takes it (`log.followedjournal`): what is not in order is refused there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from penstock.log.fold import Position
from penstock.replica.journalline import (
    AcknowledgePlace,
    AskSnapshot,
    AskSync,
    HelloJournal,
    SendHeld,
    SendRecord,
    TellPlace,
)

JournalFrame = (
    HelloJournal | TellPlace | AskSnapshot | AcknowledgePlace | SendRecord | SendHeld | AskSync
)

# Each begins with the epoch; so many numbers of 8 bytes follow.
_NUMBERS = {9: 0, 10: 3, 11: 0, 12: 5, 13: 4, 14: 2, 16: 2}
_LAYOUTS = {kind: struct.Struct(f">I{count}Q") for kind, count in _NUMBERS.items()}
RECORD_KIND = 13
RECORD_FIELDS_BYTES = _LAYOUTS[RECORD_KIND].size  # those of its payload are not among them
JOURNAL_KINDS = tuple(_LAYOUTS)


def journal_body(frame: JournalFrame) -> tuple[int, bytes]:
    """Kind and fields."""
    match frame:
        case HelloJournal(_, _, epoch):
            return _packed(9, epoch)
        case TellPlace(_, epoch, replica, place):
            return _packed(10, epoch, replica, *place)
        case AskSnapshot(_, epoch):
            return _packed(11, epoch)
        case AcknowledgePlace(_, epoch, replica, written, synced):
            return _packed(12, epoch, replica, *written, *synced)
        case SendRecord(_, _, epoch, place, _, held):
            return _packed(RECORD_KIND, epoch, *place, *held)
        case SendHeld(_, _, epoch, held):
            return _packed(14, epoch, *held)
        case AskSync(_, _, epoch, place):
            return _packed(16, epoch, *place)


def _packed(kind: int, *fields: int) -> tuple[int, bytes]:
    return kind, _LAYOUTS[kind].pack(*fields)


def journal_frame(
    kind: int, node: int, session: int, fields: bytes, record: bytes | bytearray = b""
) -> JournalFrame:
    """Raises ValueError when the fields are not whole, or more follows than there is."""
    layout = _LAYOUTS[kind]
    if len(fields) != layout.size:
        raise ValueError(
            f"a journal's frame of kind {kind} of {len(fields)} bytes, it has {layout.size}"
        )
    return _frame(kind, node, session, layout.unpack(fields), record)


def _frame(
    kind: int, node: int, session: int, fields: Sequence[int], record: bytes | bytearray
) -> JournalFrame:
    match kind, *fields:
        case 9, epoch:
            return HelloJournal(node, session, epoch)
        case 10, epoch, replica, generation, sequence:
            return TellPlace(session, epoch, replica, Position(generation, sequence))
        case 11, epoch:
            return AskSnapshot(session, epoch)
        case 12, epoch, replica, *two:
            return AcknowledgePlace(session, epoch, replica, *_two_places(two))
        case 13, epoch, *two:
            place, held = _two_places(two)
            return SendRecord(node, session, epoch, place, record, held)
    epoch, *numbers = fields
    make = SendHeld if kind == 14 else AskSync
    return make(node, session, epoch, Position(*numbers))


def _two_places(numbers: Sequence[int]) -> tuple[Position, Position]:
    return Position(*numbers[:2]), Position(*numbers[2:])
