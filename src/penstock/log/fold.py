"""The channel journal's bytes: records and entries, and their sum.

Pure functions over the tables of `docs/formats.md`. `fold` is what recovery believes:

- A file counts only when its first record is whole and says that it is a snapshot.
- Records count in sequence. The first one that is short, damaged, out of sequence or of another
  generation ends the file. A file that does not end just there is called torn, and then nothing may
  be appended to it, because intact records that lie behind the tear could join on again.
- Each record says how many of its file's records were known to be on the disk when it was written.
  An intact one that counts the record which ended the file shows that this one is corrupt, and what
  those behind it say is lost. Without such a witness a power loss took it, as it may take any write
  that was not synced and leave later ones: that is ordinary.
- An entry says what is now so, not what to do, except for `reset`, which forgets. So a cursor that
  overtakes ranges makes them moot, and a stray that is gone is done at its offset.
- A generation is an epoch, in the upper half, and a number: one integer, so what a leader of a
  higher epoch has begun is newer than all that was before it. On a node by itself the epoch is 0.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from penstock.kernel import StrayRecord, crc32c
from penstock.kernel.layout import JOURNAL_ENTRY

MAGIC = b"PSJ1"
RECORD = struct.Struct("<4sIIIQQQ")  # magic, crc, length, flags, generation, sequence, handed end
GROUP = struct.Struct("<II")  # channel number, entries
ENTRY = JOURNAL_ENTRY
FLAG_SNAPSHOT = 1
SYNCED_SHIFT = 1  # the other bits of the flags: how many records of the file were synced before
SYNCED_MAX = 2**31 - 1
CRC_FROM = 8  # the checksum covers all behind itself
_FLAGS_AT = 12
PARTITION = 0  # in the place of a channel's number: no channel that is kept has it
_EPOCH_SHIFT = 32  # in a generation; below it is the number
_NUMBER_MASK = (1 << _EPOCH_SHIFT) - 1
_MERGE_FROM = 64  # finished ranges of a channel, before merging them can pay


class EntryKind(IntEnum):
    CURSOR = 1
    FINISHED = 2
    STRAY = 3
    GONE = 4
    RESET = 5
    SEARCHED = 6
    START = 7  # of the log, as its leader has decided; in the group `PARTITION`


class Group(NamedTuple):
    number: int
    entries: bytes


class JournalRecord(NamedTuple):
    length: int
    flags: int
    synced_records: int
    generation: int
    sequence: int
    handed_end: int
    groups: list[Group]


class Position(NamedTuple):
    """One record among all that were ever written; also the progress of a journal."""

    generation: int
    sequence: int


class ChannelState(NamedTuple):
    """The arguments of `Window.restore`, and the progress of the search for delayed messages."""

    low: int
    next: int
    finished: tuple[tuple[int, int], ...]
    strays: tuple[StrayRecord, ...]
    searched: int = 0  # delayed messages below it are strays, or done: set behind `restore`


class Folded(NamedTuple):
    generation: int
    sequence: int  # of the next record
    end: int  # position of the next record
    torn: bool  # the file does not end cleanly at `end`
    lost_records: int  # intact ones behind `end`, if the record there is corrupt
    handed_end: int
    channels: dict[int, ChannelState]
    start_offset: int = 0  # all below it may be removed by every replica


@dataclass(slots=True)
class _Channel:
    low: int = 0
    next: int = 0
    finished: list[tuple[int, int]] = field(default_factory=list)
    strays: dict[int, StrayRecord] = field(default_factory=dict)
    searched: int = 0
    merge_at: int = _MERGE_FROM

    def apply(self, entries: bytes) -> None:
        self._apply(entries)
        if len(self.finished) >= self.merge_at:  # a follower applies records for hours
            self.finished = merged(self.finished)
            self.merge_at = max(_MERGE_FROM, 2 * len(self.finished))

    def _apply(self, entries: bytes) -> None:
        for kind, state, attempts, _reserved, a, b, id in ENTRY.iter_unpack(entries):
            if kind == EntryKind.CURSOR:
                self.low, self.next = a, b
            elif kind == EntryKind.FINISHED:
                self.finished.append((a, b))
            elif kind == EntryKind.STRAY:
                self.strays[id] = StrayRecord(a, id, attempts, state, b)
            elif kind == EntryKind.GONE:
                self.strays.pop(id, None)
                self.finished.append((a, a + 1))
            elif kind == EntryKind.RESET:
                self.low, self.next = a, b
                self.finished.clear()
                self.strays.clear()
                self.searched = 0
            elif kind == EntryKind.SEARCHED:
                self.searched = a

    def state(self) -> ChannelState:
        strays = self.strays.values()
        return normalised(self.low, self.next, self.finished, strays, self.searched)


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same offsets in as few ranges as possible, rising."""
    found: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if end <= start:
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return found


