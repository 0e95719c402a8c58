"""Users of nsqadmin from the command line."""

import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest

from cases import each
from penstock.nsqadmin.access import Role
from penstock.nsqadmin.store import Store, is_password
from penstock.tools.admin import found_data_path

from .utilities import Run, as_json


@pytest.fixture
def admin(penstock: Run, tmp_path: Path) -> Run:
    """`penstock admin VERB ...` on files of its own."""

    def call(verb: str, *words: str, stdin: bytes = b"") -> tuple[int, str, str]:
        return penstock("admin", verb, f"--data-path={tmp_path}", *words, stdin=stdin)

    return call


PUT = ("put-user", "--json", "--password-stdin")


def test_a_user_is_made_changed_and_removed(admin: Run, tmp_path: Path) -> None:
    assert admin(*PUT, "ann", "--role=destroy", stdin=b"long enough\n")[0] == 0
    changed = as_json(admin(*PUT, "ann", "--role=operate", stdin=b"another one\n"))
    assert changed == [{"name": "ann", "role": "operate"}]
    with closing(Store(tmp_path)) as store:
        assert store.users()[0].role is Role.OPERATE
        assert is_password("another one", store.password_hash("ann"))
        assert not is_password("long enough", store.password_hash("ann"))
    assert admin("remove-user", "ann", "--yes")[:2] == (0, "no users: nobody has to log in\n")
    with closing(Store(tmp_path)) as store:
        written = [(one.action, one.target, one.detail, one.how, one.result)
                   for one in store.audit()]  # fmt: skip
    assert written[::-1] == [
        ("put_user", "ann", "destroy", "command line", "ok"),
        ("put_user", "ann", "operate", "command line", "ok"),
        ("remove_user", "ann", "", "command line", "ok"),
    ]
    assert admin("remove-user", "ann", "--yes")[0] == 1


def test_a_directory_that_is_not_nsqadmins(admin: Run, tmp_path: Path) -> None:
    assert admin("put-token", "two words")[0] == admin("put-token", "\udcff")[0] == 1
    for words in (["users"], ["tokens"], ["remove-user", "ann", "--yes"]):
        code, _, err = admin(*words)
        assert (code, f"{tmp_path} has no admin.db" in err, [*tmp_path.iterdir()]) == (1, True, [])


@each(
    ("password", "name", "rule"),
    [("short", "ann", "fewer than 8"), ("long enough", "two words", "without spaces")],
)
def test_invalid_users(admin: Run, password: str, name: str, rule: str) -> None:
    code, _, err = admin(*PUT, name, stdin=f"{password}\n".encode())
    assert (code, rule in err, password in err) == (1, True, False)


def test_a_token_is_made_shown_once_and_removed(admin: Run, tmp_path: Path) -> None:
    made = as_json(admin("put-token", "--json", "ci", "--role=operate"))
    assert (made["name"], made["role"]) == ("ci", "operate")
    with closing(Store(tmp_path)) as store:
        found = store.token(made["token"])
        assert found is not None
        assert (found.name, found.role) == ("ci", Role.OPERATE)
        code, _, err = admin("put-token", "ci")
        assert (code, "there is one of this name: remove it first" in err) == (1, True)
        assert admin("tokens")[1].split() == ["ci", "operate", "never", "used"]
        store.use_token(found)
        out = admin("tokens")[1]
        assert ("last used 20" in out, made["token"] in out) == (True, False)
        (row,) = as_json(admin("tokens", "--json"))
        used = store.tokens()[0].used_s
        assert 0 <= used - datetime.fromisoformat(row["last_used"]).timestamp() < 1
        assert admin("remove-token", "ci", "--yes")[0] == 0
        assert store.token(made["token"]) is None
        assert admin("remove-token", "ci", "--yes")[0] == 1
        results = [one.result.partition(":")[0] for one in store.audit()]
    assert results == ["failed", "ok", "failed", "ok"]


def test_without_a_path_it_is_that_of_the_unit_where_one_has_no_nsqadmin(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, unit = tmp_path / "state" / "penstock" / "nsqadmin", tmp_path / "unit"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr("penstock.tools.admin.UNIT_DATA_PATH", unit)
    for made, found in ((tmp_path, own), (unit, unit), (own, own)):
        made.mkdir(parents=True, exist_ok=True)
        assert found_data_path(os.environ) == found
        assert f"data path is {found}" in capsys.readouterr().err


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
