"""Files that are not synced, for tests in whose world the machine never loses power.

A sync waits for the disk of the machine, and there are thousands in a run. What a loss of power
leaves behind is shown on simulated disks, and what the daemon asks of the system in `tests/e2e`: a
process of its own syncs as ever. Faults that tests inject into syncs are injected before this.
"""

import os
from collections.abc import Iterator

import pytest

from penstock.log import disk


@pytest.fixture(autouse=True, scope="module")
def unsynced() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disk, "_fdatasync", lambda fd: None)
        # A directory that is not there is an error still.
        patch.setattr(disk.OsDisk, "sync_directory", lambda _, path: os.stat(path))
        yield
