"""The record of a commit: one small JSON file for each app, with a checksum, replaced atomically.

`prepared` is the decision: from then on the commit will be finished, whatever happens. Each part
has the offset of its topic's log at which it begins, so the log itself shows how much of it is
there. `done` remembers only the version.
"""

import os
from hashlib import sha256
from typing import Literal

import msgspec

from penstock import limits
from penstock.broker.commits.stage_file import make_directory
from penstock.errors import StorageError
from penstock.log.disk import Disk, read_file, replace_file
from penstock.log.names import COMMITS
from penstock.log.seal import seal, unseal

SUFFIX = ".json"
PROBE_NAMES = ("probe.json.tmp", "probed.json.tmp")  # a start removes them


class CommitPart(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    identity: str
    from_offset: int
    count: int
    stages: list[str]  # files, in order
    partition: int = 0


class CommitFile(msgspec.Struct, forbid_unknown_fields=True):
    app: str
    version: int
    state: Literal["prepared", "done"]
    messages: int
    used_ns: int
    before: int | None = None  # the version before this one
    parts: list[CommitPart] = []  # empty once it is done
    format: int = 1


def commit_file_name(app: str) -> str:
    """An app may be called anything."""
    return sha256(app.encode()).hexdigest()[:32] + SUFFIX


def read_commit_file(disk: Disk, path: str) -> CommitFile:
    try:
        data = read_file(disk, path, limits.COMMIT_FILE_BYTES_MAX)
        file = msgspec.json.decode(unseal(data), type=CommitFile)
    except (OSError, ValueError, msgspec.DecodeError) as error:
        reason = f"whether a commit is to be finished cannot be read: {error}"
        raise StorageError(path, reason) from error
    if file.format != 1 or commit_file_name(file.app) != os.path.basename(path):
        raise StorageError(path, f"it is not the record of app {file.app!r} in format 1")
    return file


def prepared_commits(disk: Disk, data_path: str) -> list[CommitFile]:
    """For tools that inspect a directory without starting it."""
    directory = os.path.join(data_path, COMMITS)
    names = sorted(disk.listdir(directory)) if disk.is_directory(directory) else []
    files = [
        read_commit_file(disk, os.path.join(directory, name))
        for name in names
        if name.endswith(SUFFIX)
    ]
    return [file for file in files if file.state == "prepared"]


class RecordJob:
    """Writes a record to disk. `may_be_read`: a start may find it, whatever was raised."""

    teaches = False

    def __init__(self, disk: Disk, directory: str, file: CommitFile) -> None:
        self.may_be_read = False
        self._disk = disk
        self._path = os.path.join(directory, commit_file_name(file.app))
        self._data = seal(msgspec.json.encode(file))

    def run(self) -> None:
        directory = os.path.dirname(self._path)
        make_directory(self._disk, directory)
        replace_file(self._disk, self._path, self._data)
        self.may_be_read = True
        self._disk.sync_directory(directory)
