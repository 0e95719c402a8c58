"""A disk in memory that fails on request: `penstock.log.disk.Disk` over `storage`.

`crash` is the power going: every open file is dead and unsynced changes meet their fates. `kill`
ends the process only: what was written stays. `inject` makes calls fail, `capacity_bytes` makes
the disk fill up, `flip` rots a bit.
"""

from __future__ import annotations

import copy
import errno
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from penstock import limits
from sim.storage import Change, Crossing, Directory, Inode, Link, Move

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from penstock.log.disk import File, Lock

Call = Literal[
    "open",
    "create",
    "read",
    "write",
    "sync",
    "truncate",
    "rename",
    "unlink",
    "mkdir",
    "sync_directory",
    "free_bytes",
]


@dataclass(slots=True)
class Fault:
    """Calls on paths that contain `path_part` fail: the first `skip` of them don't, then `times` do
    (0: all). A failing write puts the first `written` part of its bytes on the disk all the
    same."""

    call: Call
    number: int = errno.EIO
    path_part: str = ""
    skip: int = 0
    times: int = 1
    written: float = 0.0
    failed: int = 0


class SimDisk:
    def __init__(self, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.incarnation = 0  # rises when all open files die
        self.bytes_read = 0
        self.syncs = 0
        self.faults: list[Fault] = []
        self._root = Directory()
        self._locked: set[str] = set()

    # --- for tests ---

    def crash(self, rng: random.Random) -> None:
        """The power goes."""
        self.kill()
        self._root.crash(rng)

    def kill(self) -> None:
        """The process ends; the system lives on."""
        self.incarnation += 1
        self._locked.clear()
        self.faults.clear()

    def copy(self) -> SimDisk:
        """A snapshot, as of a machine that runs: what was not synced is in it, too."""
        taken = SimDisk(self.capacity_bytes)
        taken._root = copy.deepcopy(self._root)
        return taken

    def inject(self, fault: Fault) -> Fault:
        self.faults.append(fault)
        return fault

    def flip(self, path: str, position: int, bit: int) -> None:
        inode = self._inode(path)
        for content in (inode.seen, inode.durable):
            if position < len(content):
                content[position] ^= 1 << bit

    def content(self, path: str) -> bytes:
        return bytes(self._inode(path).seen)

    def replace(self, path: str, content: bytes) -> None:
        """Put this content there, durably."""
        inode = self._inode(path)
        inode.seen = bytearray(content)
        inode.durable = bytearray(content)
        inode.pending.clear()

    def used_bytes(self) -> int:
        return sum(len(inode.seen) for inode in {id(i): i for i in self._root.files()}.values())

    # --- Disk ---

    def open(self, path: str, write: bool = False) -> File:
        self.fail_if_told("open", path)
        return SimFile(self, path, self._inode(path), write)

    def create(self, path: str) -> File:
        self.fail_if_told("create", path)
        directory, name = self._parent(path)
        node = directory.seen.get(name)
        if node is None:
            node = Inode()
            directory.change(Link(name, node))
        elif isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        elif node.seen:
            node.change(Change(0, None))
        return SimFile(self, path, node, write=True)

    def keep(self, file: File) -> None:
        """Descriptors never run short here."""

    def exists(self, path: str) -> bool:
        return self._find(path) is not None

    def size(self, path: str) -> int:
        return len(self._inode(path).seen)

    def is_directory(self, path: str) -> bool:
        return isinstance(self._find(path), Directory)

    def listdir(self, path: str) -> list[str]:
        return list(self._directory(path).seen)

    def mkdir(self, path: str) -> None:
        self.fail_if_told("mkdir", path)
        node = self._root
        for name in _parts(path):
            inner = node.seen.get(name)
            if inner is None:
                inner = Directory()
                node.change(Link(name, inner))
            if not isinstance(inner, Directory):
                raise _error(errno.ENOTDIR, path)
            node = inner

    def rename(self, old: str, new: str) -> None:
        self.fail_if_told("rename", old)
        directory, old_name = self._parent(old)
        new_directory, new_name = self._parent(new)
        if old_name not in directory.seen:
            raise _error(errno.ENOENT, old)
        if directory is new_directory:
            directory.change(Move(old_name, new_name))
            return
        crossing = Crossing(directory, old_name, new_directory, new_name, directory.seen[old_name])
        new_directory.change(crossing)
        directory.change(crossing)

    def unlink(self, path: str) -> None:
        self.fail_if_told("unlink", path)
        self._inode(path)
        directory, name = self._parent(path)
        directory.change(Link(name, None))

    def rmdir(self, path: str) -> None:
        if self._directory(path).seen:
            raise _error(errno.ENOTEMPTY, path)
        directory, name = self._parent(path)
        directory.change(Link(name, None))

    def sync_directory(self, path: str) -> None:
        self.fail_if_told("sync_directory", path)
        self.syncs += 1
        self._directory(path).sync()

    def free_bytes(self, path: str) -> int:
        self.fail_if_told("free_bytes", path)
        self._directory(path)
        if self.capacity_bytes is None:
            return 1 << 50
        return max(self.capacity_bytes - self.used_bytes(), 0)

    def lock(self, path: str) -> Lock:
        if not self.exists(path):
            self.create(path)
        if path in self._locked:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), path)
        self._locked.add(path)
        return SimLock(self, path)

    def unlock(self, path: str) -> None:
        self._locked.discard(path)

    # --- the machinery ---

    def fail_if_told(self, call: Call, path: str) -> None:
        fault = self.due_fault(call, path)
        if fault is not None:
            raise _error(fault.number, path)

    def due_fault(self, call: Call, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.call != call or fault.path_part not in path:
                continue
            if fault.skip:
                fault.skip -= 1
            elif not fault.times or fault.failed < fault.times:
                fault.failed += 1
                return fault
        return None

    def room(self, growth: int) -> int:
        """How many of `growth` more bytes there is room for."""
        if self.capacity_bytes is None or growth <= 0:
            return growth
        return min(growth, max(self.capacity_bytes - self.used_bytes(), 0))

    def _find(self, path: str) -> Inode | Directory | None:
        node: Inode | Directory | None = self._root
        for name in _parts(path):
            if not isinstance(node, Directory):
                return None
            node = node.seen.get(name)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        parent, name = os.path.split(path)
        return self._directory(parent), name


class SimFile:
    """An open file of a `SimDisk`."""

    def __init__(self, disk: SimDisk, path: str, inode: Inode, write: bool) -> None:
        self.path = path
        self.pinned = False
        self.fd = -1
        self._disk = disk
        self._inode = inode
        self._write = write
        self._incarnation = disk.incarnation
        self._closed = False

    def pin(self) -> None:
        self.pinned = True

    def pwritev(self, buffers: Sequence[Buffer], position: int, length: int) -> None:
        data = b"".join(bytes(buffer) for buffer in buffers)
        if len(data) != length:
            raise ValueError(f"{self.path}: {len(data)} bytes in buffers, {length} announced")
        self._check(writing=True)
        fault = self._disk.due_fault("write", self.path)
        if fault is not None:
            self._put(position, data[: int(len(data) * fault.written)])
            raise _error(fault.number, self.path)
        growth = position + length - len(self._inode.seen)
        room = self._disk.room(growth)
        if growth > 0 and room < growth:
            self._put(position, data[: max(length - (growth - room), 0)])
            raise _error(errno.ENOSPC, self.path)
        self._put(position, data)

    def pread_into(self, buffer: Buffer, position: int) -> int:
        self._check()
        self._disk.fail_if_told("read", self.path)
        view = memoryview(buffer).cast("B")
        found = self._inode.seen[position : position + len(view)]
        view[: len(found)] = found
        self._disk.bytes_read += len(found)
        return len(found)

    def allocate(self, position: int, length: int) -> None:
        end = position + length
        while position < end:
            piece = min(end - position, limits.PREALLOCATE_WRITE_BYTES)
            self.pwritev((bytes(piece),), position, piece)
            position += piece

    def fdatasync(self) -> None:
        self._check()
        if self._disk.due_fault("sync", self.path) is not None:
            self._inode.forget_pending()
            raise _error(errno.EIO, self.path)
        self._disk.syncs += 1
        self._inode.sync()

    def duplicate(self) -> int | None:
        return None  # these files have no descriptors

    def truncate(self, length: int) -> None:
        self._check(writing=True)
        self._disk.fail_if_told("truncate", self.path)
        if length != len(self._inode.seen):
            self._inode.change(Change(length, None))

    def size(self) -> int:
        self._check()
        return len(self._inode.seen)

    def close(self) -> None:
        self._closed = True

    def _put(self, position: int, data: bytes) -> None:
        if data:
            self._inode.change(Change(position, data))

    def _check(self, writing: bool = False) -> None:
        if (
            self._closed
            or self._incarnation != self._disk.incarnation
            or (writing and not self._write)
        ):
            raise _error(errno.EBADF, self.path)


class SimLock:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._incarnation = disk.incarnation

    def release(self) -> None:
        if self._incarnation == self._disk.incarnation:
            self._disk.unlock(self._path)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part and part != "."]


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
