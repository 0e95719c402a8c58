"""The file of a bundle: parts on their way into it, the zip that they become, and one that is read
and may come from anybody.

What is gathered goes to an unnamed file first, so that a large installation fills no memory.
Secrets are taken out on the way in: they are never on the disk. The zip is private, and gets its
name when it is whole.

Of one that is read nothing is unpacked to the disk. Before a byte is unpacked the list of contents
is held against the bounds; while it is unpacked the bytes are counted, because a list may lie (zip
bombs). Names are plain relative paths, each once. Every file is the one that the manifest tells of,
by its checksum.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from penstock import limits
from penstock.errors import BundleBroken
from penstock.nsqadmin.bundle import hiding
from penstock.nsqadmin.bundle.hiding import Kind

FORM = "penstock-bundle"
VERSION = 1
MANIFEST = "manifest.json"
_ONE_TIME = (1980, 1, 1, 0, 0, 0)  # of a zip's members: the manifest says when
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_LINK = 0o120000


class Member(NamedTuple):
    """One daemon that was asked; its files are below `place`."""

    place: str  # "nsqd/1"
    kind: str
    address: str


class Failure(NamedTuple):
    place: str
    asked: str  # "/stats"
    reason: str


class Part(NamedTuple):
    name: str
    kind: Kind
    position: int
    bytes: int
    asked: str  # what it is the answer to
    took_ms: int


class Spool:
    """Parts of a bundle, bounded as a whole. Close it."""

    def __init__(self, bytes_max: int = limits.BUNDLE_BYTES_MAX) -> None:
        self._file = tempfile.TemporaryFile(prefix="penstock-bundle-")  # noqa: SIM115
        self._left = bytes_max
        self.parts: list[Part] = []
        self.members: list[Member] = []
        self.failures: list[Failure] = []

    def add(self, name: str, kind: Kind, data: bytes, asked: str = "", took_ms: int = 0) -> bool:
        """Whether there was room for it."""
        return self._add(name, kind, hiding.without_secrets(kind, data), asked, took_ms)

    async def add_answer(
        self, name: str, kind: Kind, data: bytes, asked: str, took_ms: int = 0
    ) -> bool:
        """The same for what may be large: the event loop goes on meanwhile."""
        clean = await asyncio.to_thread(hiding.without_secrets, kind, data)
        return self._add(name, kind, clean, asked, took_ms)

    def _add(self, name: str, kind: Kind, data: bytes, asked: str, took_ms: int) -> bool:
        if len(data) > self._left or len(self.parts) >= limits.BUNDLE_FILES_MAX:
            place = name.rpartition("/")[0]
            self.fail(place, asked or name, f"left out: {len(data):,} bytes, the bundle is full")
            return False
        self._left -= len(data)
        position = self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self.parts.append(Part(name, kind, position, len(data), asked, took_ms))
        return True

    def add_json(self, name: str, document: Any) -> bool:
        return self.add(name, Kind.JSON, hiding.to_bytes(document))

    def fail(self, place: str, asked: str, reason: str) -> None:
        self.failures.append(Failure(place, asked, hiding.clean_text(reason)))

    def read(self, part: Part) -> bytes:
        self._file.seek(part.position)
        return self._file.read(part.bytes)

    def close(self) -> None:
        self._file.close()


def write(spool: Spool, path: Path, about: dict[str, Any]) -> None:
    """Make the zip. `about` goes into the manifest. Nothing is left behind when it fails."""
    number, unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent or ".")
    try:
        with os.fdopen(number, "wb") as file:  # mkstemp has made it private
            with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
                _fill(archive, spool, about)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise


def _fill(archive: zipfile.ZipFile, spool: Spool, about: dict[str, Any]) -> None:
    files = []
    for part in spool.parts:
        data = spool.read(part)
        _put(archive, part.name, data)
        files.append({
            "name": part.name, "bytes": part.bytes, "sha256": hashlib.sha256(data).hexdigest(),
            "asked": part.asked, "took_ms": part.took_ms,
        })  # fmt: skip
    told = manifest(about, spool.members, spool.failures) | {"files": files}
    _put(archive, MANIFEST, hiding.to_bytes(hiding.clean(told)))


def manifest(
    about: dict[str, Any], members: list[Member], failures: list[Failure]
) -> dict[str, Any]:  # fmt: skip
    return {
        "form": FORM,
        "version": VERSION,
        **about,
        "daemons": [one._asdict() for one in members],
        "failures": [one._asdict() for one in failures],
    }


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _ONE_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, data)


# --- reading ---


class Bundle:
    """Checked, and held in memory as far as anybody judges it."""

    def __init__(self, manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        self.manifest = manifest
        self._files = files

    def names(self) -> list[str]:
        return sorted(self._files)

    def text(self, name: str) -> str:
        """ "" when it is not there."""
        return self._files.get(name, b"").decode("utf-8", "replace")

    def document(self, name: str) -> dict[str, Any]:
        """Empty when it is not there, or no JSON object: a daemon may have said anything."""
        try:
            found = json.loads(self._files[name])
        except (KeyError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def read(path: str) -> Bundle:
    """Raises BundleBroken, and OSError when it can't be opened."""
    size = Path(path).stat().st_size
    if size > limits.BUNDLE_ZIP_BYTES_MAX:
        raise BundleBroken(path, f"{size:,} bytes are too many for a bundle")
    try:
        with zipfile.ZipFile(path) as archive:
            reason = _fault(archive.infolist())
            if reason:
                raise BundleBroken(path, reason)
            files = _unpacked(path, archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise BundleBroken(path, f"no zip, or a damaged one: {error or 'it ends early'}") from error
    told = _manifest(path, files.pop(MANIFEST))
    _compare(path, told, files)
    return Bundle(told, files)


def _fault(entries: list[zipfile.ZipInfo]) -> str:
    """Why nothing of it is unpacked; "" when it may be."""
    if len(entries) > limits.BUNDLE_FILES_MAX + 1:
        return f"{len(entries):,} files are too many for a bundle"
    for entry in entries:
        reason = _fault_of(entry)
        if reason:
            return f"{entry.filename[:200]!r} in it {reason}"
    names = {entry.filename for entry in entries}
    if len(names) != len(entries):
        return "it holds two files of the same name"
    if MANIFEST not in names:
        return "no diagnostic bundle of Penstock: it has no manifest.json"
    if sum(entry.file_size for entry in entries) > _bytes_max():
        return "it is too large unpacked for a bundle"
    return ""


def _bytes_max() -> int:
    return limits.BUNDLE_BYTES_MAX + limits.BUNDLE_ANSWER_BYTES_MAX


def _fault_of(entry: zipfile.ZipInfo) -> str:
    parts = entry.filename.split("/")
    if entry.filename.startswith("/") or "\\" in entry.orig_filename or ":" in parts[0]:
        return "is no relative path"
    if any(part in ("", ".", "..") for part in parts) or "\0" in entry.orig_filename:
        return "is no plain path"
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if entry.external_attr >> 16 & 0o170000 == _LINK:
        return "is a link"
    return "" if entry.compress_type in _METHODS else "is packed in a way that no bundle is"


def _unpacked(path: str, archive: zipfile.ZipFile) -> dict[str, bytes]:
    left, files = _bytes_max(), {}
    for entry in archive.infolist():
        with archive.open(entry) as file:
            data = file.read(left + 1)
        if len(data) > left or len(data) != entry.file_size:
            raise BundleBroken(path, f"{entry.filename!r} has another size than it says")
        files[entry.filename] = data
        left -= len(data)
    return files


def _manifest(path: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleBroken(path, f"its manifest.json is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("form") != FORM:
        raise BundleBroken(path, "no diagnostic bundle of Penstock: manifest.json has another form")
    if found.get("version") != VERSION:
        known = f"this penstock reads version {VERSION}"
        raise BundleBroken(path, f"its form has version {found.get('version')!r}, {known}")
    return found


def _compare(path: str, manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    """What is there is what was written."""
    rows = manifest.get("files")
    told = {row.get("name"): row for row in rows if isinstance(row, dict)} if isinstance(
        rows, list
    ) else {}  # fmt: skip
    for name in sorted(told.keys() ^ files.keys(), key=str):
        reason = "is missing" if name in told else "is not in its manifest"
        raise BundleBroken(path, f"it was changed: {name!r} {reason}")
    for name, data in files.items():
        if hashlib.sha256(data).hexdigest() != told[name].get("sha256"):
            raise BundleBroken(path, f"it was changed: {name!r} has another checksum")