class Folding:
    """The sum of records so far, one record after the other: so a follower can lead at once."""

    def __init__(self) -> None:
        self.handed_end = 0
        self.start_offset = 0
        self._channels: dict[int, _Channel] = {}

    def apply(self, handed_end: int, groups: Iterable[Group]) -> None:
        self.handed_end = handed_end
        for number, entries in groups:
            if number == PARTITION:
                self._apply_to_partition(entries)
            else:
                self._channels.setdefault(number, _Channel()).apply(entries)

    def _apply_to_partition(self, entries: bytes) -> None:
        for kind, _, _, _, offset, _, _ in ENTRY.iter_unpack(entries):
            if kind == EntryKind.START:
                self.start_offset = max(self.start_offset, offset)

    def channels(self) -> dict[int, ChannelState]:
        return {number: channel.state() for number, channel in self._channels.items()}

    def folded(
        self, following: Position, end: int, torn: bool = False, lost_records: int = 0
    ) -> Folded:
        """In the form of a file with these records; `following` would be its next record."""
        return Folded(
            *following, end, torn, lost_records, self.handed_end, self.channels(), self.start_offset
        )


def generation_of(epoch: int, number: int) -> int:
    return (epoch << _EPOCH_SHIFT) | number


def epoch_of(generation: int) -> int:
    return generation >> _EPOCH_SHIFT


def number_of(generation: int) -> int:
    return generation & _NUMBER_MASK


def named(generation: int) -> str:
    """For messages: with the epoch in front, if there is one."""
    epoch, number = epoch_of(generation), number_of(generation)
    return f"{epoch}.{number}" if epoch else str(number)


def start_entry(offset: int) -> bytes:
    return ENTRY.pack(EntryKind.START, 0, 0, 0, offset, 0, 0)


def cursor_entry(kind: EntryKind, low: int, next_offset: int) -> bytes:
    return ENTRY.pack(kind, 0, 0, 0, low, next_offset, 0)


def searched_entry(offset: int) -> bytes:
    return ENTRY.pack(EntryKind.SEARCHED, 0, 0, 0, offset, 0, 0)


def state_entries(state: ChannelState) -> bytes:
    """The entries that `fold_entries` turns into this state."""
    entries = [cursor_entry(EntryKind.CURSOR, state.low, state.next)]
    entries += [
        ENTRY.pack(EntryKind.FINISHED, 0, 0, 0, start, end, 0) for start, end in state.finished
    ]
    entries += [
        ENTRY.pack(EntryKind.STRAY, one.state, one.attempts, 0, one.offset, one.due_ns, one.id)
        for one in state.strays
    ]
    if state.searched:
        entries.append(searched_entry(state.searched))
    return b"".join(entries)


def normalised(
    low: int,
    next_offset: int,
    finished: Iterable[tuple[int, int]],
    strays: Iterable[StrayRecord],
    searched: int = 0,
) -> ChannelState:
    """The canonical form: ranges merged and above `low`, `low` as high as possible. A stray is
    listed separately, so its offset counts as handled by the window."""
    in_order = tuple(sorted(strays, key=lambda stray: (stray.offset, stray.id)))
    covered = [*finished, *((stray.offset, stray.offset + 1) for stray in in_order)]
    above: list[tuple[int, int]] = []
    for start, end in merged(covered):
        if start <= low:
            low = max(low, end)
        else:
            above.append((start, end))
    return ChannelState(low, max(low, next_offset), tuple(above), in_order, searched)


def clamped(state: ChannelState, start_offset: int, written_end: int) -> tuple[ChannelState, bool]:
    """`state` within the log. True when it spoke of offsets that the log has lost: those will be
    given to other messages, so the journal that names them must be replaced before that."""
    beyond = (
        max(state.next, state.searched) > written_end
        or any(end > written_end for _, end in state.finished)
        or any(stray.offset >= written_end for stray in state.strays)
    )
    low = max(min(state.low, written_end), start_offset)
    next_offset = max(min(state.next, written_end), start_offset)
    finished = [(start, min(end, written_end)) for start, end in state.finished]
    strays = [stray for stray in state.strays if start_offset <= stray.offset < written_end]
    searched = min(state.searched, written_end)
    return normalised(low, next_offset, finished, strays, searched), beyond


def fold_entries(entries: bytes) -> ChannelState:
    """One channel's entries on their own, as in a snapshot."""
    channel = _Channel()
    channel.apply(entries)
    return channel.state()


