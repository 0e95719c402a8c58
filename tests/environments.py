"""Virtual environments beside the tests' own, for what has to run with other packages, or fewer."""

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_DOCUMENT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT: dict[str, Any] = _DOCUMENT["project"]
_UV = shutil.which("uv") or str(Path(sys.prefix) / "uv" / "bin" / "uv")


def requirements(*extras: str) -> list[str]:
    """Of the core and these extras, those included that an extra names."""
    found = list(PROJECT["dependencies"])
    for extra in extras:
        for one in PROJECT["optional-dependencies"][extra]:
            named = re.fullmatch(r"penstock\[(.+)\]", one)
            found += requirements(*named[1].split(",")) if named else [one]
    return list(dict.fromkeys(found))


def uv(*arguments: str) -> subprocess.CompletedProcess[str]:
    settings = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}
    if index := os.environ.get("PIP_INDEX_URL"):
        settings["UV_DEFAULT_INDEX"] = index
    return subprocess.run(
        [_UV, *arguments], check=True, stdout=subprocess.PIPE, text=True, env=os.environ | settings
    )


class Venv:
    def __init__(self, path: Path) -> None:
        self.python = str(path / "bin" / "python")
        self._path = path
        uv("venv", "--quiet", "--python", sys.executable, str(path))

    def install(self, *wanted: str) -> None:
        uv("pip", "install", "--quiet", "--python", self.python, *wanted)

    def installed_bytes(self) -> int:
        return sum(path.stat().st_size for path in self._path.rglob("*") if path.is_file())


@functools.cache
def kept_python(group: str) -> str:
    """The Python of an environment with a dependency group, made once, beside the tests' own."""
    wanted: list[str] = _DOCUMENT["dependency-groups"][group]
    digest = hashlib.sha256(repr(wanted).encode()).hexdigest()[:16]
    home = Path(sys.prefix) / "kept" / f"{group}-{digest}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:  # test runs may stand side by side
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "installed").exists():
            shutil.rmtree(home / "venv", ignore_errors=True)  # what an ended run has left
            Venv(home / "venv").install(*wanted)
            (home / "installed").touch()
    return str(home / "venv" / "bin" / "python")
