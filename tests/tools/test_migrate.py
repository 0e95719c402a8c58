from pathlib import Path

import pytest

from cases import each
from penstock.log.disk import OsDisk
from penstock.takeover.diskqueue import list_old_files
from penstock.takeover.diskrecords import Tally, read_queue
from takeover.olddata import records, write_file, write_old_path

from .utilities import Run, as_json, err_of, out_of

QUEUES = {"t": records([9]), "t:a": records(range(5)), "t:b": records([3, 4])}


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old"
    write_old_path(OsDisk(), str(path), QUEUES)
    write_file(OsDisk(), str(path), "t:b.diskqueue.000001.dat", b"\0" * 17)
    return path


def names(path: Path) -> set[str]:
    return {one.name for one in path.iterdir()}


def test_a_dry_run_writes_nothing(old: Path, penstock: Run) -> None:
    before = names(old)
    code, out, _ = penstock("migrate", old, "--dry-run")
    assert (code, names(old)) == (0, before)
    for text in ("t:a", "bytes 0 to 16 hold no message", "nothing was written"):
        assert text in out


def test_into_another_directory(old: Path, penstock: Run) -> None:
    before = names(old)
    new = old.parent / "new"
    report = as_json(penstock("migrate", old, "--to", new, "--json"))
    assert [(topic["name"], topic["stored"]) for topic in report["topics"]] == [("t", 6)]
    assert [queue["found"]["bad_bytes"] for queue in report["topics"][0]["queues"]] == [0, 0, 17]
    assert names(old) == before
    assert names(new) == {"topics", "takeover-report.json", "penstock.lock"}


def test_in_place_and_back(old: Path, penstock: Run) -> None:
    assert "6 messages are stored" in out_of(penstock("migrate", old, "--in-place"), 0)
    assert names(old) == {"topics", "takeover-report.json", "penstock.lock", "nsqd-old"}
    back = old.parent / "back"
    assert "9 messages are in" in out_of(penstock("migrate", old, "--write-back", "--to", back), 0)
    found = {
        queue.name: sorted(read_queue(OsDisk(), str(back), queue, Tally()))
        for queue in list_old_files(names(back)).queues
    }
    assert found == {"t": [], "t:a": records([*range(5), 9]), "t:b": records([3, 4, 9])}


@each(
    ("words", "code", "output"),
    [
        ((), 2, "penstock migrate"),
        (("--to", "x", "--in-place"), 2, "penstock migrate"),
        (("--write-back",), 2, "penstock migrate"),
        (("--write-back", "--to", "x", "--dry-run"), 2, "penstock migrate"),
        (("--to", "x", "--write-back", "--max-bytes-per-file", "0"), 2, "penstock migrate"),
        (("--to", "{old}/inside"), 1, "must lie apart"),
        (("--to", "{old}/../back", "--write-back"), 1, "no data path of Penstock"),
    ],
)
def test_wrong_use(
    old: Path, penstock: Run, words: tuple[str, ...], code: int, output: str
) -> None:
    before = names(old)
    found, _, err = penstock("migrate", old, *(word.format(old=old) for word in words))
    assert (found, output in err, names(old)) == (code, True, before)


def test_an_interruption_is_no_success(
    old: Path, monkeypatch: pytest.MonkeyPatch, penstock: Run
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("penstock.takeover.takeover.Takeover._commit", interrupt)
        assert "run it again" in err_of(penstock("migrate", old, "--in-place"), 130)
    assert penstock("migrate", old, "--in-place")[0] == 0
    assert names(old) == {"topics", "takeover-report.json", "penstock.lock", "nsqd-old"}
