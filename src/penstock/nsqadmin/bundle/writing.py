"""Files on their way into a bundle, and the zip that they become.

What is gathered goes to an unnamed file first, so that a large installation fills no memory and the
names in it are all known before the first is replaced. Secrets are taken out on the way in: they
are never on the disk. The zip is private, and gets its name when it is whole.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

from penstock import limits
from penstock.nsqadmin.bundle import form, hiding
from penstock.nsqadmin.bundle.form import Failure, File, Kind, Member

_ONE_TIME = (1980, 1, 1, 0, 0, 0)  # of a zip's members: the manifest says when


class Part(NamedTuple):
    name: str
    kind: Kind
    position: int
    bytes: int
    asked: str
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
    files: list[File] = []
    for part in spool.parts:
        data = spool.read(part)
        _put(archive, part.name, data)
        digest = hashlib.sha256(data).hexdigest()
        files.append(File(part.name, len(data), digest, part.asked, part.took_ms))
    manifest = form.manifest(about, spool.members, files, spool.failures)
    _put(archive, form.MANIFEST, hiding.to_bytes(hiding.clean(manifest)))


def _put(archive: zipfile.ZipFile, name: str, data: bytes) -> None:
    entry = zipfile.ZipInfo(name, _ONE_TIME)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o600 << 16
    archive.writestr(entry, data)
