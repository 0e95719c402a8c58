"""Rules of STYLE.md that a machine can check and ruff does not know (it has the others, in
`pyproject.toml`). For every rule a test shows that it can fail."""

import ast
import re
import struct
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import selection
from penstock.kernel import layout

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "penstock"
MODULE_LINES_MAX = 600
FUNCTION_LINES_MAX = 70
COLUMNS_MAX = 100

CORE_PACKAGES = ("kernel", "wire", "ids", "log", "broker", "cluster")
# ruff reads no Cython. An address is no better than dice: `id(...)` is another one in each run.
CYTHON_DICE = re.compile(r"\b(?:c?import|from)\s+(?:random|secrets)\b|\b(?:s?rand|id)\s*\(")
CYTHON_CLOCK = re.compile(
    r"\b(?:c?import|from)\s+(?:time|asyncio|socket|libc\.time|posix\.time)\b"
    r"|\b(?:clock_gettime|gettimeofday|nanosleep|time)\s*\("
)
# Shells that live inside a core package, each with its reason. They throw no dice either.
CORE_SHELLS: dict[str, str] = {
    "kernel/engine.pyx": "the kernel owns its sockets, and shuts them down",
    "kernel/poller.pxi": "it waits on descriptors, and for how long",
    "kernel/bulk.pyx": "it sends to sockets in a thread, and gives up those that stand still",
}


def files(
    *suffixes: str, under: tuple[str, ...] = ("src", "sim", "bench", "tests", "docs", "examples")
) -> list[Path]:
    """Our own files: generated C and build leavings are not among them."""
    found = [path for path in ROOT.iterdir() if path.is_file()]
    found += [path for top in (*under, ".ci") for path in (ROOT / top).rglob("*") if path.is_file()]
    return sorted(
        path
        for path in found
        if (path.suffix in suffixes or path.name in suffixes)
        and not any(part in ("__pycache__",) or part.endswith(".egg-info") for part in path.parts)
    )


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@lru_cache(maxsize=1)  # one file after the other is held against all rules
def nodes(text: str) -> list[ast.AST]:
    return list(ast.walk(ast.parse(text)))


# --- sizes ---


def too_long(name: str, text: str) -> list[str]:
    lines = text.count("\n") + (not text.endswith("\n"))
    return [f"{name}: {lines} lines"] if lines > MODULE_LINES_MAX else []


def wide_lines(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number} has {len(line)} columns"
        for number, line in enumerate(text.splitlines(), 1)
        if len(line) > COLUMNS_MAX
    ]


def long_python_functions(name: str, text: str) -> list[str]:
    return [
        f"{name}:{node.lineno} {node.name} has {node.end_lineno - node.lineno + 1} lines"
        for node in nodes(text)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > FUNCTION_LINES_MAX
    ]


CYTHON_FUNCTION = re.compile(r"^(\s*)(?:async\s+)?(?:def|cdef|cpdef)\s[^=]*\(")
OTHER_BLOCK = re.compile(r"^\s*cdef\s+(?:class|struct|union|enum|extern|packed)\b")


def header_end(lines: list[str], first: int) -> int | None:
    """The line on which a function's header ends with a colon, None when this is no function."""
    depth = 0
    for number in range(first, len(lines)):
        code = lines[number].split("#")[0].rstrip()
        depth += code.count("(") + code.count("[") - code.count(")") - code.count("]")
        if depth == 0:
            return number if code.endswith(":") else None
    return None


def cython_functions(text: str) -> Iterator[tuple[int, int]]:
    """(first line, number of lines) of functions, by indentation: Cython has no `ast`."""
    lines = text.splitlines()
    for first, line in enumerate(lines):
        match = CYTHON_FUNCTION.match(line)
        if match is None or OTHER_BLOCK.match(line):
            continue
        header = header_end(lines, first)
        if header is None:
            continue
        last = header
        for number in range(header + 1, len(lines)):
            code = lines[number]
            if code.strip() and len(code) - len(code.lstrip()) <= len(match[1]):
                break
            last = number if code.strip() else last
        yield first + 1, last - first + 1


