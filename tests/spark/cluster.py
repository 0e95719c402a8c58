"""A Spark cluster out of the PyPI wheel, and our own wheel in a Python of its own, for tests.

The Python that driver and workers run sees the packages of this one, but not this checkout: what it
imports as `penstock` is what is in the wheel. The wheel is built without the compiled kernel, which
takes a minute; the compiled modules, where there are any, are copied beside it.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyspark

from environments import uv

from . import quickjvm
from .patience import LATE

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
RUN_S_MAX = 400.0  # two cores that others use too; alone it takes a tenth
LOOPBACK = "127.0.0.1"
# Small Java machines: there are five of them on two cores.
_LOCAL = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}


def _local() -> dict[str, str]:
    java = quickjvm.options()
    return {
        **_LOCAL,
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": java,
    }


@dataclass(frozen=True)
class Installed:
    """A Python with the wheel in it."""

    python: Path
    wheel: Path

    def environment(self, daemon_memory: str = "256m") -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "PYSPARK"))}
        return {
            **kept,
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_LOCAL_IP": LOOPBACK,
            "SPARK_DAEMON_MEMORY": daemon_memory,
            "SPARK_DAEMON_JAVA_OPTS": quickjvm.options(),
            "SPARK_NO_DAEMONIZE": "1",
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
        }

    def submit(self, *words: str, master: str = "", conf: dict[str, str] | None = None) -> Ran:
        """`spark-submit`, run to its end."""
        command = [str(SPARK_HOME / "bin" / "spark-submit")]
        command += ["--master", master] if master else []
        for name, value in {**_local(), **(conf or {})}.items():
            command += ["--conf", f"{name}={value}"]
        return self.run(*command, *words)

    def run(self, *command: str) -> Ran:
        ran = self._run(*command)
        return self._run(*command) if ran.code and LATE in ran.err else ran

    def _run(self, *command: str) -> Ran:
        done = subprocess.run(
            command,
            env=self.environment(),
            cwd=self.python.parent,
            capture_output=True,
            text=True,
            timeout=RUN_S_MAX,
        )
        return Ran(done.returncode, done.stdout, done.stderr)


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    def checked(self) -> Self:
        assert self.code == 0, self.out + self.err
        return self


def install(directory: Path) -> Installed:
    """Build the wheel and install it; nothing is downloaded."""
    source = directory / "source"
    ignored = shutil.ignore_patterns("*.so", "*.c", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", f"--outdir={directory}"]
    subprocess.run([*build, source], check=True, env=os.environ | {"PENSTOCK_BUILD": "later"})
    (wheel,) = directory.glob("penstock-*.whl")
    home = directory / "venv"
    site = _make_venv(home)
    python = home / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", str(python), "--no-deps", "--no-index", str(wheel))
    for module in (ROOT / "src").rglob("*.so"):
        shutil.copy(module, site / module.relative_to(ROOT / "src"))
    return Installed(python, wheel)


def bare_python(installed: Installed, directory: Path) -> Installed:
    """One that has our packages' requirements, and not ours."""
    home = directory / "bare"
    _make_venv(home)
    return Installed(home / "bin" / "python", installed.wheel)


def _make_venv(home: Path) -> Path:
    """Where it has its packages."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = (home / "lib").glob("python*/site-packages")
    # A directory that is named here is searched, but its own .pth files are not looked at: those
    # are what lets this Python see the checkout.
    (site / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return site


class Process:
    """A daemon of Spark's; `found` is what it says when it is ready."""

    def __init__(
        self, installed: Installed, log: Path, ready: str, *command: str, memory: str = "256m"
    ) -> None:
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                env=installed.environment(memory),
                cwd=log.parent,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self.found = self._wait(re.compile(ready))

    def _wait(self, ready: re.Pattern[str]) -> str:
        deadline_s = time.monotonic() + RUN_S_MAX
        while time.monotonic() < deadline_s and self._process.poll() is None:
            match = ready.search(self._log.read_text(errors="replace"))
            if match:
                return match[1]
            time.sleep(0.05)
        self.end()
        raise AssertionError(f"not ready:\n{self._log.read_text(errors='replace')}")

    def end(self) -> None:
        """With all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()


class Cluster:
    """A master and two workers of one core each."""

    def __init__(self, installed: Installed, directory: Path) -> None:
        self.installed = installed
        spark_class = str(SPARK_HOME / "bin" / "spark-class")
        deploy = "org.apache.spark.deploy"
        quiet = ("--host", LOOPBACK, "--port", "0", "--webui-port", "0")
        master = (spark_class, f"{deploy}.master.Master", *quiet)
        self._processes = [
            Process(
                installed,
                directory / "master.log",
                r"Starting Spark master at (spark://\S+)",
                *master,
            )
        ]
        self.master = self._processes[0].found
        small = ("--cores", "1", "--memory", "1g")
        for number in (1, 2):
            work = ("--work-dir", str(directory / f"work{number}"), self.master)
            worker = (spark_class, f"{deploy}.worker.Worker", *quiet, *small, *work)
            log = directory / f"worker{number}.log"
            try:
                ready = r"(Successfully registered) with master"
                self._processes.append(Process(installed, log, ready, *worker))
            except BaseException:
                self.end()
                raise

    def end(self) -> None:
        for process in reversed(self._processes):
            process.end()


def connect_server(installed: Installed, directory: Path) -> Process:
    """`found` is its port."""
    submit = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]"]
    settings = {
        **_local(),
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": "0",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
    }
    for name, value in settings.items():
        submit += ["--conf", f"{name}={value}"]
    server = "org.apache.spark.sql.connect.service.SparkConnectServer"
    ready = r"Spark Connect server started at: \S+?:(\d+)"
    command = (*submit, "--class", server, "spark-internal")
    return Process(installed, directory / "connect.log", ready, *command, memory="900m")
