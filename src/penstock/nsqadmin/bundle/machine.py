"""This machine: versions, limits and room, without anything that tells who works here."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from penstock import __version__

_PACKAGES = (
    "aiohttp", "cramjam", "cython", "duckdb", "deltalake", "fastapi", "msgspec", "nicegui",
    "pyarrow", "pyspark", "starlette", "uvicorn",
)  # fmt: skip
_LIMITS = ("NOFILE", "NPROC", "AS", "CORE", "FSIZE", "MEMLOCK", "STACK")
_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_FILES = (
    "memory.max", "memory.current", "memory.high", "memory.events", "cpu.max", "cpu.stat",
    "pids.max", "pids.current", "io.max",
)  # fmt: skip


def versions() -> dict[str, Any]:
    return {
        "penstock": __version__,
        "python": platform.python_version(),
        "implementation": platform.python_implementation(),
        "system": platform.system(),
        "release": platform.release(),
        "machine": platform.machine(),
        "libc": " ".join(platform.libc_ver()),
        "distribution": _distribution(),
        "packages": dict(_packages()),
    }


def _packages() -> Iterable[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            continue


def _distribution() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return ""


def limits_here() -> dict[str, Any]:
    """Of the process that gathers."""
    kinds = ((name, getattr(resource, f"RLIMIT_{name}", None)) for name in _LIMITS)
    found = {name: resource.getrlimit(kind) for name, kind in kinds if kind is not None}
    return {
        "ulimits": {name.lower(): [_limit(one) for one in pair] for name, pair in found.items()},
        "cpus": os.cpu_count(),
        "cpus_allowed": len(os.sched_getaffinity(0)) if sys.platform == "linux" else None,
        "load": list(os.getloadavg()),
        "memory": memory(),
        "cgroup": _cgroup(),
        "environment": sorted(name for name in os.environ if name.startswith("PENSTOCK_")),
    }


def _limit(value: int) -> int | str:
    return "unlimited" if value == resource.RLIM_INFINITY else value


def memory() -> dict[str, int]:
    """In bytes, as the system tells; empty where it does not."""
    found = {}
    for line in _read(Path("/proc/meminfo")).splitlines():
        name, _, rest = line.partition(":")
        number = rest.split()[:1]
        if name in ("MemTotal", "MemFree", "MemAvailable", "SwapTotal", "SwapFree") and number:
            found[name] = int(number[0]) * 1024
    return found


def _cgroup() -> dict[str, str]:
    """Of this process; in a container its own is at the root."""
    own = _read(Path("/proc/self/cgroup")).strip().rpartition("::")[2].lstrip("/")
    found = {}
    for name in _CGROUP_FILES:
        text = _read(_CGROUP / own / name) or _read(_CGROUP / name)
        if text:
            found[name] = text.strip()
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