def long_cython_functions(name: str, text: str) -> list[str]:
    return [
        f"{name}:{first} has {count} lines"
        for first, count in cython_functions(text)
        if count > FUNCTION_LINES_MAX
    ]


def oversized(path: Path) -> list[str]:
    name, text = name_of(path), path.read_text()
    functions = long_python_functions if path.suffix in (".py", ".pyi") else long_cython_functions
    return too_long(name, text) + wide_lines(name, text) + functions(name, text)


def test_sizes_can_fail() -> None:
    assert too_long("m", "x\n" * (MODULE_LINES_MAX + 1))
    assert not too_long("m", "x\n" * MODULE_LINES_MAX)
    assert wide_lines("m", "x" * (COLUMNS_MAX + 1))
    body = "    x = 1\n"
    assert long_python_functions("m", "def f():\n" + body * FUNCTION_LINES_MAX)
    assert not long_python_functions("m", "def f():\n" + body * (FUNCTION_LINES_MAX - 1))
    head = "cdef int f(\n    int a,\n) noexcept nogil:\n"
    assert long_cython_functions("m", "cdef int x\n" + head + body * FUNCTION_LINES_MAX + "y = 1\n")
    assert not long_cython_functions("m", head + body * (FUNCTION_LINES_MAX - 3) + "y = 1\n" * 90)


# --- what core packages may not call in Cython, and nobody may leave ---


