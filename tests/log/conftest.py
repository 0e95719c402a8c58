import pytest

from sim.disk import SimDisk


@pytest.fixture
def disk() -> SimDisk:
    """With the directories of a topic, which outlast a power loss."""
    disk = SimDisk()
    for path in ("data", "data/topics", "data/topics/orders"):
        disk.mkdir(path)
    for path in ("", "data", "data/topics", "data/topics/orders"):
        disk.sync_directory(path)
    return disk
