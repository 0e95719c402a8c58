"""The machine: which cores to use, what to say about it in a report, whether it is busy."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

BUSY_LOAD_PER_CORE = 0.4  # above this, figures of a two-core machine wander by tens of percent


@cache
def cores() -> tuple[set[int], set[int], bool]:
    """(daemon's, generator's, do they differ?). With one core both share it, unpinned.

    Asked once: when this process is pinned to its own core, that is all it may still use.
    """
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < 2:
        return set(usable), set(usable), False
    return {usable[0]}, {usable[1]}, True


@contextmanager
def pinned(to: set[int]) -> Iterator[None]:
    """Run this process, and what it starts meanwhile, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, to)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_mb() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 1_000_000


def filesystem(path: Path) -> str:
    """The kind of file system that holds `path`."""
    best, kind = "", "unknown"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, found = line.split()[:3]
        inside = path.resolve().is_relative_to(where)
        if inside and len(where) >= len(best):
            best, kind = where, found
    return kind


def describe(data: Path) -> dict[str, Any]:
    return {
        "cpu": cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "pinned": cores()[2],
        "memory_mb": memory_mb(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "filesystem": filesystem(data),
        "load_average": round(os.getloadavg()[0], 2),
    }


def busy(load_average: float, core_count: int) -> bool:
    return load_average > BUSY_LOAD_PER_CORE * core_count
