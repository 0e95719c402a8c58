"""Imports point one way only: a package may use those named before it, never those after."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "penstock"

# A package may import the packages of earlier rows, and itself.
ORDER: tuple[tuple[str, ...], ...] = (
    ("errors", "limits"),
    ("durations", "times"),
    ("clock",),
    ("command",),
    ("kernel",),
    ("wire",),
    ("ids",),
    ("log",),
    ("replication",),
    ("trace",),
    ("broker",),
    ("takeover",),
    ("cluster",),
    ("net",),
    ("nsqd", "nsqlookupd"),
    ("nsqdapi",),
    ("client",),
    ("testing",),
    ("pytest_plugin",),
    ("formats",),
    ("spark",),
    ("pipelines",),
    ("nsqadmin",),
    ("tools",),
)
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
DEVELOPMENT = ("sim", "bench", "tests")  # beside the product, which leans on none of them


def modules(suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(path for suffix in suffixes for path in SOURCE.rglob(f"*{suffix}"))


def dotted(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_by_python(module: str, is_package: bool, text: str) -> list[tuple[int, str]]:
    """(line, dotted name) of everything that a Python module imports, relative names resolved."""
    found: list[tuple[int, str]] = []
    package = module.split(".") if is_package else module.split(".")[:-1]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found += [(node.lineno, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            prefix = ".".join([*base, *([node.module] if node.module else [])])
            found += [(node.lineno, f"{prefix}.{alias.name}") for alias in node.names]
    return found


CIMPORT = re.compile(
    r"^\s*(?:from\s+(penstock[\w.]*)\s+c?import\s+(\w+)|c?import\s+(penstock[\w.]*))"
)


def imported_by_cython(text: str) -> list[tuple[int, str]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = CIMPORT.match(line)
        if match:
            found.append((number, match[3] or f"{match[1]}.{match[2]}"))
    return found


def package_of(name: str) -> str | None:
    """The package (or top-level module) of Penstock that a dotted name lies in."""
    parts = name.split(".")
    return parts[1] if parts[0] == "penstock" and len(parts) > 1 else None


def violations(module: str, imports: list[tuple[int, str]]) -> list[str]:
    own = package_of(module)
    if own is None:
        return []
    if own not in RANK:
        return [f"{module}: package {own!r} has no place in the order of tests/test_imports.py"]
    wrong = []
    for line, name in imports:
        if name.partition(".")[0] in DEVELOPMENT:
            wrong.append(f"{module}:{line} imports {name}, which is no part of the product")
            continue
        other = package_of(name)
        if other is None or other == own or other.startswith("__"):
            continue
        if other not in RANK:
            wrong.append(f"{module}:{line} imports {name}, which has no place in the order")
        elif RANK[other] >= RANK[own]:
            wrong.append(f"{module}:{line} imports {name}: {other} does not stand before {own}")
    return wrong


def test_python_imports_point_one_way() -> None:
    wrong = [
        one
        for path in modules((".py", ".pyi"))
        for one in violations(
            dotted(path),
            imported_by_python(dotted(path), path.stem == "__init__", path.read_text()),
        )
    ]
    assert wrong == []


def test_cython_imports_point_one_way() -> None:
    wrong = []
    for path in modules((".pyx", ".pxd", ".pxi")):
        wrong += violations(dotted(path), imported_by_cython(path.read_text()))
    assert wrong == []


IMPORTS = (
    ("penstock.wire.names", "from penstock.kernel import interface", 0),
    ("penstock.kernel.batch", "from penstock.wire import names", 1),
    ("penstock.log.segment", "import penstock.broker.topics.topic", 1),
    ("penstock.log.segment", "from ..broker import topic", 1),
    ("penstock.log.segment", "from . import index", 0),
    ("penstock.log.segment", "if True:\n    from penstock.net import turn", 1),
    ("penstock.broker.topics.topic", "from sim.disk import FaultyDisk", 1),
    ("penstock.tools.main", "from bench.main import bench_main", 1),
    ("penstock.nsqd.main", "from penstock import limits, errors", 0),
    ("penstock.limits", "from penstock.kernel import batch", 1),
    ("penstock.misc.thing", "import os", 1),
    ("penstock.broker.topics.topic", "from penstock.misc import thing", 1),
)


def test_the_rule_can_fail() -> None:
    for module, text, count in IMPORTS:
        found = violations(module, imported_by_python(module, False, text))
        assert len(found) == count, (module, text)


def test_the_rule_sees_cimports() -> None:
    text = "from penstock.net.turn cimport Turn\ncimport penstock.log.segment\ncimport libc.stdint"
    assert len(violations("penstock.kernel.engine", imported_by_cython(text))) == 2


# --- what nothing reaches ---

ROOT = SOURCE.parent.parent
# What programs import, and what Spark starts.
OTHER_ENTRIES = (
    "penstock.client",
    "penstock.client.otel",
    "penstock.formats",
    "penstock.pytest_plugin",
    "penstock.spark",
    "pyspark_penstock",
    "penstock.pipelines.__main__",
    "penstock.pipelines.entry.penstock_pipeline",
)


def reached(imports: dict[str, set[str]], roots: Iterable[str]) -> set[str]:
    """Modules that these import, directly or not; and the packages that they lie in."""
    found: set[str] = set()
    waiting = [root for root in roots if root in imports]
    while waiting:
        module = waiting.pop()
        if module in found:
            continue
        found.add(module)
        names = {module.rpartition(".")[0], *imports[module]}
        # `from package import name` names a module of the package, or what is in its `__init__`
        waiting += [part for name in names for part in (name, name.rpartition(".")[0])
                    if part in imports]  # fmt: skip
    return found


def names_in(path: Path) -> set[str]:
    """What it imports, and modules that it names as texts: verbs are imported when asked for."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = [ast.Pass()]
    module, text = dotted(path), ast.unparse(tree)
    texts = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
    imports = imported_by_python(module, path.stem == "__init__", text)
    return {name for _, name in imports} | {text for text in texts if isinstance(text, str)}


def test_a_console_script_reaches_every_module() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    roots = [*(target.partition(":")[0] for target in scripts.values()), *OTHER_ENTRIES]
    paths = [*modules((".py",)), *(SOURCE.parent / "pyspark_penstock").rglob("*.py")]
    imports = {dotted(path): names_in(path) for path in paths}
    left = {
        module
        for module in imports.keys() - reached(imports, roots)
        if package_of(module) not in (None, "kernel")  # its forms are bound by name
    }
    assert left == set()


def test_unreachable_modules_are_found() -> None:
    imports = {
        "penstock": set[str](),
        "penstock.a": {"penstock.b.thing"},
        "penstock.b": {"penstock.c"},
        "penstock.c": set[str](),
        "penstock.d": {"penstock.a"},
    }
    assert imports.keys() - reached(imports, ["penstock.a"]) == {"penstock.d"}
