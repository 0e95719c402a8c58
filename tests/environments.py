"""Virtual environments beside the tests' own, for what has to run with other packages, or fewer."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
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
