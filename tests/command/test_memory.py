"""Large things that come and go leave no large process behind."""

import gc
import platform
import subprocess
import sys

import pytest

from penstock.command import memory

# Texts of 1 MB with small things between that stay: without the setting 200 MB stay too.
_COME_AND_GO = """
from penstock.command import memory
def resident_mb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6
memory.give_back_large()
before = resident_mb()
bytes(16 << 20)
pairs = [(b"x" * (1 << 20), b"y" * 2000) for _ in range(200)]
stay = [small for _, small in pairs]
held = resident_mb()
del pairs
print(held - before, resident_mb() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that keeps them")
def test_large_allocations_return_to_the_system() -> None:
    run = subprocess.run(
        [sys.executable, "-c", _COME_AND_GO], capture_output=True, text=True, check=True
    )
    held_mb, left_mb = map(float, run.stdout.split())
    assert held_mb > 200
    assert left_mb < 20


def test_objects_of_the_start_are_frozen() -> None:
    try:
        memory.settle()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
