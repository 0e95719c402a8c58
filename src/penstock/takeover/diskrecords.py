"""Reading the queues of `diskqueue.py`: every message that can be read, and where none can.

Records follow each other without a mark or a checksum, so one bad length hides where the next one
begins. A position counts as the beginning of a record when its length fits the file and 16 hex
digits stand where the id belongs. That is taken for real when it leads to another one or to the end
of the file, or when its timestamp lies between 2010 and 2100: by chance alone 16 such digits stand
in one position of 10^19.

- What does not begin a record is passed over until a position does. What was passed over is
  reported with its position: nothing is dropped silently.
- When a record is followed by something that begins none, either it is damage, or the record's
  own length is too large and runs over others. If a row of records begins inside it and passes over
  its end, the length is wrong, and only that one record is lost.
- A record that ends where it should, but whose id is not hex, is kept: it gets an id of the log.
- Zeros, or half a record, at the end of a file are what a power loss or a kill leaves.

A file that nsqd gave up on (`.bad`) was read by nsqd up to the position that it could not read;
what lies behind that position was never looked at, and is read here. When nothing is wrong with the
file, all of it had been read (nsqd renames a file that way too when it was read to its end).
"""

import itertools
import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

import msgspec

from penstock import limits
from penstock.kernel import hex_to_id
from penstock.log.disk import Disk, File, read_file
from penstock.takeover.diskqueue import (
    HEAD,
    HEAD_BYTES,
    LENGTH_BYTES,
    LENGTH_MIN,
    NO_ID,
    Meta,
    QueueFiles,
    Record,
    data_name,
    parse_meta,
)

# In memory at a time, or a message if that is larger; the queues of a topic are read side by side.
READ_BYTES = 128 * limits.KIB
SEARCH_BYTES = 4 * limits.KIB  # the first look behind damage, which is mostly small; then more
LENGTH_MAX = LENGTH_MIN + limits.BODY_BYTES_CEILING
META_BYTES_MAX = 256  # the longest is below 100
SPANS_SHOWN_MAX = 100  # of a queue; further ones are only counted
DATED_NS = (1_262_304_000 * limits.SECOND, 4_102_444_800 * limits.SECOND)  # 2010 to 2100
_ID_AT = 14  # in a record
_ID = re.compile(rb"(?=[0-9a-f]{16})")


class UnreadableBytes(msgspec.Struct, frozen=True):
    """Bytes of a file in which no message could be read."""

    file: str
    start: int
    end: int


class Tally(msgspec.Struct):
    messages: int = 0
    body_bytes: int = 0
    passed_bytes: int = 0  # in front of the read position: nsqd was done with them
    bad_bytes: int = 0
    bad_spans: int = 0
    bad: list[UnreadableBytes] = []  # the first of them
    ids_lost: int = 0  # messages that get a new id, because theirs cannot be read
    expected_depth: int | None = None  # by the meta file
    notes: list[str] = []

    def note_bad(self, file: str, start: int, end: int) -> None:
        self.bad_bytes += end - start
        self.bad_spans += 1
        if len(self.bad) < SPANS_SHOWN_MAX:
            self.bad = [*self.bad, UnreadableBytes(file, start, end)]

    def note(self, text: str) -> None:
        self.notes = [*self.notes, text]


