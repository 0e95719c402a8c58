"""The documents as a site, without building it. Links are checked by test_tidy.py."""

import re
import runpy
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import yaml

from penstock.wire.errors import Fault

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SRC = ROOT / "src" / "penstock"
CODE = re.compile(r"[A-Z][A-Z_]+")
RAISED = re.compile(r'\(\s*[45]\d\d, f?"(?!INVALID_ARG_|MISSING_ARG_)([A-Z_]{4,})(?<!_)[": ]')


def entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for inner in nav.values() if isinstance(nav, dict) else nav:
            yield from entries(inner)


def pages() -> list[str]:
    return sorted(path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md"))


def test_every_page_is_in_the_nav_once() -> None:
    site = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
    assert sorted(entries(site["nav"])) == pages()


def test_a_link_out_of_the_docs_is_text_on_the_site() -> None:
    hooks = runpy.run_path(str(ROOT / ".ci" / "mkdocs_hooks.py"))
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(DOCS / "spark" / "sql.md")))
    text = "[a](../../README.md) [b](../tools.md) [c](../../gone.md)"
    shown = hooks["on_page_markdown"](text, page, SimpleNamespace(docs_dir=str(DOCS)))
    assert shown == '<span title="README.md">a</span> [b](../tools.md) [c](../../gone.md)'


def test_llms_names_every_page_once() -> None:
    assert sorted(re.findall(r"\]\(([^)]+)\)", (DOCS / "llms.txt").read_text())) == pages()


def words(*names: str) -> set[str]:
    return {word for name in names for word in CODE.findall((DOCS / name).read_text())}


def test_every_code_of_the_wire_is_explained() -> None:
    assert {fault.code.decode() for fault in Fault} - words("errors.md") == set()


def test_every_code_over_http_is_explained() -> None:
    """Those that name a parameter are explained by their beginning."""
    codes = {code for path in SRC.rglob("*.py") for code in RAISED.findall(path.read_text())}
    assert {"MSG_EMPTY", "GROWTH_REFUSED", "NODE_LIVES", "UPSTREAM_ERROR"} <= codes
    assert codes - words("errors.md", "http.md") == set()


def test_imports_of_documented_programs_exist() -> None:
    imports = re.compile(r"^from (penstock[\w.]*) import ([\w, ]+)$", re.MULTILINE)
    gone = [
        f"{page.name}: {module}.{name}"
        for page in [ROOT / "README.md", *DOCS.rglob("*.md")]
        for module, names in imports.findall(page.read_text())
        for name in names.split(", ")
        if not hasattr(import_module(module), name)
    ]
    assert gone == []
