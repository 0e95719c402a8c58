"""Rules about machines: room, limits, and what a data path holds.

| rule          | when                                                                    | level |
|---------------|-------------------------------------------------------------------------|-------|
| watermark     | an nsqd's free space is below min-disk-free                             | bad   |
| near it       | it is below twice as much                                               | warn  |
| descriptors   | an nsqd may open few files, or has opened most of those                 | warn  |
| memory        | of this machine, or of the container, little is left                    | warn  |
| inodes        | a data path's disk has few left                                         | warn  |
| damaged       | the check of a data path has found something                            | bad   |
| not checked   | a partition was too large for the check                                 | note  |
| path gone     | a data path could not be read                                           | bad   |
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock import limits
from penstock.nsqadmin.attention import Finding, Level
from penstock.nsqadmin.bundle.contents import (
    Contents,
    Document,
    Node,
    is_number,
    listed,
    number,
    rows,
    text,
)
from penstock.nsqadmin.bundle.reading import Bundle

_FULL_SHARE = 0.8  # of the descriptors that a process may have


def findings(bundle: Bundle, held: Contents) -> Iterator[Finding]:
    for node in held.up():
        yield from _of_node(node)
    yield from _memory(bundle.document("machine/limits.json"))
    places = {name.rpartition("/")[0] for name in bundle.names() if name.startswith("data/")}
    places |= {one.place for one in held.failures if one.place.startswith("data/")}
    for place in sorted(places):
        yield from _of_path(bundle, place, held)


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


# --- a data path ---


def _of_path(bundle: Bundle, place: str, held: Contents) -> Iterator[Finding]:
    facts = bundle.document(f"{place}/facts.json")
    name = text(facts, "path") or place
    for one in held.failures:
        if one.place == place and one.asked == "data":
            step = "Is it mounted, and may you read it? Gather as the user that nsqd runs as."
            yield Finding(Level.BAD, f"data path {name} can't be read", f"{one.reason}.", step, ())
    disk, lock = (facts.get(key) for key in ("disk", "lock"))
    if isinstance(disk, dict):
        free, count = number(disk, "inodes_free"), number(disk, "inodes")
        if count and free < count * limits.ADMIN_DISK_FREE_SHARE:
            why = f"{free:,.0f} of {count:,.0f} are free: every topic and segment needs some."
            step = "Remove other small files from that disk, or format it again with more inodes."
            yield Finding(Level.WARN, f"the disk of {name} runs out of inodes", why, step, ())
    process = lock.get("process") if isinstance(lock, dict) else None
    if isinstance(process, dict):
        yield from _descriptors(name, process)
    yield from _verified(name, bundle.document(f"{place}/verify.json"))


def _descriptors(name: str, process: dict[str, Any]) -> Iterator[Finding]:
    ulimits = process.get("ulimits")
    bounds = ulimits.get("open_files") if isinstance(ulimits, dict) else None
    bound = bounds[0] if isinstance(bounds, list) and bounds else None
    if not is_number(bound) or bound is None:
        return
    used = number(process, "descriptors")
    step = "Raise it where nsqd is started: LimitNOFILE= of systemd, ulimit -n, or --ulimit."
    if bound < limits.BUNDLE_DESCRIPTORS_MIN:
        why = f"{bound:,} descriptors at most, {used:,.0f} of them open; each connection is one."
        yield Finding(Level.WARN, f"the nsqd of {name} may open few files", why, step, ())
    elif used > bound * _FULL_SHARE:
        why = f"{used:,.0f} descriptors are open, {bound:,} at most."
        yield Finding(Level.WARN, f"the nsqd of {name} runs out of descriptors", why, step, ())


def _verified(name: str, document: Document) -> Iterator[Finding]:
    found = list(rows(document, "findings"))
    count = int(number(document, "findings_count")) or len(found)
    if count:
        reasons = listed(f"{text(row, 'topic')} {text(row, 'reason')}".strip() for row in found)
        step = (
            "Copy the directory away, then run penstock log verify: sound messages are served,"
            " damaged ones stepped over."
        )
        what = f"data path {name} is damaged"
        yield Finding(Level.BAD, what, f"{count:,} findings: {reasons}.", step, ())
    skipped = [
        f"{text(row, 'topic')}/{row.get('partition')}" for row in rows(document, "not_checked")
    ]
    if skipped:
        step = "Run penstock log verify on it when there is time."
        why = f"Too large for the bundle's check: {listed(skipped)}."
        yield Finding(Level.NOTE, f"data path {name} is not checked whole", why, step, ())
