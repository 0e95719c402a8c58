from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.replicas.cluster_world import Cluster
from e2e.certificates import Certificates
from e2e.daemon import Daemon
from unsynced import unsynced as unsynced

from .world import Running


@pytest.fixture(scope="module")
def nsqd(unsynced: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One daemon with default options for the tests of a module; each uses topics of its own."""
    with Running(tmp_path_factory.mktemp("nsqd")) as running:
        yield running


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    """A process of its own, for signals."""
    with Daemon(tmp_path / "data") as daemon:
        yield daemon


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Three replicas of one partition, played."""
    made = Cluster()
    made.place([0])
    yield made
    for node in made.up():
        node.engine.close()


@pytest.fixture(params=[1, 4])
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Running]:
    """Channel `ch` of a topic `t` with one partition, and with four."""
    flags = ("--durability=os", "--node-id=7", "--max-req-timeout=72h")
    with Running(tmp_path / "data", *flags) as running:
        made = f"/topic/create?topic=t&partition_num={request.param}"
        running.post(made, "/channel/create?topic=t&channel=ch")
        yield running
