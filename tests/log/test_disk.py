from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.errors import DirectoryLocked
from penstock.log.disk import BUFFERS_MAX, OsDisk, lock_directory


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
