"""The files of the pages' scripts and sheets."""

from __future__ import annotations

import re
from pathlib import Path

import penstock.nsqadmin.pages
from penstock.nsqadmin.pages import static

HERE = Path(static.__file__).parent
PAGES = Path(penstock.nsqadmin.pages.__file__).parent


def test_every_file_is_used_and_every_used_one_is_there() -> None:
    source = "".join(path.read_text() for path in PAGES.glob("*.py"))
    used = set(re.findall(r"static\.text\([\"']([a-z_]+\.(?:js|css))[\"']\)", source))
    assert used == {path.name for path in HERE.iterdir() if path.suffix in (".js", ".css")}


def test_a_function_begins_at_once() -> None:
    """It becomes what a `return` returns, and a line break behind that would end it."""
    for path in HERE.glob("*.js"):
        assert not static.text(path.name)[0].isspace(), path.name
