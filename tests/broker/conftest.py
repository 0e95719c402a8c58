import logging
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sim.disk import SimDisk
from unsynced import unsynced as unsynced

from .replicas.cluster_world import Cluster
from .staging import empty, on
from .world import LIVE, Start, World


@pytest.fixture(autouse=True)
def no_engine_is_left() -> Iterator[None]:
    """A world that was "killed" in mid-step is never closed; its descriptors must be."""
    yield
    for world in LIVE:
        world.engine.close()
    LIVE.clear()


@pytest.fixture
def quiet() -> Iterator[None]:
    """Thousands of injected faults are no news."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def disk() -> SimDisk:
    return empty(SimDisk())


@pytest.fixture
def simulate(disk: SimDisk) -> Start:
    """Starts a broker on a disk that fails on request."""
    return partial(on, disk)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Starts a broker on an empty directory; closes it and all that were started after it."""
    family: list[World] = []

    def begin(**options: Any) -> World:
        path = tmp_path / "data"
        path.mkdir()
        return World.start(path, family, **options)

    yield begin
    for world in family:
        world.close()


@pytest.fixture
def world(start: Callable[..., World]) -> World:
    return start()


@pytest.fixture(params=[1, 4])
def partitions(request: pytest.FixtureRequest) -> int:
    count: int = request.param
    return count


@pytest.fixture
def cluster() -> Cluster:
    """Three nodes with a replica of the topic `orders` each. Node 0 leads it."""
    cluster = Cluster()
    cluster.place([0])
    return cluster
