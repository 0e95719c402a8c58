"""The file that `nsq_to_file` writes for one topic: its name, when it ends, and when its messages
are safe.

A message is a line: its body and a newline. What is written becomes safe with `sync`; only then may
the messages be finished. With gzip each sync ends a member, so that what is safe can be read.

The name comes from a template. With gzip, rotation or a work directory `<REV>` stands for
`-000000`, or for the first number after it that no file has; otherwise it stands for nothing. Files
that are gzipped, or end by time, are made new and never appended to; others are continued.

With a work directory the file is written there and moved to the output directory when it is
complete. The move never overwrites: it is a hard link, and then the old name is removed; where the
two directories are on different disks the file is copied under a name that ends in `.partial`
first.
"""

import gzip
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from penstock import limits
from penstock.errors import ConfigError
from penstock.log.disk import OsDisk

REVISIONS_MAX = 1_000_000
DIRECTORY_MODE = 0o770
FILE_MODE = 0o640


@dataclass(frozen=True)
class Layout:
    output_dir: Path
    work_dir: Path
    filename_format: str = "<TOPIC>.<HOST><REV>.<DATETIME>.log"
    datetime_format: str = "%Y-%m-%d_%H"
    host: str = ""
    gzip_level: int = 0  # 0: plain
    rotate_bytes: int = 0
    rotate_ns: int = 0
    skip_empty: bool = False

    def __post_init__(self) -> None:
        if self.is_numbered and "<REV>" not in self.filename_format:
            raise ConfigError(
                "filename-format", self.filename_format, "must have <REV> with gzip, rotation or "
                "a work directory, or files would meet",
            )  # fmt: skip

    @property
    def moves(self) -> bool:
        return self.work_dir != self.output_dir

    @property
    def is_exclusive(self) -> bool:
        return bool(self.gzip_level or self.rotate_ns)

    @property
    def is_numbered(self) -> bool:
        return bool(self.is_exclusive or self.rotate_bytes or self.moves)

    def names(self, topic: str, moment: str) -> Iterator[str]:
        """In the order of attempts. As in the official one: with gzip, rotation or a work directory
        every name has a number, from -000000 on; otherwise a file is continued."""
        text = self.filename_format.replace("<TOPIC>", topic).replace("<HOST>", self.host)
        text = text.replace("<PID>", str(os.getpid())).replace("<DATETIME>", moment)
        text += ".gz" if self.gzip_level and not text.endswith(".gz") else ""
        for number in range(0 if self.is_numbered else -1, REVISIONS_MAX):
            yield text.replace("<REV>", f"-{number:06d}" if number >= 0 else "")


class ArchiveFile:
    """`write`, then `sync`, and only then finish the messages. `close` at the end."""

    def __init__(self, topic: str, layout: Layout, now_ns: Callable[[], int]) -> None:
        self.topic = topic
        self.path: Path | None = None  # of the open file
        self._layout = layout
        self._now_ns = now_ns
        self._file: BinaryIO | None = None
        self._member: BinaryIO | None = None  # of gzip
        self._moment = ""
        self._opened_ns = 0
        self._bytes = 0
        self._fresh = False  # no message has been made safe in this file yet

    # --- writing ---

    def write(self, body: bytes) -> bool:
        """True: it is the first of its file, and should be synced at once."""
        file = self._file or self._open()
        if self._layout.gzip_level:
            file = self._member = self._member or self._new_member(file)
        file.write(body)
        file.write(b"\n")
        self._bytes += len(body) + 1
        return self._fresh

    def _new_member(self, file: BinaryIO) -> BinaryIO:
        made_s = self._now_ns() // limits.SECOND
        made = gzip.GzipFile("", "wb", self._layout.gzip_level, file, made_s)
        return cast(BinaryIO, made)

    def sync(self) -> None:
        """Earlier writes are on disk when this returns. Raises OSError."""
        if self._file is None:
            return
        if self._member is not None:
            self._member.close()
            self._member = None
        self._file.flush()
        os.fsync(self._file.fileno())
        self._fresh = False

    # --- the end of a file ---

    def rotate(self) -> None:
        """Close the file, and begin the next one."""
        self.close()
        if not self._layout.skip_empty:
            self._open()

    @property
    def due(self) -> bool:
        """The open file has had its time or its size: rotate it. Ask before each message, and now
        and then without any."""
        layout = self._layout
        if self._file is None:
            return False
        age_ns = self._now_ns() - self._opened_ns
        return (
            self._moment != self._current_moment()
            or 0 < layout.rotate_bytes <= self._bytes
            or 0 < layout.rotate_ns <= age_ns
        )

    def _current_moment(self) -> str:
        local = time.localtime(self._now_ns() / limits.SECOND)
        return time.strftime(self._layout.datetime_format, local)

    def close(self) -> None:
        """Make everything safe, and move the file to where it belongs. Raises OSError."""
        if self._file is None or self.path is None:
            return
        if self._layout.gzip_level and not self._bytes:
            self._member = self._new_member(self._file)  # no bytes at all are no gzip file
        self.sync()
        self._file.close()
        self._file = None
        path, self.path = self.path, None
        if self._layout.moves:
            self._move(path)

    # --- names ---

    def _open(self) -> BinaryIO:
        layout = self._layout
        self._moment = self._current_moment()
        for name in layout.names(self.topic, self._moment):
            if layout.moves and (layout.output_dir / name).exists():
                continue
            if file := self._opened(layout.work_dir / name):
                return file
        raise FileExistsError(f"{layout.work_dir}: all names of {layout.filename_format} are taken")

    def _opened(self, path: Path) -> BinaryIO | None:
        """None: another file has the name."""
        path.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        flags |= os.O_EXCL if self._layout.is_exclusive else os.O_APPEND
        try:
            descriptor = os.open(path, flags, FILE_MODE)
        except FileExistsError:
            return None
        size = os.fstat(descriptor).st_size
        if 0 < self._layout.rotate_bytes <= size:
            os.close(descriptor)
            return None
        OsDisk().sync_directory(str(path.parent))
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            size += os.write(descriptor, b"\n")  # a line was cut short, and comes again
        self._file = os.fdopen(descriptor, "wb", buffering=1 << 16)
        self.path, self._bytes, self._opened_ns, self._fresh = path, size, self._now_ns(), True
        return self._file

    def _move(self, path: Path) -> None:
        for name in self._layout.names(self.topic, self._moment):
            final = self._layout.output_dir / name
            final.parent.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            try:
                _link(path, final)
            except FileExistsError:
                continue
            OsDisk().sync_directory(str(final.parent))
            path.unlink()
            return
        raise FileExistsError(f"{self._layout.output_dir}: no name is left for {path.name}")


def _link(path: Path, final: Path) -> None:
    """Give the file a second name. Raises FileExistsError."""
    try:
        os.link(path, final)
    except FileExistsError:
        raise
    except OSError:  # another disk, or one without hard links
        partial = final.with_name(final.name + ".partial")
        try:
            shutil.copyfile(path, partial)
            with partial.open("rb") as copied:
                os.fsync(copied.fileno())
            os.link(partial, final)
        finally:
            partial.unlink(missing_ok=True)
