"""The real disk, with faults on demand."""

import errno
from typing import Any

from penstock.log.disk import File, OsDisk


class FaultyDisk(OsDisk):
    """`fail` holds pairs of a call and a part of a path; those calls raise. `lost` counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.fail: set[tuple[str, str]] = set()
        self.free: int | None = None
        self.failed: list[tuple[str, str]] = []

    def check(self, call: str, path: str) -> None:
        if any(call == failing and part in path for failing, part in self.fail):
            self.failed.append((call, path))
            raise OSError(errno.EIO, "Input/output error", path)

    def open(self, path: str, write: bool = False) -> File:
        self.check("open", path)
        return _File(self, super().open(path, write))

    def create(self, path: str) -> File:
        self.check("create", path)
        return _File(self, super().create(path))

    def rename(self, old: str, new: str) -> None:
        self.check("rename", new)
        super().rename(old, new)

    def unlink(self, path: str) -> None:
        self.check("unlink", path)
        super().unlink(path)

    def sync_directory(self, path: str) -> None:
        self.check("sync_directory", path)
        super().sync_directory(path)

    def free_bytes(self, path: str) -> int:
        self.check("free_bytes", path)
        return super().free_bytes(path) if self.free is None else self.free


CALLS = {"pwritev": "write", "allocate": "write", "pread_into": "read", "fdatasync": "sync"}


class _File:
    def __init__(self, disk: FaultyDisk, file: File) -> None:
        self._disk = disk
        self._file = file
        self.path = file.path
        self.pinned = False
        self.fd = -1

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._file, name)
        if name not in CALLS:
            return call

        def checked(*arguments: Any) -> Any:
            self._disk.check(CALLS[name], self.path)
            return call(*arguments)

        return checked
