"""A data path, looked at without its daemon: nothing is written, nothing is locked.

Who holds the lock is read from the system's list of locks: to try the lock would keep a daemon that
starts just then from its data. The check reads every byte, so it is bounded: partitions that are
over the bound are named as not checked.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock import limits
from penstock.log.disk import OsDisk
from penstock.log.inspect import Found, NothingThere, find, is_known
from penstock.log.names import is_stage
from penstock.log.sealed import unseal
from penstock.log.verify import Finding, PartitionSummary, Report, verify
from penstock.nsqadmin.bundle import machine
from penstock.nsqadmin.bundle.writing import Spool

_LOCK = "penstock.lock"
_OPTIONS = ("data=", "errors=", "commit=", "barrier=", "compress=", "size=")  # of a mount


def take(spool: Spool, place: str, path: str, verifies: bool = True) -> None:
    """Everything about one data path, below `place`. What fails is written down."""
    facts: dict[str, Any] = {"path": path}
    parts = (("lock", _lock), ("disk", _disk))
    for name, part in parts:
        try:
            facts[name] = part(path)
        except OSError as error:
            spool.fail(place, name, str(error))
    spool.add_json(f"{place}/facts.json", facts)
    try:
        found = find(OsDisk(), path)
        spool.add_json(f"{place}/segments.json", _segments(path))
        spool.add_json(f"{place}/settings.json", _settings(path, found))
        if verifies:
            spool.add_json(f"{place}/verify.json", _verified(found))
    except (NothingThere, OSError) as error:
        spool.fail(place, "data", str(error))


# --- who has it, and what room there is ---


def _lock(path: str) -> dict[str, Any]:
    try:
        entry = os.stat(os.path.join(path, _LOCK))
    except FileNotFoundError:
        return {"exists": False, "held": False}
    found: dict[str, Any] = {"exists": True, "held": False}
    for line in Path("/proc/locks").read_text("ascii", "replace").splitlines():
        words = line.split()
        if "->" in words or len(words) < 6:
            continue  # somebody waits
        major, minor, inode = words[5].split(":")
        if (
            int(inode) == entry.st_ino
            and os.makedev(int(major, 16), int(minor, 16)) == entry.st_dev
        ):
            pid = int(words[4])
            found |= {"held": True, "pid": pid}
            if pid > 0:  # below: a process of another container
                found["process"] = machine.process(pid)
    return found


def _disk(path: str) -> dict[str, Any]:
    told = os.statvfs(path)
    device, mount, kind, options = _mount(path)
    return {
        "size_bytes": told.f_frsize * told.f_blocks,
        "free_bytes": told.f_frsize * told.f_bavail,
        "inodes": told.f_files,
        "inodes_free": told.f_favail,
        "device_path": device,
        "mount": mount,
        "type": kind,
        "options": options,
        "mode": oct(os.stat(path).st_mode & 0o7777),
    }


def _mount(path: str) -> tuple[str, str, str, str]:
    """The longest mount point above it."""
    real = os.path.realpath(path)
    best = ("", "", "", "")
    for line in Path("/proc/mounts").read_text("utf-8", "replace").splitlines():
        device, mount, kind, options = line.split()[:4]
        inside = real == mount or real.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best[1]):
            best = (device, mount, kind, _harmless(options))
    return best


def _harmless(options: str) -> str:
    """Without those that name other places and people."""
    kept = [one for one in options.split(",") if "=" not in one or one.startswith(_OPTIONS)]
    return ",".join(kept)


# --- what is in it ---


def _segments(path: str) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    count = total = 0
    for row in _files(path):
        count += 1
        total += row["bytes"]
        if len(rows) < limits.BUNDLE_SEGMENTS_MAX:
            rows.append(row)
    return {"files": count, "bytes": total, "listed": rows}


def _files(path: str) -> Iterator[dict[str, Any]]:
    for folder, below, names in os.walk(path):
        below.sort()
        inside = os.path.relpath(folder, path).split(os.sep)
        for name in sorted(names):
            try:
                told = os.lstat(os.path.join(folder, name))
            except OSError:
                continue  # removed meanwhile
            row: dict[str, Any] = {"bytes": told.st_size, "mtime_s": int(told.st_mtime)}
            yield row | _named([*([] if inside == ["."] else inside), name])


def _named(parts: list[str]) -> dict[str, Any]:
    """A file by its place in the data path. What others have named goes under "file"."""
    name = parts[-1]
    ours = is_known(name) and not is_stage(name)
    if len(parts) > 2 and parts[0] == "topics" and ours:
        return {"topic": parts[1], "name": "/".join(parts[2:])}
    return {"name": name} if len(parts) == 1 and (ours or name == _LOCK) else {"file": name}


def _settings(path: str, found: Found) -> dict[str, Any]:
    """The node's and the topics' own files."""
    rows: list[dict[str, Any]] = []
    wanted = [one for one in found.settings if os.path.basename(one) in ("node.json", "topic.json")]
    for one in wanted[: limits.BUNDLE_SETTINGS_MAX]:
        row: dict[str, Any] = {"name": os.path.basename(one)}
        if row["name"] == "topic.json":
            row["topic"] = os.path.basename(os.path.dirname(one))
        try:
            with open(one, "rb") as file:
                data = file.read(limits.BUNDLE_SETTING_BYTES_MAX)
            row["holds"] = _by_kind(json.loads(unseal(data)))
        except (OSError, ValueError, RecursionError) as error:
            row["unreadable"] = str(error)
        rows.append(row)
    return {"count": len(wanted), "settings": rows}


def _by_kind(holds: dict[str, Any]) -> dict[str, Any]:
    """With names under keys that say what they name, as everywhere in a bundle."""
    if "name" not in holds:
        return holds
    channels = [
        {"channel_name": one.get("name", ""), **{k: v for k, v in one.items() if k != "name"}}
        for one in holds.get("channels") or ()
    ]
    rest = {key: value for key, value in holds.items() if key not in ("name", "channels")}
    return {"topic_name": holds["name"], **rest, "channels": channels}


def _verified(found: Found) -> dict[str, Any]:
    disk, left = OsDisk(), limits.BUNDLE_VERIFY_BYTES_MAX
    report = verify(disk, Found([], found.settings, [], found.stages))
    skipped = []
    for place in found.places:
        size = sum(row["bytes"] for row in _files(place.path))
        if size > left:
            skipped.append({"topic": place.topic, "partition": place.partition, "bytes": size})
            continue
        left -= size
        _merge(report, verify(disk, Found([place], [], [], [])))
    listed = limits.BUNDLE_VERIFY_FINDINGS_MAX
    return {
        "sound": not report.findings,
        "findings_count": len(report.findings),
        "findings": [_finding(one) for one in report.findings[:listed]],
        "notes": [_finding(one) for one in report.notes[:listed]],
        "partitions": [_summary(one) for one in report.partitions],
        "bytes_checked": report.bytes_checked,
        "not_checked": skipped,
    }


def _summary(one: PartitionSummary) -> dict[str, Any]:
    return {key: value for key, value in one._asdict().items() if key != "path"}


def _merge(report: Report, other: Report) -> None:
    report.findings += other.findings
    report.notes += other.notes
    report.partitions += other.partitions
    report.bytes_checked += other.bytes_checked


def _finding(one: Finding) -> dict[str, Any]:
    parts = one.path.split("/")
    row = {key: value for key, value in one._asdict().items() if key != "path"}
    at = len(parts) - 1 - parts[::-1].index("topics") if "topics" in parts else len(parts) - 1
    return row | _named(parts[at:])
