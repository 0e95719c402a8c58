"""Rules about machines: room and memory.

| rule          | when                                                                    | level |
|---------------|-------------------------------------------------------------------------|-------|
| watermark     | an nsqd's free space is below min-disk-free                             | bad   |
| near it       | it is below twice as much                                               | warn  |
| memory        | of this machine, or of the container, little is left                    | warn  |
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock import limits
from penstock.nsqadmin.attention import Finding, Level
from penstock.nsqadmin.bundle.contents import (
    Contents,
    Document,
    Node,
    number,
    text,
)
from penstock.nsqadmin.bundle.reading import Bundle


def findings(bundle: Bundle, held: Contents) -> Iterator[Finding]:
    for node in held.up():
        yield from _of_node(node)
    yield from _memory(bundle.document("machine/limits.json"))


def _of_node(node: Node) -> Iterator[Finding]:
    path, what = ("nodes", node.address), f"node {node.address}"
    disk = node.stats.get("disk") or {}
    floor, free = number(node.config, "min_disk_free"), number(disk, "free_bytes")
    if floor and number(disk, "size_bytes"):
        why = (
            f"{free / 1e9:,.1f} GB are free, and publishes are refused below {floor / 1e9:,.1f} GB."
        )
        step = "Empty channels nobody reads, lower -retain-age and -retain-bytes, or grow the disk."
        if free < floor:
            yield Finding(Level.BAD, f"{what} is below its disk watermark", why, step, path)
        elif free < floor * limits.BUNDLE_WATERMARK_SHARE:
            yield Finding(Level.WARN, f"{what} is near its disk watermark", why, step, path)


def _memory(document: Document) -> Iterator[Finding]:
    step = "Find what takes it (ps, systemd-cgtop); nsqd itself stays flat whatever the backlog."
    memory = document.get("memory")
    memory = memory if isinstance(memory, dict) else {}
    total, free = number(memory, "MemTotal"), number(memory, "MemAvailable")
    if total and free < total * limits.BUNDLE_MEMORY_FREE_SHARE:
        why = f"{free / 1e6:,.0f} MB of {total / 1e6:,.0f} MB are available."
        yield Finding(Level.WARN, "this machine runs out of memory", why, step, ())
    cgroup = document.get("cgroup")
    cgroup = cgroup if isinstance(cgroup, dict) else {}
    bound, used = text(cgroup, "memory.max"), text(cgroup, "memory.current")
    if bound.isdigit() and used.isdigit() and int(bound):
        left = 1 - int(used) / int(bound)
        if left < limits.BUNDLE_MEMORY_FREE_SHARE:
            why = f"{int(used) / 1e6:,.0f} MB of {int(bound) / 1e6:,.0f} MB are used."
            yield Finding(Level.WARN, "this container runs out of memory", why, step, ())
