import json
from pathlib import Path

import pytest

from penstock.log.disk import OsDisk
from penstock.takeover.diskqueue import list_old_files
from penstock.takeover.diskrecords import Tally, read_queue
from penstock.tools.main import main
from takeover.olddata import records, write_file, write_old_path

QUEUES = {"t": records([9]), "t:a": records(range(5)), "t:b": records([3, 4])}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old"
    write_old_path(OsDisk(), str(path), QUEUES)
    write_file(OsDisk(), str(path), "t:b.diskqueue.000001.dat", b"\0" * 17)
    return path


def migrate(*arguments: object) -> int:
    return main(["migrate", *map(str, arguments)])


def names(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


def test_a_dry_run_writes_nothing(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = names(old)
    assert migrate(old, "--dry-run") == 0
    assert names(old) == before
    out = capsys.readouterr().out
    assert "t:a" in out
    assert "bytes 0 to 16 hold no message" in out
    assert "nothing was written" in out


def test_into_another_directory(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = names(old)
    new = old.parent / "new"
    assert migrate(old, "--to", new, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    assert [(topic["name"], topic["stored"]) for topic in report["topics"]] == [("t", 6)]
    assert names(old) == before
    assert names(new) == {"topics", "takeover-report.json", "penstock.lock"}


def test_in_place_and_back(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(old, "--in-place") == 0
    assert "6 messages are stored" in capsys.readouterr().out
    assert names(old) == {"topics", "takeover-report.json", "penstock.lock", "nsqd-old"}
    back = old.parent / "back"
    assert migrate(old, "--write-back", "--to", back) == 0
    assert "9 messages are in" in capsys.readouterr().out
    found = {
        queue.name: sorted(read_queue(OsDisk(), str(back), queue, Tally()))
        for queue in list_old_files(names(back)).queues
    }
    assert found == {"t": [], "t:a": records([*range(5), 9]), "t:b": records([3, 4, 9])}


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("--to", "x", "--in-place"),
        ("--write-back",),
        ("--write-back", "--to", "x", "--dry-run"),
        ("--to", "x", "--write-back", "--max-bytes-per-file", "0"),
        ("--fly",),
    ],
)
def test_a_wrong_command_line(
    old: Path, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    before = names(old)
    assert migrate(old, *arguments) == 2
    assert "penstock migrate" in capsys.readouterr().err
    assert names(old) == before


def test_paths_that_make_no_sense(old: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert migrate(old / "none", "--dry-run") == 1
    assert migrate(old, "--to", old / "inside") == 1
    assert "must lie apart" in capsys.readouterr().err
    assert migrate(old, "--write-back", "--to", old.parent / "back") == 1
    assert "no data path of Penstock" in capsys.readouterr().err


def test_an_interruption_is_no_success(
    old: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("penstock.takeover.takeover.Takeover._commit", interrupt)
        assert migrate(old, "--in-place") == 130
    assert "run it again" in capsys.readouterr().err
    assert migrate(old, "--in-place") == 0
    assert names(old) == {"topics", "takeover-report.json", "penstock.lock", "nsqd-old"}
