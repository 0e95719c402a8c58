"""What the real daemon does to its data directory, recorded at the system calls: and what a disk
may hold of it when the power goes.

`syscalls.c` writes the record. `Trace` plays a part of it on a `SimDisk`,
which knows what a sync promises and what may become of everything else, lets the power go there,
and writes what is left into a real directory.
"""

import os
import random
import struct
import subprocess
from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from penstock.log.disk import File
from sim.disk import SimDisk

SOURCE = Path(__file__).with_name("syscalls.c")
COMPILE_S_MAX = 60.0
ROOT = "data"
_RECORD = struct.Struct("=IiQQ")


def compile_library(directory: Path) -> Path:
    library = directory / "syscalls.so"
    command = ["cc", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    command += ["-o", str(library), str(SOURCE), "-ldl", "-lpthread"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=COMPILE_S_MAX, check=False
    )
    if done.returncode:
        raise AssertionError(f"{' '.join(command)} failed: {done.stderr}")
    return library


class Call(NamedTuple):
    kind: str
    fd: int
    position: int
    data: bytes
    end: int  # of the record, in the trace


def read_calls(trace: bytes) -> list[Call]:
    """All whole records."""
    calls, at = [], 0
    while at + _RECORD.size <= len(trace):
        kind, fd, position, length = _RECORD.unpack_from(trace, at)
        at += _RECORD.size
        if at + length > len(trace):
            break
        calls.append(Call(chr(kind), fd, position, trace[at : at + length], at + length))
        at += length
    return calls


class Trace:
    """`before`: the directory as it was when the record began, all of it durable."""

    def __init__(self, trace: bytes, data_path: Path, before: Path | None = None) -> None:
        self.calls = read_calls(trace)
        self._before = before
        self._ends = [call.end for call in self.calls]
        self._root = str(data_path)
        self._synced_at = self._match_syncs()

    def number_of(self, size: int) -> int:
        """How many calls were recorded when the trace had this size."""
        return bisect_right(self._ends, size)

    def _match_syncs(self) -> dict[int, int]:
        """Where a sync that begins there has succeeded. Of two of one file at a time, whichever
        ends first shows what was written before both."""
        begun: dict[int, deque[int]] = defaultdict(deque)
        found = {}
        for number, call in enumerate(self.calls):
            if call.kind == "s":
                begun[call.fd].append(number)
            elif call.kind == "e":
                found[begun[call.fd].popleft()] = number
        return found

    def syncs(self, part: str, cut: int) -> list[int]:
        """Where syncs of files whose path contains `part` began that had succeeded by `cut`."""
        names: dict[int, str] = {}
        found = []
        for number, call in enumerate(self.calls[:cut]):
            if call.kind in "co":
                names[call.fd] = os.fsdecode(call.data)
            elif call.kind == "s" and part in names.get(call.fd, ""):
                found += [number] * (self._synced_at.get(number, cut) < cut)
        return found

    @contextmanager
    def without_syncs(self, part: str) -> Iterator[None]:
        """As if those of files whose path contains `part` did nothing."""
        kept = self._synced_at
        left_out = set(self.syncs(part, len(self.calls)))
        self._synced_at = {begin: end for begin, end in kept.items() if begin not in left_out}
        try:
            yield
        finally:
            self._synced_at = kept

    def disk_at(self, cut: int) -> SimDisk:
        """The disk after the first `cut` calls, its unsynced changes still pending."""
        disk = SimDisk()
        disk.mkdir(ROOT)
        disk.sync_directory(".")
        if self._before is not None:
            read_in(disk, ROOT, self._before)
        open_files: dict[int, File | str] = {}
        for number, call in enumerate(self.calls[:cut]):
            is_synced = self._synced_at.get(number, cut) < cut
            self._play(disk, open_files, call, is_synced)
        return disk

    def _play(
        self, disk: SimDisk, files: dict[int, File | str], call: Call, is_synced: bool
    ) -> None:
        file = files.get(call.fd)
        if call.kind in "co":
            files[call.fd] = self._open(disk, call)
        elif call.kind == "x":
            files.pop(call.fd, None)
        elif call.kind == "s" and is_synced:
            if isinstance(file, str):
                disk.sync_directory(file)
            elif file is not None:
                file.fdatasync()
        elif call.kind == "w" and file is not None and not isinstance(file, str):
            file.pwritev((call.data,), call.position, len(call.data))
        elif call.kind == "t" and file is not None and not isinstance(file, str):
            file.truncate(call.position)
        elif call.kind in "rmud":
            self._play_entry(disk, call)

    def _open(self, disk: SimDisk, call: Call) -> File | str:
        path, flags = self._inside(call.data), call.position
        if disk.is_directory(path):
            return path
        if call.kind == "c" and (flags & os.O_TRUNC or not disk.exists(path)):
            return disk.create(path)
        return disk.open(path, write=True)

    def _play_entry(self, disk: SimDisk, call: Call) -> None:
        if call.kind == "r":
            old, new = call.data.split(b"\0")
            disk.rename(self._inside(old), self._inside(new))
            return
        path = self._inside(call.data)
        {"m": disk.mkdir, "u": disk.unlink, "d": disk.rmdir}[call.kind](path)

    def _inside(self, path: bytes) -> str:
        return ROOT + os.fsdecode(path).removeprefix(self._root)

    def image(self, cut: int, rng: random.Random, target: Path) -> None:
        """What the disk holds when the power goes after `cut` calls, put into `target`."""
        disk = self.disk_at(cut)
        disk.crash(rng)
        write_out(disk, ROOT, target)


class LosesAll(random.Random):
    """Nothing survives that was not synced."""

    def choice(self, fates: Sequence[Any]) -> Any:
        return fates[0]


def read_in(disk: SimDisk, path: str, source: Path) -> None:
    for one in source.iterdir():
        inner = f"{path}/{one.name}"
        if one.is_dir():
            disk.mkdir(inner)
            read_in(disk, inner, one)
        else:
            disk.create(inner).close()
            disk.replace(inner, one.read_bytes())
    disk.sync_directory(path)


def write_out(disk: SimDisk, path: str, target: Path) -> None:
    target.mkdir(mode=0o700)
    for name in disk.listdir(path):
        inner = f"{path}/{name}"
        if disk.is_directory(inner):
            write_out(disk, inner, target / name)
        else:
            (target / name).write_bytes(disk.content(inner))
            (target / name).chmod(0o600)
