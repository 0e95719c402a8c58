"""The disk, as the log sees it: a protocol of few calls, and its form on the operating system.

Everything fails with `OSError` and nothing else; who calls turns that into Penstock's errors. The
simulated disk (`sim/disk.py`) follows the same protocol, so every rule above this line
runs against power losses, torn writes and full disks without a real one.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Protocol

from penstock import limits
from penstock.errors import DirectoryLocked
from penstock.log.open_files import (
    OUT_OF_DESCRIPTORS,
    OpenFiles,
    kept_files_max,
    out_of_descriptors,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

FILE_MODE = 0o600  # messages are private to the user that the broker runs as
DIRECTORY_MODE = 0o700
BUFFERS_MAX = 1024  # IOV_MAX on Linux and macOS
_F_FULLFSYNC = 51  # macOS only
_ZEROS = bytes(limits.PREALLOCATE_WRITE_BYTES)


class File(Protocol):
    """An open file. Positions are explicit: there is no cursor to share."""

    path: str
    pinned: bool  # see `Disk.keep`
    fd: int  # its descriptor, for the kernel; -1: it is to be written to by `pwritev`

    def pin(self) -> None:
        """Open it, and keep it open until `pinned` is reset: another thread may use it. Raises
        OSError."""
        ...

    def pwritev(self, buffers: Sequence[Buffer], position: int, length: int) -> None:
        """Write all `length` bytes of `buffers`, or raise; a failure may leave some of them."""
        ...

    def pread_into(self, buffer: Buffer, position: int) -> int:
        """Fill `buffer`; fewer bytes only at the end of the file."""
        ...

    def allocate(self, position: int, length: int) -> None:
        """Write zeros, in small writes."""
        ...

    def fdatasync(self) -> None: ...
    def duplicate(self) -> int | None:
        """Another descriptor of the file, which is the caller's to close. None where files have
        none."""
        ...

    def truncate(self, length: int) -> None: ...
    def size(self) -> int: ...
    def close(self) -> None: ...


class Lock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, write: bool = False) -> File: ...
    def create(self, path: str) -> File:
        """A new, empty file; an existing one is emptied."""
        ...

    def keep(self, file: File) -> None:
        """Keep it open between uses, unless descriptors run short while it is not `pinned`: then
        the next use opens it again. It must keep its name."""
        ...

    def exists(self, path: str) -> bool: ...
    def size(self, path: str) -> int: ...
    def is_directory(self, path: str) -> bool: ...
    def listdir(self, path: str) -> list[str]: ...
    def mkdir(self, path: str) -> None:
        """With parents; an existing directory is no error."""
        ...

    def rename(self, old: str, new: str) -> None: ...
    def unlink(self, path: str) -> None: ...
    def rmdir(self, path: str) -> None: ...
    def sync_directory(self, path: str) -> None: ...
    def free_bytes(self, path: str) -> int: ...
    def lock(self, path: str) -> Lock:
        """Lock a file, created if missing, or a directory. BlockingIOError when another holds
        it."""
        ...


def read_file(disk: Disk, path: str, bytes_max: int) -> bytes:
    with closing(disk.open(path)) as file:
        data = bytearray(min(file.size(), bytes_max))
        return bytes(data[: file.pread_into(data, 0)])


def replace_file(disk: Disk, path: str, data: bytes) -> None:
    """Readers see the old content or the new one. The caller syncs the directory."""
    beside = path + ".tmp"
    with closing(disk.create(beside)) as file:
        file.pwritev((data,), 0, len(data))
        file.fdatasync()
    disk.rename(beside, path)


def copy_bytes(source: File, start: int, end: int, target: File, at: int) -> None:
    """[start, end) of a file, or as much of it as there is, to `at` in another one."""
    buffer = memoryview(bytearray(limits.REPAIR_COPY_BYTES))
    while start < end and (length := source.pread_into(buffer[: end - start], start)):
        target.pwritev((buffer[:length],), at, length)
        start, at = start + length, at + length


def lock_directory(disk: Disk, path: str) -> Lock:
    """Take the lock file of a data directory."""
    lock_path = os.path.join(path, "penstock.lock")
    try:
        return disk.lock(lock_path)
    except BlockingIOError as error:
        reason = "failed to lock data-path (possibly in use by another instance of nsqd)"
        raise DirectoryLocked(path, reason) from error


class OsFile:
    __slots__ = ("_files", "fd", "path", "pinned")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self.pinned = False
        self.fd = fd
        self._files: OpenFiles | None = None

    # --- kept ---

    def keep(self, files: OpenFiles) -> None:
        self._files = files
        files.keep(self)

    def pin(self) -> None:
        self.pinned = True
        self._used()

    def suspend(self) -> None:
        fd, self.fd = self.fd, -1
        os.close(fd)

    def _used(self) -> int:
        """The descriptor, opened again if need be."""
        if self.fd < 0:
            files = self._files
            if files is None:
                raise OSError(errno.EBADF, "the file is closed", self.path)
            if not files.is_own_thread:
                raise RuntimeError(f"{self.path}: another thread uses a file that is not pinned")
            self.fd = _open(self.path, os.O_RDWR | os.O_CLOEXEC, files)
            files.keep(self)
        return self.fd

    # --- a file ---

    def pwritev(self, buffers: Sequence[Buffer], position: int, length: int) -> None:
        if len(buffers) <= BUFFERS_MAX:
            fd = self.fd if self.fd >= 0 else self._used()
            written = os.pwritev(fd, buffers, position)
            if written == length:
                return
        else:
            written = 0
        self._write_rest(buffers, position, written, length)

    def _write_rest(
        self, buffers: Sequence[Buffer], position: int, written: int, length: int
    ) -> None:
        """The slow path: short writes, and more buffers than the system takes at once."""
        views = [memoryview(buffer).cast("B") for buffer in buffers]
        first = 0
        skip = written
        while written < length:
            while skip >= len(views[first]):
                skip -= len(views[first])
                first += 1
            views[first] = views[first][skip:]
            taken = os.pwritev(self._used(), views[first : first + BUFFERS_MAX], position + written)
            if taken == 0:
                raise OSError(f"{self.path}: the system wrote nothing at {position + written}")
            written += taken
            skip = taken

    def pread_into(self, buffer: Buffer, position: int) -> int:
        view = memoryview(buffer).cast("B")
        filled = 0
        while filled < len(view):
            taken = os.preadv(self._used(), (view[filled:],), position + filled)
            if taken == 0:
                break
            filled += taken
        return filled

    def allocate(self, position: int, length: int) -> None:
        end = position + length
        while position < end:
            zeros = _ZEROS if end - position >= len(_ZEROS) else _ZEROS[: end - position]
            self.pwritev((zeros,), position, len(zeros))
            position += len(zeros)

    def fdatasync(self) -> None:
        _fdatasync(self._used())

    def duplicate(self) -> int | None:
        return os.dup(self._used())

    def truncate(self, length: int) -> None:
        os.ftruncate(self._used(), length)

    def size(self) -> int:
        return os.fstat(self._used()).st_size

    def close(self) -> None:
        files, self._files = self._files, None
        if files is not None:
            files.drop(self)
        if self.fd >= 0:
            fd, self.fd = self.fd, -1  # even when close fails the descriptor is gone
            os.close(fd)


class OsLock:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class OsDisk:
    def __init__(self, files_max: int | None = None) -> None:
        """`files_max`: that are kept open."""
        self._files = OpenFiles(kept_files_max() if files_max is None else files_max)

    def open(self, path: str, write: bool = False) -> File:
        flags = (os.O_RDWR if write else os.O_RDONLY) | os.O_CLOEXEC
        return OsFile(path, _open(path, flags, self._files))

    def create(self, path: str) -> File:
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        return OsFile(path, _open(path, flags, self._files))

    def keep(self, file: File) -> None:
        if isinstance(file, OsFile):
            file.keep(self._files)

    exists = staticmethod(os.path.exists)
    is_directory = staticmethod(os.path.isdir)
    listdir = staticmethod(os.listdir)
    rename = staticmethod(os.rename)
    unlink = staticmethod(os.unlink)
    rmdir = staticmethod(os.rmdir)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def mkdir(self, path: str) -> None:
        parent = os.path.dirname(path)
        if parent and not os.path.isdir(parent):
            self.mkdir(parent)
        try:
            os.mkdir(path, DIRECTORY_MODE)
        except FileExistsError:
            if not os.path.isdir(path):
                raise

    def sync_directory(self, path: str) -> None:
        fd = _open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, self._files)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def free_bytes(self, path: str) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def lock(self, path: str) -> Lock:
        flags = os.O_RDONLY if os.path.isdir(path) else os.O_RDWR | os.O_CREAT
        fd = os.open(path, flags | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(fd)
            raise
        return OsLock(fd)


def _open(path: str, flags: int, files: OpenFiles) -> int:
    """A descriptor; when there is none left, that of a file that can be closed."""
    try:
        return os.open(path, flags, FILE_MODE)
    except OSError as error:
        if error.errno not in OUT_OF_DESCRIPTORS:
            raise
        if not files.suspend_some():
            raise out_of_descriptors(error) from error
    try:
        return os.open(path, flags, FILE_MODE)
    except OSError as error:
        raise out_of_descriptors(error) if error.errno in OUT_OF_DESCRIPTORS else error from error


def _fdatasync(fd: int) -> None:
    if hasattr(os, "fdatasync"):
        os.fdatasync(fd)
    else:  # macOS has no fdatasync, and its fsync stops at the drive's own cache
        fcntl.fcntl(fd, _F_FULLFSYNC)
