"""More files than descriptors: closed and opened again, and nobody notices."""

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.errors import DirectoryLocked
from penstock.kernel import decode_bodies
from penstock.log.disk import BUFFERS_MAX, OsDisk, lock_directory
from penstock.log.open_files import OpenFiles
from penstock.log.partition import PartitionLog

from .helpers import SMALL, Writer, descriptors


class Stub:
    def __init__(self) -> None:
        self.pinned = False
        self.suspended = 0

    def suspend(self) -> None:
        self.suspended += 1


def test_the_oldest_go_first_and_pinned_ones_stay() -> None:
    files, stubs = OpenFiles(4), [Stub() for _ in range(6)]
    stubs[0].pinned = True
    for stub in stubs[:5]:
        files.keep(stub)
    assert [stub.suspended for stub in stubs] == [0, 1, 1, 0, 0, 0]
    files.drop(stubs[3])
    assert files.suspend_some() == 1
    assert [stub.suspended for stub in stubs] == [0, 1, 1, 0, 1, 0]
    for stub in stubs:
        stub.pinned = True
        files.keep(stub)
    assert len(files) == 6  # more than wanted, as none may be closed


def test_other_threads_close_nothing() -> None:
    files, stub, found = OpenFiles(4), Stub(), []
    files.keep(stub)
    thread = threading.Thread(target=lambda: found.append(files.suspend_some()))
    thread.start()
    thread.join()
    assert (found, stub.suspended) == ([0], 0)


def test_many_logs_with_few_files(tmp_path: Path) -> None:
    disk = OsDisk(files_max=4)
    logs = [PartitionLog.create(disk, tmp_path / str(n), SMALL) for n in range(20)]
    writers = [Writer(log) for log in logs]
    for turn in range(30):
        for number, writer in enumerate(writers):
            writer.write([b"%d %d" % (number, turn)] * 20)
            writer.log.sync()
            assert descriptors(tmp_path) <= 5
    for number, log in enumerate(logs):
        assert len(log.segments) > 1
        bodies = [b for _, data in log.batches(0) for b in decode_bodies(data, 0)]
        assert bodies == [b"%d %d" % (number, turn) for turn in range(30) for _ in range(20)]
        log.validate()
        log.close()
    assert descriptors(tmp_path) == 0


def test_unsynced_files_stay_open(tmp_path: Path) -> None:
    """The system reports a failed write-back to those only that had the file open."""
    disk = OsDisk(files_max=1)
    logs = [PartitionLog.create(disk, tmp_path / str(n), SMALL) for n in range(5)]
    for log in logs:
        Writer(log).write([b"x"])
    assert descriptors(tmp_path) == 5
    job = logs[0].sync_begin()
    assert job is not None
    logs[1].sync()
    Writer(logs[2]).fill(20)  # over some segments, which opens files
    assert not job._files[0].fd < 0  # type: ignore[attr-defined]
    job.run()
    logs[0].sync_end(job, None)
    for log in logs:
        log.sync()
    logs.append(PartitionLog.create(disk, tmp_path / "5", SMALL))
    Writer(logs[-1]).write([b"x"])  # now all others may be closed
    assert descriptors(tmp_path) == 1
    for log in logs:
        log.close()


def test_a_thread_opens_no_kept_file(tmp_path: Path) -> None:
    disk = OsDisk()
    file = disk.create(str(tmp_path / "f"))
    disk.keep(file)
    file.suspend()  # type: ignore[attr-defined]
    with ThreadPoolExecutor(1) as other, pytest.raises(RuntimeError, match="f: another thread"):
        other.submit(file.fdatasync).result()
    file.pin()
    with ThreadPoolExecutor(1) as other:
        other.submit(file.fdatasync).result()


def test_a_closed_file_is_not_opened_again(tmp_path: Path) -> None:
    disk = OsDisk(files_max=1)
    file = disk.create(str(tmp_path / "f"))
    disk.keep(file)
    file.close()
    with pytest.raises(OSError, match="closed") as caught:
        file.size()
    assert caught.value.errno == errno.EBADF


def test_when_there_is_no_descriptor_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First what is kept makes room. If that does not help, the error says what would."""
    disk = OsDisk(files_max=4)
    kept = disk.create(str(tmp_path / "kept"))
    disk.keep(kept)
    real, failures = os.open, [1]

    def full(*where: object) -> int:
        if failures[0]:
            failures[0] -= 1
            raise OSError(errno.EMFILE, "Too many open files", where[0])
        return real(*where)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", full)
    other = disk.open(str(tmp_path / "kept"))
    assert kept.fd < 0  # type: ignore[attr-defined]
    assert kept.size() == 0
    failures[0] = 2
    with pytest.raises(OSError, match=r"too many open files: the limit is \d+, see ulimit -n"):
        disk.open(str(tmp_path / "kept"))
    kept.close()
    other.close()


# --- the disk of the system ---


def test_many_buffers_are_written_in_order(tmp_path: Path) -> None:
    buffers = [b"%d," % n for n in range(3 * BUFFERS_MAX + 7)] + [b"", b"end"]
    length = sum(map(len, buffers))
    file = OsDisk().create(str(tmp_path / "f"))
    file.pwritev(buffers, 5, length)
    file.close()
    assert (tmp_path / "f").read_bytes() == bytes(5) + b"".join(buffers)


def test_short_writes_are_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwritev

    def stingy(fd: int, buffers: list[bytes], offset: int) -> int:
        first = next(memoryview(b) for b in buffers if len(b))
        return real(fd, [first[:3]], offset)

    monkeypatch.setattr(os, "pwritev", stingy)
    file = OsDisk().create(str(tmp_path / "f"))
    file.pwritev([b"abcdefgh", b"", bytearray(b"ijk"), memoryview(b"lmnopq")], 0, 17)
    file.close()
    assert (tmp_path / "f").read_bytes() == b"abcdefghijklmnopq"


def test_a_write_of_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, offset: 0)
    file = OsDisk().create(str(tmp_path / "f"))
    with pytest.raises(OSError, match="wrote nothing"):
        file.pwritev([b"abc"], 0, 3)
    file.close()


def test_directories(tmp_path: Path) -> None:
    disk = OsDisk()
    disk.mkdir(str(tmp_path / "a" / "b"))
    disk.mkdir(str(tmp_path / "a" / "b"))
    assert (tmp_path / "a" / "b").stat().st_mode & 0o777 == 0o700
    disk.create(str(tmp_path / "a" / "f")).close()
    with pytest.raises(FileExistsError):
        disk.mkdir(str(tmp_path / "a" / "f"))
    disk.sync_directory(str(tmp_path / "a"))
    disk.rename(str(tmp_path / "a" / "f"), str(tmp_path / "a" / "g"))
    assert sorted(disk.listdir(str(tmp_path / "a"))) == ["b", "g"]
    disk.unlink(str(tmp_path / "a" / "g"))
    disk.rmdir(str(tmp_path / "a" / "b"))
    assert not disk.exists(str(tmp_path / "a" / "b"))
    assert disk.is_directory(str(tmp_path / "a"))
    assert disk.free_bytes(str(tmp_path)) > 0


def test_one_process_owns_a_directory(tmp_path: Path) -> None:
    disk = OsDisk()
    lock = lock_directory(disk, str(tmp_path))
    with pytest.raises(DirectoryLocked):
        lock_directory(disk, str(tmp_path))
    lock.release()
    lock.release()
    lock_directory(disk, str(tmp_path)).release()