class RecordReader:
    """The records of one file from `start` on. `on_bad` receives bytes that are no record."""

    def __init__(self, file: File, start: int, on_bad: Callable[[int, int], None]) -> None:
        self._file = file
        self._size = file.size()
        self._start = start
        self._on_bad = on_bad
        self._data = b""
        self._base = 0  # where `_data` begins in the file

    def __iter__(self) -> Iterator[Record]:
        size = self._size
        at = self._start
        waiting: Record | None = None  # given out when what follows it is looked at
        waiting_at = at
        while at < size:
            found = self._take(at)
            if found is not None:
                if waiting is not None:
                    yield waiting
                waiting, waiting_at, at = found, at, at + HEAD_BYTES + len(found.body)
                continue
            if waiting is not None:
                start = self._overrun(waiting_at, at)
                if start is not None:
                    self._on_bad(waiting_at, start)
                    waiting, at = None, start
                    continue
                yield waiting
                waiting = None
            start = self._next_start(at + 1)
            self._on_bad(at, start)
            at = start
        if waiting is not None:
            yield waiting

    def _take(self, at: int) -> Record | None:
        if at + HEAD_BYTES > self._size:
            return None
        index = self._loaded(at, HEAD_BYTES)
        length, timestamp_ns, attempts, text = HEAD.unpack_from(self._data, index)
        end = at + LENGTH_BYTES + length
        if not LENGTH_MIN <= length <= LENGTH_MAX or end > self._size:
            return None
        id = hex_to_id(text)
        if id == NO_ID and not self._is_good_end(end):
            return None
        index = self._loaded(at, LENGTH_BYTES + length)
        body = self._data[index + HEAD_BYTES : index + LENGTH_BYTES + length]
        return Record(timestamp_ns, attempts, id, body)

    def _loaded(self, at: int, length: int) -> int:
        """The position in `_data` of [at, at + length), which is loaded if need be."""
        if not self._base <= at <= self._base + len(self._data) - length:
            self._data, self._base = self._read(at, max(length, READ_BYTES)), at
            if len(self._data) < length:
                raise OSError(f"{self._file.path}: it has become shorter while it was read")
        return at - self._base

    def _read(self, at: int, length: int) -> bytes:
        buffer = bytearray(min(length, self._size - at))
        return bytes(memoryview(buffer)[: self._file.pread_into(buffer, at)])

    # --- starts of records ---

    def _end_of(self, at: int) -> int | None:
        """The end of the record that seems to begin here; None when none does."""
        if at + HEAD_BYTES > self._size:
            return None
        index = at - self._base
        if 0 <= index <= len(self._data) - HEAD_BYTES:
            length, _, _, text = HEAD.unpack_from(self._data, index)
        else:
            length, _, _, text = HEAD.unpack(self._read(at, HEAD_BYTES))
        end: int = at + LENGTH_BYTES + length
        if not LENGTH_MIN <= length <= LENGTH_MAX or end > self._size:
            return None
        return end if hex_to_id(text) != NO_ID else None

    def _is_good_end(self, end: int) -> bool:
        return end == self._size or self._end_of(end) is not None

    def _is_dated(self, at: int) -> bool:
        head = self._read(at, HEAD_BYTES)
        return DATED_NS[0] <= int.from_bytes(head[4:12], "big") < DATED_NS[1]

    def _next_start(self, at: int) -> int:
        """The next position where records go on, or the end of the file."""
        for start in self._candidates(at, self._size):
            end = self._end_of(start)
            if end is not None and (self._is_good_end(end) or self._is_dated(start)):
                return start
        return self._size

    def _overrun(self, record_at: int, record_end: int) -> int | None:
        """The start of records inside the one at `record_at`, whose length runs over them."""
        dead: set[int] = set()  # positions that lead nowhere: each is followed once
        for start in self._candidates(record_at + HEAD_BYTES, record_end):
            row: list[int] = []
            end: int | None = start
            while end is not None and end < record_end and end not in dead:
                row.append(end)
                end = self._end_of(end)
            if end is not None and end > record_end:
                return start
            dead.update(row)
        return None

    def _candidates(self, at: int, to: int) -> Iterator[int]:
        """Positions in [at, to) with a length that fits, and 16 hex digits where an id belongs."""
        length = SEARCH_BYTES
        while at < to and at + HEAD_BYTES <= self._size:
            block = self._read(at, length)
            length = min(2 * length, READ_BYTES)
            for match in _ID.finditer(block, _ID_AT):
                index = match.start() - _ID_AT
                claimed = int.from_bytes(block[index : index + LENGTH_BYTES], "big")
                start = at + index
                if start >= to:
                    return
                if LENGTH_MIN <= claimed <= self._size - start - LENGTH_BYTES:
                    yield start
            at += max(len(block) - HEAD_BYTES + 1, 1)


