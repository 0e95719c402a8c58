from collections.abc import Iterator

import pytest

from penstock import kernel
from sim.brokers.cluster import JoinedCluster


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    yield made
    made.close()
