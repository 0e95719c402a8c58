"""Users of nsqadmin from the command line."""

import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import pytest

from penstock.nsqadmin.access import Role
from penstock.nsqadmin.store import Store, is_password
from penstock.tools.admin import found_data_path
from penstock.tools.main import main


def put(monkeypatch: pytest.MonkeyPatch, path: Path, password: str, *words: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
    return main(["admin", "put-user", f"--data-path={path}", "--json", "--password-stdin", *words])


def test_a_user_is_made_changed_and_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert put(monkeypatch, tmp_path, "long enough", "ann", "--role=destroy") == 0
    capsys.readouterr()
    assert put(monkeypatch, tmp_path, "another one", "ann", "--role=operate") == 0
    assert json.loads(capsys.readouterr().out) == [{"name": "ann", "role": "operate"}]
    store = Store(tmp_path)
    assert store.users()[0].role is Role.OPERATE
    assert is_password("another one", store.password_hash("ann"))
    assert not is_password("long enough", store.password_hash("ann"))
    store.close()
    assert main(["admin", "remove-user", f"--data-path={tmp_path}", "ann", "--yes"]) == 0
    assert "no users" in capsys.readouterr().out
    store = Store(tmp_path)
    written = [(one.action, one.target, one.detail, one.how, one.result) for one in store.audit()]
    store.close()
    assert written[::-1] == [
        ("put_user", "ann", "destroy", "command line", "ok"),
        ("put_user", "ann", "operate", "command line", "ok"),
        ("remove_user", "ann", "", "command line", "ok"),
    ]
    assert main(["admin", "remove-user", f"--data-path={tmp_path}", "ann", "--yes"]) == 1


@pytest.mark.parametrize(
    ("password", "name", "rule"),
    [("short", "ann", "fewer than 8"), ("long enough", "two words", "without spaces")],
)
def test_invalid_users(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    password: str, name: str, rule: str,
) -> None:  # fmt: skip
    assert put(monkeypatch, tmp_path, password, name) == 1
    output = capsys.readouterr().err
    assert rule in output
    assert password not in output


def test_a_token_is_made_shown_once_and_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = f"--data-path={tmp_path}"
    assert main(["admin", "put-token", where, "--json", "ci", "--role=operate"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["name"], made["role"]) == ("ci", "operate")
    store = Store(tmp_path)
    found = store.token(made["token"])
    assert found is not None
    assert (found.name, found.role) == ("ci", Role.OPERATE)
    assert main(["admin", "put-token", where, "ci"]) == 1
    assert "there is one of this name: remove it first" in capsys.readouterr().err
    assert main(["admin", "tokens", where]) == 0
    output = capsys.readouterr().out
    assert output.split() == ["ci", "operate", "never", "used"]
    store.use_token(found)
    assert main(["admin", "tokens", where]) == 0
    output = capsys.readouterr().out
    assert "last used 20" in output
    assert made["token"] not in output
    assert main(["admin", "tokens", where, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    used = store.tokens()[0].used_s
    assert 0 <= used - datetime.fromisoformat(row["last_used"]).timestamp() < 1
    assert main(["admin", "remove-token", where, "ci", "--yes"]) == 0
    assert store.token(made["token"]) is None
    assert main(["admin", "remove-token", where, "ci", "--yes"]) == 1
    results = [one.result.partition(":")[0] for one in store.audit()]
    assert results == ["failed", "ok", "failed", "ok"]
    store.close()


def test_without_a_path_it_is_that_of_the_unit_where_one_has_no_nsqadmin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, unit = tmp_path / "state", tmp_path / "unit"
    monkeypatch.setenv("XDG_STATE_HOME", str(own))
    monkeypatch.setattr("penstock.tools.admin.UNIT_DATA_PATH", unit)
    for made, found in ((None, own / "penstock" / "nsqadmin"), (unit, unit)):
        if made is not None:
            made.mkdir()
        path = found_data_path(os.environ)
        assert path == found
        assert f"data path is {found}" in capsys.readouterr().err
    (own / "penstock" / "nsqadmin").mkdir(parents=True)
    assert found_data_path(os.environ) == own / "penstock" / "nsqadmin"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_root_writes_as_the_owner_of_the_directory(tmp_path: Path) -> None:
    path = Path(tempfile.mkdtemp(dir="/tmp"))  # one that others can reach
    try:
        os.chown(path, 65534, 65534)
        command = [sys.executable, "-m", "penstock.tools.main", "admin", "put-user"]
        command += ["ann", "--password-stdin", f"--data-path={path}"]
        done = subprocess.run(command, input="long enough\n", text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert {file.stat().st_uid for file in path.iterdir()} == {65534}
    finally:
        shutil.rmtree(path)
