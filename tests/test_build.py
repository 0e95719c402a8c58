"""The source distribution and the wheel that others install.

The wheel is built from the source distribution, as pip does it, without optimising: what is tested
is what is in it. It is then run by itself, with no compiler to be found.
"""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("src/penstock/**/*.pyx"))
BUILD_S_MAX = 280
PROGRAM = """
import penstock, penstock.kernel, penstock.kernel.engine, penstock.kernel.bulk
assert "site" in penstock.__file__, penstock.__file__
assert penstock.kernel.crc32c.__module__ == "penstock.kernel._codec"
"""


def run(*command: str, path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=path,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_S_MAX,
        check=False,
    )


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a copy of what is committed or about to be, so that nothing is left in the tree."""
    tree = tmp_path_factory.mktemp("tree")
    listed = subprocess.check_output(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"], cwd=ROOT
    )
    for name in filter(None, listed.decode().split("\0")):
        if (ROOT / name).is_file() and not name.startswith("tests/"):
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            (tree / name).write_bytes((ROOT / name).read_bytes())
    built = tmp_path_factory.mktemp("sdist")
    done = run(
        sys.executable, "-m", "build", "--sdist", "--no-isolation", f"--outdir={built}", path=tree
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = built.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    done = run(
        *pip,
        "--no-cache-dir",
        f"--wheel-dir={built}",
        str(sdist),
        path=built,
        PENSTOCK_CFLAGS="-O0",
        PENSTOCK_BUILD="required",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (archive,) = built.glob("*.whl")
    return archive


def test_the_source_distribution_has_the_sources_and_nothing_built(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert [name for name in sorted(names) if name.endswith(".pyx")] == SOURCES
    assert not [name for name in names if name.endswith((".c", ".so"))]


def test_a_tree_without_sources_is_refused(sdist: Path, tmp_path: Path) -> None:
    """It used to make a wheel without a kernel, and to say nothing."""
    with tarfile.open(sdist) as archive:
        if hasattr(tarfile, "data_filter"):  # not in the first patch releases of 3.11
            archive.extraction_filter = tarfile.data_filter
        archive.extractall(tmp_path)
    (tree,) = tmp_path.iterdir()
    for source in tree.rglob("*.pyx"):
        source.unlink()
    done = run(sys.executable, "setup.py", "--quiet", "bdist_wheel", path=tree)
    assert done.returncode != 0
    assert "this source tree is incomplete" in done.stderr


@pytest.mark.timeout(2 * BUILD_S_MAX)
def test_the_wheel_is_compiled_and_carries_no_c(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    compiled = sorted(name.partition(".")[0] for name in names if name.endswith(".so"))
    assert compiled == [one.removeprefix("src/").removesuffix(".pyx") for one in SOURCES]
    assert not [name for name in names if name.endswith((".c", ".pyx", ".pxd", ".pxi"))]
    data = ROOT / "src/penstock"
    for kind in ("*.js", "*.css", "*.properties", "py.typed"):
        for path in data.rglob(kind):
            assert path.relative_to(ROOT / "src").as_posix() in names


@pytest.mark.timeout(2 * BUILD_S_MAX)
def test_the_wheel_runs_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    pip = [sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet"]
    done = run(*pip, f"--target={site}", str(wheel), path=tmp_path)
    assert done.returncode == 0, done.stderr
    alone = {"PYTHONPATH": str(site), "PATH": str(tmp_path)}
    done = run(sys.executable, "-c", PROGRAM, path=tmp_path, **alone)
    assert (done.returncode, done.stderr) == (0, "")
    done = run(sys.executable, "-m", "penstock.tools.main", "--version", path=tmp_path, **alone)
    assert done.returncode == 0, done.stderr
    assert "penstock" in done.stdout.lower()


# --- what is compiled again ---


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What `setup.py` defines, in a tree of three sources."""
    monkeypatch.setattr("setuptools.setup", lambda **_: None)
    package = tmp_path / "src/penstock/kernel"
    package.mkdir(parents=True)
    for name in ("a.pyx", "a.pxd", "b.pyx"):
        (package / name).write_text(name)
        os.utime(package / name, (1000, 1000))
    monkeypatch.chdir(tmp_path)
    return runpy.run_path(str(ROOT / "setup.py"))


def times() -> dict[str, float]:
    return {path.name: path.stat().st_mtime for path in Path("src").rglob("*.p*")}


def written_again(**texts: str) -> None:
    """As a checkout does it: all files are new, some have another content."""
    for path in Path("src").rglob("*.p*"):
        path.write_text(texts.get(path.name.replace(".", "_"), path.name))
        os.utime(path, (2000, 2000))


def test_only_what_has_changed_is_newer_than_the_last_build(script: dict[str, Any]) -> None:
    script["note_times"]()
    written_again(a_pxd="changed")
    script["keep_times"]()
    assert times() == {"a.pyx": 1000, "a.pxd": 2000, "b.pyx": 1000}


def test_after_a_build_that_failed_the_times_are_what_they_are(script: dict[str, Any]) -> None:
    """It may have translated a content that is gone again."""
    script["note_times"]()
    script["keep_times"]()  # a build begins, and does not end
    written_again()
    script["keep_times"]()
    assert set(times().values()) == {2000}
