"""Virtual environments beside the tests' own, for what has to run with other packages, or fewer."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_UV = shutil.which("uv") or str(Path(sys.prefix) / "uv" / "bin" / "uv")


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
