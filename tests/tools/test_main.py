from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock import __version__
from penstock.tools.main import DAEMONS, VERBS, main

UTILITIES = ("nsq_stat", "nsq_tail", "nsq_to_file", "nsq_to_http", "nsq_to_nsq", "to_nsq")
ROOT = Path(__file__).resolve().parents[2]


def test_the_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"penstock {__version__}\n"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+", __version__)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["help"]])
def test_help_names_every_verb(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for verb, (_, about) in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(about)}$", out, re.MULTILINE)


def test_an_unknown_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert "No such command 'fly'" in capsys.readouterr().err


def test_ctrl_c_within_any_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.tools.ids.read", interrupted)
    assert main(["id", "x"]) == 130


def test_typer_and_rich_are_imported_when_they_are_wanted() -> None:
    code = "import sys; from penstock.tools.main import main; main({}); print([one for one in "
    code += "('typer', 'rich.console') if one in sys.modules])"
    for words, wanted in ((["--version"], "[]"), (["id", "x"], "['typer']")):
        told = subprocess.run([sys.executable, "-c", code.format(words)], capture_output=True)
        assert told.stdout.decode().splitlines()[-1] == wanted


def test_arguments_reach_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nsqd", "--version"]) == 0
    assert capsys.readouterr().out.startswith(f"nsqd v{__version__} ")


def test_daemons_and_utilities_import_neither_typer_nor_rich() -> None:
    names = [f"penstock.{name}.main" for name in DAEMONS]
    names += [f"penstock.tools.{name}" for name in UTILITIES]
    code = f"import sys, {', '.join(names)}; print({{'typer', 'rich'}} & sys.modules.keys())"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert told.stdout == b"set()\n"
