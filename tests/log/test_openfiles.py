"""More files than descriptors: closed and opened again, and nobody notices."""

from __future__ import annotations

import errno
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.kernel import decode_bodies
from penstock.log.disk import OsDisk
from penstock.log.journal_file import JournalFiles
from penstock.log.open_files import OpenFiles
from penstock.log.partition import PartitionLog
from penstock.net.sync import SyncPool

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


def test_what_is_not_synced_stays_open(tmp_path: Path) -> None:
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


class Synced:
    """Logs with their journals, which threads sync while the test goes on with others."""

    def __init__(self, disk: OsDisk, paths: list[Path]) -> None:
        self.logs = [PartitionLog.create(disk, path, SMALL) for path in paths]
        self.writers = [Writer(log) for log in self.logs]
        self.journals = [JournalFiles(disk, log.path, 2) for log in self.logs]
        for journal in self.journals:
            journal.begin(1, b"snapshot")
        self.out: dict[Any, Any] = {}

    def write(self, turn: int) -> None:
        for writer, journal in zip(self.writers, self.journals, strict=True):
            writer.write([b"%d" % turn] * 20)
            journal.append(b"record")

    def sync_begin(self, pool: SyncPool) -> None:
        for file in (*self.logs, *self.journals):
            job = file.sync_begin()
            if job is not None:
                self.out[job] = file
                pool.submit(job)

    def settle(self, pool: SyncPool) -> None:
        while self.out:
            pool.wait()
            for job, error in pool.take_done():
                self.out.pop(job).sync_end(job, error)


def test_sync_threads_open_nothing(tmp_path: Path) -> None:
    """More logs and journals than kept files, synced by threads while others are written."""
    disk, pool, interval = OsDisk(files_max=4), SyncPool(lambda: None), sys.getswitchinterval()
    one, other = (Synced(disk, [tmp_path / f"{half}{n}" for n in range(40)]) for half in "ab")
    sys.setswitchinterval(1e-6)
    try:
        for turn in range(25):
            one.write(turn)
            one.sync_begin(pool)
            other.write(turn)
            one.settle(pool)
            one, other = other, one
    finally:
        sys.setswitchinterval(interval)
        pool.close()
    assert all(log.written_end == 25 * 20 for log in (*one.logs, *other.logs))


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
