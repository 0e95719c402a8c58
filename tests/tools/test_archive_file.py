from __future__ import annotations

import gzip
import os
from datetime import datetime
from pathlib import Path

import pytest

from penstock import limits
from penstock.tools.archive_file import ArchiveFile, Layout

S = limits.SECOND


class Clock:
    def __init__(self) -> None:
        self.now_ns = int(datetime(2026, 3, 4, 5, 6, 7).timestamp()) * S

    def __call__(self) -> int:
        return self.now_ns


def archive(clock: Clock, out: Path, **settings: object) -> ArchiveFile:
    work = settings.pop("work_dir", None)
    layout = Layout(out, work, host="box", **settings)  # type: ignore[arg-type]
    return ArchiveFile("orders", layout, clock)


def names(path: Path) -> list[str]:
    return sorted(str(found.relative_to(path)) for found in path.rglob("*") if found.is_file())


def test_a_message_is_a_line(tmp_path: Path) -> None:
    file = archive(Clock(), tmp_path)
    assert file.write(b"one") is True  # the first of its file
    file.sync()
    assert file.write(b"two") is False
    assert file.unsynced == 1
    file.close()
    assert file.unsynced == 0
    assert names(tmp_path) == ["orders.box.2026-03-04_05.log"]
    assert (tmp_path / "orders.box.2026-03-04_05.log").read_bytes() == b"one\ntwo\n"


def test_a_plain_file_is_continued(tmp_path: Path) -> None:
    clock = Clock()
    for body in (b"first run", b"second run"):
        file = archive(clock, tmp_path)
        file.write(body)
        file.close()
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"first run\nsecond run\n"]


def test_each_sync_ends_a_gzip_member(tmp_path: Path) -> None:
    file = archive(Clock(), tmp_path, gzip_level=6)
    for body in (b"one", b"two"):
        file.write(body)
        file.sync()
        assert file.path is not None
        assert gzip.decompress(file.path.read_bytes()).endswith(body + b"\n")
    file.close()
    assert names(tmp_path) == ["orders.box-000000.2026-03-04_05.log.gz"]


def test_a_gzipped_file_is_made_anew(tmp_path: Path) -> None:
    clock = Clock()
    for _ in range(3):
        file = archive(clock, tmp_path, gzip_level=1)
        file.write(b"x")
        file.close()
    assert names(tmp_path) == [
        "orders.box-000000.2026-03-04_05.log.gz",
        "orders.box-000001.2026-03-04_05.log.gz",
        "orders.box-000002.2026-03-04_05.log.gz",
    ]


def test_a_new_hour_is_a_new_file(tmp_path: Path) -> None:
    clock = Clock()
    file = archive(clock, tmp_path)
    file.write(b"early")
    clock.now_ns += 3600 * S
    file.write(b"late")
    file.close()
    assert names(tmp_path) == ["orders.box.2026-03-04_05.log", "orders.box.2026-03-04_06.log"]


@pytest.mark.parametrize(("skip_empty", "files"), [(False, 2), (True, 1)])
def test_an_hour_without_messages(tmp_path: Path, skip_empty: bool, files: int) -> None:
    clock = Clock()
    file = archive(clock, tmp_path, skip_empty=skip_empty)
    file.write(b"x")
    clock.now_ns += 3600 * S
    assert file.rotate_if_due()
    file.close()
    assert len(names(tmp_path)) == files


def test_a_file_ends_by_size(tmp_path: Path) -> None:
    file = archive(Clock(), tmp_path, rotate_bytes=10)
    for _ in range(4):
        file.write(b"1234")
    file.close()
    sizes = [(tmp_path / name).stat().st_size for name in names(tmp_path)]
    assert sorted(sizes) == [10, 10]


def test_a_file_ends_by_time(tmp_path: Path) -> None:
    clock = Clock()
    file = archive(clock, tmp_path, rotate_ns=60 * S)
    file.write(b"a")
    clock.now_ns += 60 * S - 1
    assert not file.rotate_if_due()
    clock.now_ns += 1
    assert file.rotate_if_due()
    file.close()
    assert len(names(tmp_path)) == 2


def test_a_complete_file_is_moved_and_overwrites_nothing(tmp_path: Path) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    clock = Clock()
    file = archive(clock, out, work_dir=work)
    file.write(b"mine")
    assert names(out) == []
    out.mkdir(parents=True)
    (out / "orders.box-000000.2026-03-04_05.log").write_bytes(b"another's")
    file.close()
    assert names(work) == []
    assert (out / "orders.box-000000.2026-03-04_05.log").read_bytes() == b"another's"
    assert (out / "orders.box-000001.2026-03-04_05.log").read_bytes() == b"mine\n"


def test_a_disk_without_hard_links_gets_a_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, work = tmp_path / "out", tmp_path / "work"
    real = os.link

    def link(source: Path, target: Path) -> None:
        if work in source.parents:
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr("penstock.tools.archive_file.os.link", link)
    file = archive(Clock(), out, work_dir=work)
    file.write(b"x")
    file.close()
    assert (names(out), names(work)) == (["orders.box-000000.2026-03-04_05.log"], [])


def test_directories_in_names_are_made_and_files_are_private(tmp_path: Path) -> None:
    file = archive(
        Clock(), tmp_path, filename_format="<TOPIC>/<DATETIME>.log", datetime_format="%Y/%m"
    )
    file.write(b"x")
    assert file.path is not None
    assert file.path.stat().st_mode & 0o007 == 0
    file.close()
    assert names(tmp_path) == ["orders/2026/03.log"]