def spelled(node: ast.expr) -> str:
    """`a.b.c` as text, "" for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = spelled(node.value)
        return f"{base}.{node.attr}" if base else ""
    return ""


def cython_lines(text: str, banned: re.Pattern[str]) -> list[int]:
    return [
        number
        for number, line in enumerate(text.splitlines(), 1)
        if banned.search(line.split("#")[0])
    ]


UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX")) + r")\b")


def unfinished(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number} leaves work undone"
        for number, line in enumerate(text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]


def core_modules(*suffixes: str) -> list[Path]:
    return [
        path
        for package in CORE_PACKAGES
        for path in sorted((SOURCE / package).rglob("*"))
        if path.suffix in suffixes
    ]


def test_shells_in_core_packages_are_there() -> None:
    assert [name for name in CORE_SHELLS if not (SOURCE / name).exists()] == []


def broken_rules(path: Path) -> list[str]:
    """Of a Python file: all that is checked without looking at others."""
    wrong = oversized(path)
    if path.is_relative_to(SOURCE):
        wrong += odd_strings(name_of(path), path.read_text())
        wrong += odd_names(name_of(path), path.read_text())
    return wrong


def test_python_files_keep_the_rules() -> None:
    assert [wrong for path in files(".py") for wrong in broken_rules(path)] == []


def test_cython_files_keep_the_rules() -> None:
    cython = core_modules(".pyx", ".pxd", ".pxi")
    stubs = files(".pyi", ".pyx", ".pxd", ".pxi")
    assert [wrong for path in stubs for wrong in oversized(path)] == []
    assert [(p.name, n) for p in cython for n in cython_lines(p.read_text(), CYTHON_DICE)] == []
    assert [
        (p.name, n)
        for p in cython
        if p.relative_to(SOURCE).as_posix() not in CORE_SHELLS
        for n in cython_lines(p.read_text(), CYTHON_CLOCK)
    ] == []


def test_nothing_is_left_undone() -> None:
    written = files(".py", ".pyi", ".pyx", ".pxd", ".pxi", ".md", ".toml", "Makefile", "run")
    assert [w for path in written for w in unfinished(name_of(path), path.read_text())] == []


def test_calls_can_fail() -> None:
    for dice in ("import random", "from libc.stdlib cimport rand\nx = rand()", "s = <u64>id(self)"):
        assert cython_lines(dice, CYTHON_DICE)
    for clock in ("import time", "from posix.time cimport x", "    clock_gettime(1, &now)"):
        assert cython_lines(clock, CYTHON_CLOCK)
    assert not cython_lines("cdef int is_named(u64 id)  # import time", CYTHON_DICE)
    assert not cython_lines("window.expire(mono_ns)  # import time", CYTHON_CLOCK)
    assert unfinished("m", "x = 1  # " + "TO" + "DO: more")
    assert not unfinished("m", 'body = b"' + "X" * 8 + '"')


# --- words ---

# Operators search for what programs of this field say: corrupt, again, this many, cannot be
# determined.
ODD_WORDS = re.compile(
    r"\b(hurt|anew|mend|so many|(can't|cannot|can not) be told)\b", re.IGNORECASE
)


def odd_strings(name: str, text: str) -> list[str]:
    """String literals with odd words; docstrings and comments are not among them."""
    docstrings = {
        id(node.value)
        for node in nodes(text)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return [
        f"{name}:{node.lineno} says {found.group()!r}"
        for node in nodes(text)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
        for found in ODD_WORDS.finditer(node.value)
    ]


def odd_lines(name: str, text: str) -> list[str]:
    return [
        f"{name}:{number} says {found.group()!r}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in ODD_WORDS.finditer(line)
    ]


# What these named is an offset, a position, an address, an append or intact elsewhere, too.
ODD_NAMES = {
    "place", "places", "shelf", "ground", "wish", "told", "heard", "stretch", "sound", "hurt",
}  # fmt: skip


def odd_names(name: str, text: str) -> list[str]:
    return [
        f"{name}:{node.lineno} defines {defined}"
        for node in nodes(text)
        for defined in (
            getattr(node, "name", ""),
            getattr(node, "arg", ""),
            getattr(node, "id", ""),
        )
        if defined
        and ODD_NAMES & set(re.findall("[a-z]+", defined.replace("in_place", "").lower()))
    ]


def test_users_read_the_words_of_the_field() -> None:
    shown = [path for path in files(".md", ".toml", under=("docs",)) if path.parent != ROOT]
    assert [w for path in shown for w in odd_lines(name_of(path), path.read_text())] == []


def test_words_can_fail() -> None:
    assert odd_strings("m", 'raise E("the record is hurt")') == ["m:1 says 'hurt'"]
    assert odd_strings("m", 'x = f"{name} begins anew"')
    assert odd_strings("m", 'help("at most so" " many rows")')
    assert odd_strings("m", 'log("the end can\'t be told")')
    assert not odd_strings("m", 'def f():\n    """Begins anew."""\n    # so many')
    assert not odd_strings("m", 'raise E("the record is corrupt")')
    assert odd_lines("m", "sound\nhurt") == ["m:2 says 'hurt'"]
    assert odd_names("m", "def f(last_place): pass")
    assert odd_names("m", "class Shelf: pass")
    assert not odd_names("m", "def put_in_place(placement): pass")


# --- layouts ---

LAYOUT_BYTES_MIN = 16  # shorter formats are numbers, as any two modules may read them
LAYOUT_MODULE = "src/penstock/kernel/layout.py"
READS_LOGS = ("kernel", "log", "broker", "spark", "trace")


def layout_formats(text: str) -> list[tuple[int, str]]:
    """Line and format of each layout that a module writes down: of `struct.Struct(...)`."""
    return [
        (node.lineno, node.args[0].value)
        for node in nodes(text)
        if isinstance(node, ast.Call)
        and spelled(node.func) in ("struct.Struct", "Struct")
        and node.args
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]


def repeated_layouts(texts: dict[str, str]) -> list[str]:
    """A layout has one module: one that stands twice, or that passes over the fields of another
    (`16x`), would have to be changed in two places."""
    wrong = []
    homes: dict[str, str] = {}
    for name, text in texts.items():
        for line, format in layout_formats(text):
            skips = [int(count) for count in re.findall(r"(\d+)x", format)]
            if name != LAYOUT_MODULE and any(count >= LAYOUT_BYTES_MIN for count in skips):
                wrong.append(f"{name}:{line} {format!r} passes over what another layout says")
            if struct.calcsize(format) >= LAYOUT_BYTES_MIN:
                home = homes.setdefault(format, name)
                if home != name:
                    wrong.append(f"{name}:{line} {format!r} stands in {home}, too")
    return wrong


def header_sizes(name: str, text: str) -> list[str]:
    """The size of the batch header as a bare number: given a name, or where something is cut."""
    wrong = []
    for node in nodes(text):
        numbers: list[ast.expr | None] = []
        if isinstance(node, ast.Assign | ast.AnnAssign):
            numbers = [node.value]
        elif isinstance(node, ast.Slice):
            numbers = [node.lower, node.upper]
        wrong += [
            f"{name}:{number.lineno} has a bare {layout.HEADER_BYTES}"
            for number in numbers
            if isinstance(number, ast.Constant) and number.value == layout.HEADER_BYTES
        ]
    return wrong


def test_layouts_are_written_once() -> None:
    product = {name_of(path): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    assert repeated_layouts(product) == []
    readers = [n for n in product if n.removeprefix("src/penstock/").split("/")[0] in READS_LOGS]
    assert [w for name in readers for w in header_sizes(name, product[name])] == []


def test_layouts_can_fail() -> None:
    entry = 'ENTRY = struct.Struct("<BBHIqqQ")'
    assert repeated_layouts({"a": entry, "b": entry}) == ["b:1 '<BBHIqqQ' stands in a, too"]
    assert repeated_layouts({"a": 'X = struct.Struct("<16xQ")'})
    assert repeated_layouts({"a": 'X = struct.Struct("<8xIH2xQ40xI")'})
    assert not repeated_layouts({"a": entry, "b": 'X = struct.Struct(">IQ")', "c": "f(1)"})
    assert not repeated_layouts({"a": 'X = struct.Struct(">I")', "b": 'X = struct.Struct(">I")'})
    assert not repeated_layouts({LAYOUT_MODULE: 'X = struct.Struct("<16xQ")'})
    assert header_sizes("m", "HEADER_BYTES = 72") == ["m:1 has a bare 72"]
    assert header_sizes("m", "body = batch[72:]") == ["m:1 has a bare 72"]
    assert not header_sizes("m", "HEADER_BYTES = HEADER.size\nPATIENCE_NS = 72 * HOUR")


# --- nothing foreign ---


def vendored(names: list[str]) -> list[str]:
    foreign = re.compile(r"\.min\.(js|css)$|(^|/)(vendor|vendored|third_party|node_modules)/")
    return [name for name in names if foreign.search(name)]


def test_selected_tests_exist() -> None:
    """A name that is gone would select nothing, and nobody would notice."""
    gone = []
    for name in (*selection.LONG, *selection.NOT_LONG, *selection.FIRST):
        path, _, function = name.partition("::")
        place = ROOT / path
        if not place.exists() or (function and f"def {function}(" not in place.read_text()):
            gone.append(name)
    assert gone == []


def test_nothing_is_vendored() -> None:
    places = [ROOT / top for top in ("src", "tests", "docs", "examples", ".ci")]
    assert vendored([name_of(path) for top in places for path in top.rglob("*")]) == []


def test_foreign_can_fail() -> None:
    assert vendored(["src/penstock/nsqadmin/static/d3.min.js", "src/vendor/x.py", "src/x.py"]) == [
        "src/penstock/nsqadmin/static/d3.min.js",
        "src/vendor/x.py",
    ]


# --- documents ---

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def slug(heading: str) -> str:
    """The anchor that a heading gets when it is shown."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(text: str) -> set[str]:
    return {slug(line.lstrip("#")) for line in text.splitlines() if line.startswith("#")}


def broken_links(path: Path, text: str) -> list[str]:
    wrong = []
    prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    for link in LINK.findall(prose):
        target, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", link):
            continue
        place = (path.parent / target) if target else path
        if not place.exists():
            wrong.append(f"{path.name}: {link} leads nowhere")
        elif anchor and anchor not in anchors(text if not target else place.read_text()):
            wrong.append(f"{path.name}: {link} names no heading")
    return wrong


def test_links_in_documents_resolve() -> None:
    assert [w for path in files(".md") for w in broken_links(path, path.read_text())] == []


def test_documents_can_fail(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n## Its part, so far\n")
    assert broken_links(page, "[x](gone.md)")
    assert broken_links(page, "[x](page.md#gone)")
    assert not broken_links(page, "[x](page.md#its-part-so-far) [y](https://example.org)")