# --- a queue ---


def read_meta(disk: Disk, directory: str, files: QueueFiles, tally: Tally) -> Meta | None:
    if not files.meta:
        if files.data:
            tally.note("there is no meta file: all data files are read from their beginning")
        return None
    meta = parse_meta(read_file(disk, os.path.join(directory, files.meta), META_BYTES_MAX))
    if meta is None:
        tally.note("the meta file is damaged: all data files are read from their beginning")
    else:
        tally.expected_depth = meta.depth
    return meta


def unread_bytes(disk: Disk, directory: str, files: QueueFiles) -> int:
    """Bytes behind the read position, `.bad` files as a whole. Raises OSError."""
    meta = read_meta(disk, directory, files, Tally())
    total = 0
    for number, name in files.data.items():
        size = disk.size(os.path.join(directory, name))
        total += size - _start(meta, number, size)
    return total + sum(disk.size(os.path.join(directory, name)) for name in files.bad.values())


def _start(meta: Meta | None, number: int, size: int) -> int:
    """The start of the unread part of a data file."""
    if meta is None or number > meta.read_file:
        return 0
    return size if number < meta.read_file else min(meta.read_position, size)


def read_queue(
    disk: Disk, directory: str, files: QueueFiles, tally: Tally, all_bad: bool = False
) -> Iterator[Record]:
    """Every unfinished message of a queue, in the order of its files. `all_bad` reads the whole of
    `.bad` files, including messages that nsqd had read. Raises OSError."""
    meta = read_meta(disk, directory, files, tally)
    _note_missing(files, meta, tally)
    numbered = [(number, False, name) for number, name in files.data.items()]
    numbered += [(number, True, name) for number, name in files.bad.items()]
    for number, is_bad, name in sorted(numbered):
        with closing(disk.open(os.path.join(directory, name))) as file:
            if is_bad:
                yield from _read_given_up(file, name, tally, all_bad)
                continue
            start = _start(meta, number, file.size())
            tally.passed_bytes += start
            yield from _read_file(file, name, start, tally)


def _note_missing(files: QueueFiles, meta: Meta | None, tally: Tally) -> None:
    """Name the missing data files between the present ones.

    The read file itself may be gone: nsqd removes it when it was read to its end, and notes that a
    moment later. The write file is made when the first message goes into it.
    """
    there = sorted({*files.data, *files.bad})
    if meta is not None:
        there = [number for number in there if number >= meta.read_file]
        is_read = meta.read_file < meta.write_file or meta.read_position >= meta.write_position
        end = max(meta.write_file + bool(meta.write_position), there[-1] + 1 if there else 0)
        there = [meta.read_file if is_read else meta.read_file - 1, *there, end]
    for before, after in itertools.pairwise(there):
        if after > before + 1:
            first, last = data_name(files.name, before + 1), data_name(files.name, after - 1)
            named = first if first == last else f"{first} to {last}"
            tally.note(f"{named}: missing, and so are the messages that nsqd wrote to it")


def _read_file(file: File, name: str, start: int, tally: Tally) -> Iterator[Record]:
    for record in RecordReader(file, start, partial(tally.note_bad, name)):
        tally.messages += 1
        tally.body_bytes += len(record.body)
        tally.ids_lost += record.id == NO_ID
        yield record


def _read_given_up(file: File, name: str, tally: Tally, all_bad: bool) -> Iterator[Record]:
    """The rest behind the first unreadable position, or all of it."""
    start = 0 if all_bad else _first_bad(file)
    tally.passed_bytes += start
    if start:
        tally.note(f"{name}: nsqd had read the first {start} bytes; they are not read again")
    yield from _read_file(file, name, start, tally)


def _first_bad(file: File) -> int:
    spans: list[int] = []
    for _ in RecordReader(file, 0, lambda at, _: spans.append(at)):
        if spans:
            break
    return spans[0] if spans else file.size()
