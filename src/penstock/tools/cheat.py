"""`penstock cheat`: which commands, in which order."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from penstock.command import terminal
from penstock.errors import PenstockError
from penstock.tools.recipes import RECIPES, Recipe, matching
from penstock.tools.verbs import DONE, VerbParser, add_json, print_json, run_verb


def parser() -> argparse.ArgumentParser:
    themes = ", ".join(one.theme for one in RECIPES)
    parser = VerbParser(
        prog="penstock cheat",
        description=f"Short recipes, all of them or those about WORD. Themes: {themes}.",
        examples=["penstock cheat", "penstock cheat replay"],
    )
    parser.add_argument("theme", nargs="?", metavar="WORD", help="a theme, or a word to look for")
    add_json(parser)
    return parser


def cheat_main(argv: Sequence[str]) -> int:
    return run_verb(parser(), argv, _run)


def _run(arguments: argparse.Namespace) -> int:
    found = matching(arguments.theme) if arguments.theme else list(RECIPES)
    if not found:
        themes = ", ".join(one.theme for one in RECIPES)
        raise PenstockError(f"nothing about {arguments.theme!r}; there are {themes}")
    if arguments.json:
        print_json([_row(one) for one in found])
    else:
        print("\n\n".join("\n".join(_lines(one)) for one in found))
    return DONE


def _row(recipe: Recipe) -> dict[str, object]:
    steps = [step._asdict() for step in recipe.steps]
    return {"theme": recipe.theme, "about": recipe.about, "steps": steps}


def _lines(recipe: Recipe) -> list[str]:
    lines = [f"{terminal.painted(recipe.theme, terminal.BOLD)}: {recipe.about}"]
    for step in recipe.steps:
        lines += [terminal.painted(f"  # {step.why}", terminal.DIM), f"  {step.command}"]
    return lines
