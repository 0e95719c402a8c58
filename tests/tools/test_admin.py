"""Users of nsqadmin from the command line."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from penstock.nsqadmin.access import Role
from penstock.nsqadmin.store import Store, is_password
from penstock.tools.admin import admin_main


def put(monkeypatch: pytest.MonkeyPatch, path: Path, password: str, *words: str) -> int:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{password}\n"))
    return admin_main([f"--data-path={path}", "--json", "put-user", "--password-stdin", *words])


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
    assert admin_main([f"--data-path={tmp_path}", "remove-user", "ann", "--yes"]) == 0
    assert "no users" in capsys.readouterr().out
    assert admin_main([f"--data-path={tmp_path}", "remove-user", "ann", "--yes"]) == 1


@pytest.mark.parametrize(
    ("password", "name", "rule"),
    [("short", "ann", "fewer than 8"), ("long enough", "two words", "without spaces")],
)
def test_what_is_no_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    password: str, name: str, rule: str,
) -> None:  # fmt: skip
    assert put(monkeypatch, tmp_path, password, name) == 1
    said = capsys.readouterr().err
    assert rule in said
    assert password not in said
