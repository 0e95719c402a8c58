"""The cheat sheet: every command is one, and people find what they look for."""

from __future__ import annotations

import json

import pytest

from cases import each
from penstock.tools.main import main
from penstock.tools.recipes import RECIPES, Recipe, matching
from tools.parsers import parse

WANTED = {
    "publish", "watch", "replay", "dead-letters", "trace", "drain", "upgrade", "disk-full",
    "stuck-channel",
}  # fmt: skip


@each("recipe", RECIPES)
def test_every_command_is_one(recipe: Recipe) -> None:
    for step in recipe.steps:
        parse(step.command.partition(" <")[0])


def test_no_theme_is_missing_and_none_is_there_twice() -> None:
    themes = [one.theme for one in RECIPES]
    assert set(themes) >= WANTED
    assert len(set(themes)) == len(themes)


@each(
    ("word", "themes"),
    [
        ("replay", ["replay"]),
        ("DLQ", ["dead-letters"]),
        ("stuck", ["stuck-channel"]),
        ("redrive", ["dead-letters"]),
        ("peek", ["look"]),
        ("lag", ["watch"]),
        ("quantum", []),
    ],
)
def test_what_people_look_for(word: str, themes: list[str]) -> None:
    assert [one.theme for one in matching(word)] == themes


def test_it_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cheat", "drain"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("drain: take a node out\n  # ")
    assert main(["cheat"]) == 0
    assert all(f"{one.theme}: " in capsys.readouterr().out for one in RECIPES[:1])
    assert main(["cheat", "--json", "replay"]) == 0
    (only,) = json.loads(capsys.readouterr().out)
    assert (only["theme"], set(only["steps"][0])) == ("replay", {"why", "command"})
    assert main(["cheat", "quantum"]) == 1
    assert "nothing about 'quantum'; there are publish," in capsys.readouterr().err
