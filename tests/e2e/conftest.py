"""File systems of a few megabytes, mounted for one test."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SMALL_DISK_MIB = 24


def run(*command: str) -> None:
    """Run a command that has to succeed; what it said is shown when it does not."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.fail(f"{' '.join(command)} failed (does this run as root?): {done.stderr}")


def mount_ext4(image: Path, path: Path) -> None:
    with image.open("wb") as file:
        file.truncate(SMALL_DISK_MIB << 20)
    run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", str(image))
    run("mount", "-o", "loop", str(image), str(path))


@pytest.fixture(params=["tmpfs", "ext4"])
def small_disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A directory on a disk of 24 MiB. No space at all is one thing on tmpfs, and another on a file
    system that promises space before it has it."""
    path = tmp_path / "disk"
    path.mkdir()
    if request.param == "tmpfs":
        run("mount", "-t", "tmpfs", "-o", f"size={SMALL_DISK_MIB}m", "tmpfs", str(path))
    else:
        mount_ext4(tmp_path / "disk.image", path)
    try:
        yield path
    finally:
        run("umount", str(path))
