"""What is counted of processes and files, beside processes that this test starts."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.bench import footprint

DRIVER = "import subprocess, sys; subprocess.run([sys.argv[1], '-c', sys.argv[2]])"
HOLDS = "import sys; held = bytearray(b'x' * 50_000_000); print(flush=True); sys.stdin.read()"


@contextmanager
def driver_of(program: str | Path) -> Iterator[int]:
    """The process id of one that has started this Python, which holds 50 MB."""
    command = [sys.executable, "-c", DRIVER, str(program), HOLDS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.communicate()


def test_memory_by_part() -> None:
    with driver_of(sys.executable) as driver:
        found = footprint.parts_mb(driver)
        assert found["workers"] > 50
        assert 0 < found["driver"] < 50
        assert found["JVM"] == footprint.jvm(driver) == 0
        assert footprint.descendants(driver) < footprint.descendants(os.getpid())
        assert len(footprint.descendants(driver)) == 2
        assert footprint.open_files(driver) >= 3
    assert footprint.memory_mb(driver) == 0
    assert footprint.open_files(driver) == 0


def test_a_jvm_is_known_by_its_name(tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.symlink_to(sys.executable)
    with driver_of(java) as driver:
        assert footprint.descendants(driver) == {driver, footprint.jvm(driver)}
        found = footprint.parts_mb(driver)
        assert found["JVM"] > 50
        assert found["workers"] == 0


def test_files_are_counted_at_any_depth(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for path in (tmp_path / "deep" / "one", tmp_path / "two"):
        path.touch()
    assert footprint.files(tmp_path) == 2
    assert footprint.files(tmp_path, "*") == 1
    assert footprint.files(tmp_path / "nothing") == 0
