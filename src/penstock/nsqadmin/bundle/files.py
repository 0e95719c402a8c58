"""The file of a bundle: a zip written part by part, and its reader.

Secrets are taken out on the way in: they are never on the disk. The zip is private, and gets its
name when it is whole, with the manifest as its last file.

One that is read may come from anybody. Nothing is unpacked to the disk, and of what is unpacked in
memory the bytes are counted, because the list of contents may lie (zip bombs). Every file is the
one that the manifest names, by its checksum.
"""

import asyncio
import hashlib
import os
import tempfile
import zipfile
import zlib
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from penstock import limits
from penstock.errors import BundleBroken
from penstock.nsqadmin.bundle import hiding

FORM = "penstock-bundle"
VERSION = 1
MANIFEST = "manifest.json"
_ONE_TIME = (1980, 1, 1, 0, 0, 0)  # of a zip's members: the manifest says when

D = TypeVar("D")


class Member(msgspec.Struct):
    """One daemon; its files are below `folder`."""

    folder: str  # "nsqd/1"
    kind: str
    address: str


class Failure(msgspec.Struct):
    folder: str
    asked: str  # "/stats"
    reason: str


class Part(msgspec.Struct):
    name: str
    bytes: int
    sha256: str
    asked: str = ""  # the path that it is the answer of
    took_ms: int = 0


class About(msgspec.Struct):
    made: str = ""
    who: str = ""
    command: str = ""  # as it was typed
    seconds: int = 0
    took_seconds: float = 0.0


class Manifest(About):
    form: str = ""
    version: int = 0
    daemons: list[Member] = []
    failures: list[Failure] = []
    files: list[Part] = []


class Spool:
    """A bundle in creation, bounded as a whole. Close it."""

    def __init__(self, path: Path, bytes_max: int = limits.BUNDLE_BYTES_MAX) -> None:
        self._path = path
        number, self._unfinished = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent or ".")
        self._file = os.fdopen(number, "wb")  # mkstemp has made it private
        self._zip = zipfile.ZipFile(self._file, "w", zipfile.ZIP_DEFLATED, compresslevel=6)
        self._lock = asyncio.Lock()
        self._left = bytes_max
        self.manifest = Manifest(form=FORM, version=VERSION)

    async def add(self, name: str, data: bytes, asked: str = "", took_ms: int = 0) -> None:
        """One at a time, while the event loop continues."""
        async with self._lock:
            await asyncio.to_thread(self.put, name, data, asked, took_ms)

    def put(self, name: str, data: bytes, asked: str = "", took_ms: int = 0) -> None:
        data = hiding.without_secrets(name, data)
        if len(data) > self._left or len(self.manifest.files) >= limits.BUNDLE_FILES_MAX:
            folder = name.rpartition("/")[0]
            self.fail(folder, asked or name, f"left out: {len(data):,} bytes, the bundle is full")
            return
        self._left -= len(data)
        self._write(name, data)
        digest = hashlib.sha256(data).hexdigest()
        self.manifest.files.append(Part(name, len(data), digest, asked, took_ms))

    def fail(self, folder: str, asked: str, reason: str) -> None:
        self.manifest.failures.append(Failure(folder, asked, hiding.clean_text(reason)))

    def _write(self, name: str, data: bytes) -> None:
        entry = zipfile.ZipInfo(name, _ONE_TIME)
        entry.compress_type = zipfile.ZIP_DEFLATED
        entry.external_attr = 0o600 << 16
        self._zip.writestr(entry, data)

    def finish(self, about: About) -> None:
        found = msgspec.to_builtins(self.manifest) | msgspec.to_builtins(about)
        self._write(MANIFEST, hiding.to_bytes(hiding.clean(found)))
        self._zip.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        os.replace(self._unfinished, self._path)

    def close(self) -> None:
        """An unfinished bundle leaves nothing behind."""
        with suppress(OSError, ValueError):
            self._zip.close()
        with suppress(OSError):
            self._file.close()
        Path(self._unfinished).unlink(missing_ok=True)


class Bundle:
    """Checked, and held in memory."""

    def __init__(self, manifest: Manifest, files: dict[str, bytes]) -> None:
        self.manifest = manifest
        self._files = files

    def text(self, name: str) -> str:
        """ "" when it is not there."""
        return self._files.get(name, b"").decode("utf-8", "replace")

    def document(self, name: str, form: type[D]) -> D:
        """Empty when it is missing, or of another form: a daemon may have sent anything."""
        try:
            return msgspec.json.decode(self._files[name], type=form)
        except (KeyError, ValueError, RecursionError):
            return form()


def read(path: str) -> Bundle:
    """Raises BundleBroken, and OSError when it can't be opened."""
    size = Path(path).stat().st_size
    if size > limits.BUNDLE_ZIP_BYTES_MAX:
        raise BundleBroken(path, f"{size:,} bytes are too many for a bundle")
    try:
        with zipfile.ZipFile(path) as archive:
            files = _unpacked(path, archive)
    except (
        zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError
    ) as error:  # fmt: skip
        raise BundleBroken(path, f"no zip, or a damaged one: {error or 'it ends early'}") from error
    if MANIFEST not in files:
        raise BundleBroken(path, "no diagnostic bundle of Penstock: it has no manifest.json")
    manifest = _manifest(path, files.pop(MANIFEST))
    _compare(path, {one.name: one.sha256 for one in manifest.files}, files)
    return Bundle(manifest, files)


def _unpacked(path: str, archive: zipfile.ZipFile) -> dict[str, bytes]:
    left = limits.BUNDLE_BYTES_MAX + limits.BUNDLE_ANSWER_BYTES_MAX
    entries, files = archive.infolist(), {}
    if len(entries) > limits.BUNDLE_FILES_MAX + 1:
        raise BundleBroken(path, f"{len(entries):,} files are too many for a bundle")
    for entry in entries:
        with archive.open(entry) as file:
            data = file.read(left + 1)
        if len(data) > left:
            raise BundleBroken(path, "it is too large unpacked for a bundle")
        files[entry.filename] = data
        left -= len(data)
    return files


def _manifest(path: str, data: bytes) -> Manifest:
    try:
        found = msgspec.json.decode(data, type=Manifest)
    except (ValueError, RecursionError) as error:
        raise BundleBroken(path, f"its manifest.json is damaged: {error}") from error
    if found.form != FORM:
        raise BundleBroken(path, "no diagnostic bundle of Penstock: manifest.json has another form")
    if found.version != VERSION:
        known = f"this penstock reads version {VERSION}"
        raise BundleBroken(path, f"its form has version {found.version}, {known}")
    return found


def _compare(path: str, known: dict[str, str], files: dict[str, bytes]) -> None:
    for name in sorted(known.keys() | files.keys()):
        if name not in known:
            raise BundleBroken(path, f"it was changed: {name!r} is not in its manifest")
        if name not in files:
            raise BundleBroken(path, f"it was changed: {name!r} is missing")
        if hashlib.sha256(files[name]).hexdigest() != known[name]:
            raise BundleBroken(path, f"it was changed: {name!r} has another checksum")
