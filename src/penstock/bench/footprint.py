"""What a running archive and its nsqd hold: memory by part, open files, files of the table.

Memory is what belongs to a process alone (`RssAnon`): pages of mapped files come and go with the
system's cache, and say nothing of a leak.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_PROC = Path("/proc")


def descendants(root: int) -> set[int]:
    """A process and all that it started, as far as they still run."""
    parents: dict[int, int] = {}
    for entry in _PROC.glob("[0-9]*"):
        fields = _text(entry / "stat").rpartition(")")[2].split()
        if fields:
            parents[int(entry.name)] = int(fields[1])
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def memory_mb(pid: int) -> float:
    """0 when it has ended."""
    for line in _text(_PROC / str(pid) / "status").splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1000
    return 0.0


def open_files(pid: int) -> int:
    try:
        return len(os.listdir(_PROC / str(pid) / "fd"))
    except OSError:  # it has just ended
        return 0


def parts_mb(driver: int) -> dict[str, float]:
    """The archive's memory: the driver, its JVM, and the Python workers, which are many."""
    found = {"driver": 0.0, "JVM": 0.0, "workers": 0.0}
    for pid in descendants(driver):
        found[_part(pid, driver)] += memory_mb(pid)
    return found


def jvm(driver: int) -> int:
    """0 when there is none."""
    return next((pid for pid in descendants(driver) if _part(pid, driver) == "JVM"), 0)


def files(directory: Path, pattern: str = "**/*") -> int:
    """How many there are now; the table may be changing meanwhile."""
    return sum(1 for _ in _files(directory, pattern))


def _files(directory: Path, pattern: str) -> Iterator[Path]:
    try:
        yield from (path for path in directory.glob(pattern) if path.is_file())
    except FileNotFoundError:
        return  # a directory was removed while it was being read


def _part(pid: int, driver: int) -> str:
    if pid == driver:
        return "driver"
    return "JVM" if _text(_PROC / str(pid) / "comm").strip() == "java" else "workers"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:  # the process has just ended
        return ""
