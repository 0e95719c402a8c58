"""Opening a bundle that may come from anybody, and be anything.

Nothing is unpacked to the disk. Before a byte is unpacked the list of contents is held against the
bounds; while it is unpacked the bytes are counted, because a list may lie (zip bombs). Names are
plain relative paths, each once. Every file is the one that the manifest tells of, by its checksum.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from pathlib import Path
from typing import Any

from penstock import limits
from penstock.errors import BundleBroken
from penstock.nsqadmin.bundle import form

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED = 0x1
_LINK = 0o120000


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
            return _checked(path, archive)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
        raise BundleBroken(path, f"no zip, or a damaged one: {error or 'it ends early'}") from error


def _checked(path: str, archive: zipfile.ZipFile) -> Bundle:
    entries = archive.infolist()
    if len(entries) > limits.BUNDLE_FILES_MAX + 1:
        raise BundleBroken(path, f"{len(entries):,} files are too many for a bundle")
    for entry in entries:
        reason = _fault(entry)
        if reason:
            raise BundleBroken(path, f"{entry.filename[:200]!r} in it {reason}")
    if len({entry.filename for entry in entries}) != len(entries):
        raise BundleBroken(path, "it holds two files of the same name")
    if form.MANIFEST not in archive.namelist():
        raise BundleBroken(path, "no diagnostic bundle of Penstock: it has no manifest.json")
    left = limits.BUNDLE_BYTES_MAX + limits.BUNDLE_ANSWER_BYTES_MAX
    if sum(entry.file_size for entry in entries) > left:
        raise BundleBroken(path, "it is too large unpacked for a bundle")
    files: dict[str, bytes] = {}
    for entry in entries:
        files[entry.filename] = data = _unpacked(path, archive, entry, left)
        left -= len(data)
    manifest = _manifest(path, files.pop(form.MANIFEST))
    _compare(path, manifest, files)
    return Bundle(manifest, files)


def _fault(entry: zipfile.ZipInfo) -> str:
    parts = entry.filename.split("/")
    if entry.filename.startswith("/") or "\\" in entry.orig_filename or ":" in parts[0]:
        return "is no relative path"
    if any(part in ("", ".", "..") for part in parts) or "\0" in entry.orig_filename:
        return "is no plain path"
    if entry.flag_bits & _ENCRYPTED:
        return "is encrypted"
    if entry.external_attr >> 16 & 0o170000 == _LINK:
        return "is a link"
    if entry.compress_type not in _METHODS:
        return "is packed in a way that no bundle is"
    return ""


def _unpacked(path: str, archive: zipfile.ZipFile, entry: zipfile.ZipInfo, left: int) -> bytes:
    with archive.open(entry) as file:
        data = file.read(left + 1)
    if len(data) > left or len(data) != entry.file_size:
        raise BundleBroken(path, f"{entry.filename!r} has another size than it says")
    return data


def _manifest(path: str, data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise BundleBroken(path, f"its manifest.json is damaged: {error}") from error
    if not isinstance(found, dict) or found.get("form") != form.FORM:
        raise BundleBroken(path, "no diagnostic bundle of Penstock: manifest.json has another form")
    version = found.get("version")
    if version != form.VERSION:
        known = f"this penstock reads version {form.VERSION}"
        raise BundleBroken(path, f"its form has version {version!r}, {known}")
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
