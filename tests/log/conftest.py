import pytest

from sim.disk import SimDisk

from .helpers import durable_disk


@pytest.fixture
def disk() -> SimDisk:
    return durable_disk()
