"""Prepare the virtual environment that the Makefile's verbs run in: `prepare.py VENV FOR`.

FOR is `run` (the core, nsqadmin, the kernel), `dev` (also everything that tests and checks need)
or `spark` (also PySpark). The kernel compiles while packages are downloaded, so both cores work.
Each step says that it began and how long it took; what the programs under it print goes to
VENV/prepare.log, whose end is shown when one of them fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EXTRAS = {"run": "admin", "dev": "dev", "spark": "admin,spark"}
WORDS = {
    "run": "packages of the core and nsqadmin",
    "dev": "packages for tests and checks, Spark among them",
    "spark": "Spark",
}
BUILD_TOOLS = ["Cython>=3.2,<4", "setuptools>=77"]
LOG_LINES_SHOWN = 20
BEGUN_S = time.monotonic()


class StepFailed(Exception):
    """A command ended with an error; its output is in the log."""


class Preparation:
    def __init__(self, venv: Path, purpose: str) -> None:
        self.venv = venv
        self.purpose = purpose
        self.python = str(venv / "bin" / "python")
        self.log = venv / "prepare.log"

    def run(self) -> None:
        if not Path(self.python).exists():
            self.step("virtual environment", [sys.executable, "-m", "venv", str(self.venv)])
        self.step("build tools", self.pip(*BUILD_TOOLS))
        with ThreadPoolExecutor(2) as pool:
            parts = [pool.submit(self.packages), pool.submit(self.kernel)]
        for part in parts:
            part.result()

    def packages(self) -> None:
        """Byte code is compiled when a module is first imported: most never are."""
        wanted = ["--no-build-isolation", "--no-compile", "--editable"]
        self.step(WORDS[self.purpose], self.pip(*wanted, f".[{EXTRAS[self.purpose]}]"), "later")

    def kernel(self) -> None:
        build = [self.python, "setup.py", "--quiet", "build_ext", "--inplace", "--parallel"]
        wanted = "development" if self.purpose == "dev" else ""
        self.step("compiled kernel", [*build, str(os.cpu_count() or 1)], wanted)

    def pip(self, *arguments: str) -> list[str]:
        quiet = ["--quiet", "--disable-pip-version-check"]
        return [self.python, "-m", "pip", "install", *quiet, *arguments]

    def step(self, name: str, command: list[str], build: str = "") -> None:
        begun_s = time.monotonic()
        say(f"{name} ...")
        self.venv.mkdir(exist_ok=True)
        environment = {**os.environ, "PENSTOCK_BUILD": build}
        with self.log.open("ab") as log:
            code = subprocess.call(command, stdout=log, stderr=log, env=environment)
        if code:
            raise StepFailed(f"{name}: {command[0]} ended with code {code}")
        say(f"{name}: done in {time.monotonic() - begun_s:.0f} s")


def say(line: str) -> None:
    print(f"[{time.monotonic() - BEGUN_S:3.0f} s] {line}", flush=True)


def main() -> int:
    venv, purpose = Path(sys.argv[1]), sys.argv[2]
    if sys.version_info < (3, 11):  # noqa: UP036  # an older one runs this file to learn it
        print("Penstock needs Python 3.11 or later; name one: make PYTHON=python3.12")
        return 1
    preparation = Preparation(venv, purpose)
    preparation.log.unlink(missing_ok=True)
    try:
        preparation.run()
    except StepFailed as error:
        lines = preparation.log.read_text(errors="replace").splitlines()
        print("\n".join(lines[-LOG_LINES_SHOWN:]), file=sys.stderr)
        print(f"{error}. All of its output: {preparation.log}", file=sys.stderr)
        if "ensurepip" in "".join(lines):
            print("Install your system's package for venv (python3-venv).", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
