"""What is said when a package of an extra is missing: an install that exists."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from penstock.command import extras

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_every_package_is_in_its_extra() -> None:
    declared = PROJECT["optional-dependencies"]
    for extra, packages in extras._EXTRAS.items():
        listed = " ".join(declared[extra]).replace("-", "_")
        for package in packages:
            assert package in listed or package == "starlette"  # comes with fastapi


def test_only_what_an_extra_has() -> None:
    assert extras.extra_of(ModuleNotFoundError(name="pyspark.sql")) == "spark"
    assert extras.extra_of(ModuleNotFoundError(name="penstock.nonsense")) == ""


def without(package: str, tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`penstock` in a Python that has everything but one package."""
    (tmp_path / package).mkdir()
    text = f"raise ModuleNotFoundError(\"No module named '{package}'\", name='{package}')\n"
    (tmp_path / package / "__init__.py").write_text(text)
    return subprocess.run(
        [sys.executable, "-m", "penstock.tools.main", *words],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"},
    )


@pytest.mark.parametrize(
    ("package", "words", "extra"),
    [
        ("duckdb", ("sql", "select 1", "--url=127.0.0.1:1"), "sql"),
        ("pyspark", ("pipeline", "run", "archive", "--table=x"), "spark"),
        ("pyspark", ("pipeline", "list"), "spark"),
        ("nicegui", ("nsqadmin", "-nsqd-http-address=127.0.0.1:1"), "admin"),
    ],
)
def test_a_verb_without_its_extra_says_what_to_install(
    tmp_path: Path, package: str, words: tuple[str, ...], extra: str
) -> None:
    done = without(package, tmp_path, *words)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert f"needs the extra `{extra}`: install it with pip install '.[{extra}]'" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
