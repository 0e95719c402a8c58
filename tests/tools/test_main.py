from __future__ import annotations

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from cases import each
from penstock import __version__
from penstock.tools.main import VERBS, main

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
    for verb, entry in VERBS.items():
        assert re.search(rf"^  {verb} +{re.escape(entry.help)}$", out, re.MULTILINE)


def test_an_unknown_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fly"]) == 2
    assert "no such verb: fly" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("topics", "is it topic"),
        ("chanel", "is it channel"),
        ("xyzzy", "usage: penstock"),
    ],
)
def test_what_may_be_meant(word: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 2
    assert said in capsys.readouterr().err


def test_ctrl_c_within_any_verb(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("penstock.tools.ids.id_main", interrupted)
    assert main(["id"]) == 130


@each("verb", VERBS)
def test_every_verb_leads_somewhere(verb: str) -> None:
    entry = VERBS[verb]
    assert callable(getattr(import_module(entry.module), entry.function))


def test_arguments_reach_the_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nsqd", "--version"]) == 0
    assert capsys.readouterr().out.startswith(f"nsqd v{__version__} ")
