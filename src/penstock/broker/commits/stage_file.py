"""A staged block as a file, and the jobs that read and write such files in the sync threads.

The first line is a JSON object with a checksum: the block's name, its topic (and which one of that
name), and its size. The batches follow as they were sent. A file is written under a temporary name,
synced and renamed, so under its own name it is complete. Its name is a number that no other stage
and no unfinished commit has.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Generic, NamedTuple, TypeVar

import msgspec

from penstock import limits
from penstock.broker.commits.blocks import BlockInvalid, checked_header
from penstock.errors import StageDamaged
from penstock.log.disk import Disk, read_file
from penstock.log.seal import seal, unseal

T = TypeVar("T")
PROBE_NAMES = ("probe.stage.tmp", "probed.stage.tmp")
_NAME = re.compile(r"(\d{16})\.stage")


class StageHead(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    identity: str  # of the topic's log
    name: str
    count: int  # messages
    bytes: int  # of the batches
    created_ns: int
    partition: int = 0
    version: int = 1  # of this form
    app: str = ""  # for which it was staged, as which version, in which attempt (`apps.py`)
    app_version: int = -1
    attempt: str = ""


class StagedBatch(NamedTuple):
    data: bytes
    messages: int
    bodies_length: int


def stage_file_name(number: int) -> str:
    return f"{number:016d}.stage"


def stage_number(file_name: str) -> int | None:
    found = _NAME.fullmatch(file_name)
    return int(found[1]) if found else None


def head_line(head: StageHead) -> bytes:
    return seal(msgspec.json.encode(head)) + b"\n"


def read_head(disk: Disk, path: str) -> tuple[StageHead, int]:
    """The head, and where the batches begin. Raises OSError, or ValueError with the reason."""
    line, newline, _ = read_file(disk, path, limits.STAGE_HEAD_BYTES_MAX).partition(b"\n")
    if not newline:
        raise ValueError("its first line has no end")
    return _head_of(line, disk.size(path))


def _head_of(line: bytes, length: int) -> tuple[StageHead, int]:
    try:
        head = msgspec.json.decode(unseal(line), type=StageHead)
    except msgspec.DecodeError as error:
        raise ValueError(f"its first line is not what this version writes: {error}") from error
    if length != len(line) + 1 + head.bytes:
        raise ValueError("it is longer or shorter than it says")
    return head, len(line) + 1


def make_directory(disk: Disk, path: str) -> None:
    """Make the directory, durably."""
    if not disk.is_directory(path):
        disk.mkdir(path)
        disk.sync_directory(os.path.dirname(path))


class DiskJob(Generic[T]):
    """A call that waits for the disk. `answer` is its result."""

    teaches = False  # it is no sync of a log: SyncPool is to learn nothing from it
    answer: T

    def __init__(self, act: Callable[[], T]) -> None:
        self._act = act

    def run(self) -> None:
        self.answer = self._act()


def write_stage(disk: Disk, path: str, line: bytes, body: bytes | bytearray) -> None:
    """Write a new stage to disk. The caller removes the leftovers of a failure."""
    directory, beside = os.path.dirname(path), path + ".tmp"
    make_directory(disk, directory)
    with closing(disk.create(beside)) as file:
        file.pwritev((line,), 0, len(line))
        for at, piece in _slices(body):
            file.pwritev((piece,), len(line) + at, len(piece))
        file.fdatasync()
    disk.rename(beside, path)
    disk.sync_directory(directory)


def _slices(body: bytes | bytearray) -> Iterator[tuple[int, memoryview]]:
    view = memoryview(body)
    for at in range(0, len(view), limits.STAGE_SLICE_BYTES):
        yield at, view[at : at + limits.STAGE_SLICE_BYTES]


def probe_write(disk: Disk, directory: str, names: tuple[str, str], length: int) -> None:
    """Would a write of `length` bytes succeed? The same steps, with zeros, finally under the second
    of these names. A start removes the leftovers of a crash."""
    beside, path = (os.path.join(directory, name) for name in names)
    make_directory(disk, directory)
    try:
        with closing(disk.create(beside)) as file:
            file.allocate(0, length)
            file.fdatasync()
        disk.rename(beside, path)
        disk.sync_directory(directory)
    finally:
        RemoveJob(disk, directory, list(names)).run()


def has_body(disk: Disk, path: str, start: int, body: bytes) -> bool:
    """Does the stage hold just these batches?"""
    with closing(disk.open(path)) as file:
        if file.size() != start + len(body):
            return False
        for at, wanted in _slices(body):
            found = bytearray(len(wanted))
            file.pread_into(found, start + at)
            if found != wanted:
                return False
        return True


def read_through(disk: Disk, path: str) -> None:
    """Can the whole stage be read? A missing one is no trouble."""
    if not disk.exists(path):
        return
    with closing(disk.open(path)) as file:
        read = bytearray(limits.STAGE_SLICE_BYTES)
        position = 0
        while (count := file.pread_into(read, position)) > 0:
            position += count


class ReadJob:
    """Reads the whole batches from `position` on, about a slice of them and at least one. `staged`
    and `next_position` are the answer; `damage` describes a difference from the staged bytes."""

    teaches = False

    def __init__(self, disk: Disk, path: str, position: int) -> None:
        self.batches: list[StagedBatch] = []
        self.next_position = position
        self.at_end = False  # of the file
        self.damage: StageDamaged | None = None
        self._disk = disk
        self._path = path

    def run(self) -> None:
        with closing(self._disk.open(self._path)) as file:
            end = file.size()
            wanted = min(limits.STAGE_SLICE_BYTES, end - self.next_position)
            data = bytearray(wanted)
            file.pread_into(data, self.next_position)
            first = int.from_bytes(data[8:12], "little")  # the length of the first batch
            if wanted < first <= end - self.next_position:
                data = bytearray(first)
                file.pread_into(data, self.next_position)
        self._split(bytes(data), at_end=self.next_position + len(data) == end)
        self.at_end = self.next_position >= end

    def _split(self, data: bytes, at_end: bool) -> None:
        position = 0
        try:
            while position < len(data):
                length = int.from_bytes(data[position + 8 : position + 12], "little")
                cut_short = len(data) - position < max(length, 12)
                if cut_short and position and not at_end:
                    break
                header = checked_header(data, position)
                piece = data[position : position + header.length]
                self.batches.append(StagedBatch(piece, header.count, header.bodies_length))
                position += header.length
        except BlockInvalid as error:
            at = self.next_position + error.position
            self.damage = StageDamaged(self._path, f"at byte {at}: {error.reason}")
        self.next_position += position


class RemoveJob:
    """Removes unused files, as many as it can. `left` are the others, and all of them
    when their removal is not durable."""

    teaches = False

    def __init__(self, disk: Disk, directory: str, names: list[str]) -> None:
        self._disk = disk
        self._directory = directory
        self._names = names
        self.left = names

    def run(self) -> None:
        failed: dict[str, OSError] = {}
        for name in self._names:
            path = os.path.join(self._directory, name)
            try:
                if self._disk.exists(path):
                    self._disk.unlink(path)
            except OSError as error:
                failed[name] = error
        if self._disk.is_directory(self._directory):
            self._disk.sync_directory(self._directory)
        self.left = list(failed)
        for first in failed.values():
            raise first