def encode_record(
    flags: int,
    generation: int,
    sequence: int,
    handed_end: int,
    groups: Sequence[Group],
    synced_records: int = 0,
) -> bytes:
    parts = [b""]
    length = RECORD.size
    for number, entries in groups:
        parts.append(GROUP.pack(number, len(entries) // ENTRY.size))
        parts.append(entries)
        length += GROUP.size + len(entries)
    flags |= min(synced_records, SYNCED_MAX) << SYNCED_SHIFT
    header = RECORD.pack(MAGIC, 0, length, flags, generation, sequence, handed_end)
    parts[0] = header[CRC_FROM:]
    covered = b"".join(parts)
    return header[:4] + crc32c(covered).to_bytes(4, "little") + covered


def restamped(record: bytes, synced_records: int) -> bytes:
    """The same record for another disk: the count of synced records belongs to the file it is
    written to, or a power loss there would look like corruption."""
    flags = int.from_bytes(record[_FLAGS_AT : _FLAGS_AT + 4], "little") & FLAG_SNAPSHOT
    flags |= min(synced_records, SYNCED_MAX) << SYNCED_SHIFT
    covered = record[CRC_FROM:_FLAGS_AT] + flags.to_bytes(4, "little") + record[_FLAGS_AT + 4 :]
    return record[:4] + crc32c(covered).to_bytes(4, "little") + covered


def decode_record(data: bytes, position: int) -> JournalRecord | None:
    found = read_record(data, position)
    return None if isinstance(found, str) else found


def read_record(data: bytes, position: int) -> JournalRecord | str:
    """The intact record at `position`, or the fault in it."""
    if len(data) - position < RECORD.size:
        return "the file ends inside a record"
    magic, crc, length, flags, generation, sequence, handed_end = RECORD.unpack_from(data, position)
    if magic != MAGIC:
        return "no record begins here"
    if length < RECORD.size:
        return f"a record cannot be {length} bytes long"
    if length > len(data) - position:
        return "the file ends inside a record"
    if crc32c(memoryview(data)[position + CRC_FROM : position + length]) != crc:
        return "the checksum of the record is wrong"
    groups = _decode_groups(data, position + RECORD.size, position + length)
    if groups is None:
        return "the record's parts do not fit its length"
    synced = flags >> SYNCED_SHIFT
    return JournalRecord(
        length, flags & FLAG_SNAPSHOT, synced, generation, sequence, handed_end, groups
    )


def _decode_groups(data: bytes, position: int, end: int) -> list[Group] | None:
    groups: list[Group] = []
    while position < end:
        if end - position < GROUP.size:
            return None
        number, count = GROUP.unpack_from(data, position)
        position += GROUP.size
        length = count * ENTRY.size
        if length > end - position:
            return None
        groups.append(Group(number, data[position : position + length]))
        position += length
    return groups


def intact_beyond(data: bytes, position: int) -> Iterator[JournalRecord]:
    """Intact records at or behind `position`, wherever they begin."""
    while (position := data.find(MAGIC, position)) >= 0:
        found = decode_record(data, position)
        if found is not None:
            yield found
        position += found.length if found is not None else 1


def corrupt_generation(data: bytes) -> int:
    """The generation that has lost records to corruption; 0 without any. A file rewritten over an
    older one may keep a part of that, which then looks corrupt: it is not missed, since the new
    generation began when a later one was on disk in another file."""
    return corrupt_in(data, fold(data))


def corrupt_in(data: bytes, folded: Folded | None) -> int:
    """`corrupt_generation` of a file whose sum is known."""
    if folded is not None:
        return folded.generation if folded.lost_records else 0
    witnesses = (one.generation for one in intact_beyond(data, 0) if one.synced_records > 0)
    return max(witnesses, default=0)


def _lost(data: bytes, position: int, generation: int, sequence: int) -> int:
    """The number of records of the file behind the one with this sequence, if it is corrupt."""
    beyond = [one for one in intact_beyond(data, position) if one.generation == generation]
    return len(beyond) if any(one.synced_records > sequence for one in beyond) else 0


def fold(data: bytes) -> Folded | None:
    """The sum of one file, or None when it has no whole snapshot at its start."""
    found = fold_records(data)
    return found[0] if found is not None else None


def fold_records(data: bytes) -> tuple[Folded, Folding] | None:
    """As `fold`, and a Folding to continue with, record by record."""
    first = decode_record(data, 0)
    if first is None or first.sequence or not first.flags & FLAG_SNAPSHOT:
        return None
    folding = Folding()
    record = first
    position = 0
    while True:
        folding.apply(record.handed_end, record.groups)
        position += record.length
        following = decode_record(data, position)
        if (
            following is None
            or following.generation != first.generation
            or following.sequence != record.sequence + 1
        ):
            break
        record = following
    lost = _lost(data, position, first.generation, record.sequence + 1)
    torn = position != len(data)
    at = Position(first.generation, record.sequence + 1)
    return folding.folded(at, position, torn, lost), folding
