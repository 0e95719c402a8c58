"""What broke other clusters: flipped bits in the files of one node. Nothing that was acknowledged
is lost, and no topic is forgotten. For kills and pauses of most nodes see `test_power_loss.py`."""

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from .processes import Cluster, Node
from .test_stories import bring_back, check
from .traffic import Traffic


@pytest.fixture(scope="module")
def three_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(three_nodes: Cluster) -> Cluster:
    three_nodes.wait_until_linked()
    return three_nodes


def flip(path: Path, dice: random.Random) -> None:
    """One bit of a file."""
    data = bytearray(path.read_bytes())
    if data:
        data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
        path.write_bytes(data)


def files(node: Node, topic: str) -> list[Path]:
    return sorted(one for one in (node.data_path / "topics" / topic).rglob("*") if one.is_file())


def test_a_bit_flips_in_every_file_of_a_topic_on_one_node(cluster: Cluster) -> None:
    """Its replica is moved aside and copied again, and may lead then."""
    dice = random.Random(1)
    with Traffic(cluster, "flipped") as traffic:
        cluster.until(lambda: cluster.is_whole("flipped"))
        leader = cluster.leader("flipped")
        corrupt = next(node for node in cluster.nodes if node is not leader)
        corrupt.kill()
        for path in files(corrupt, "flipped"):
            flip(path, dice)
        bring_back(cluster, corrupt, "flipped")
        leader.kill()
        cluster.until(lambda: cluster.leader("flipped") is not leader)
        time.sleep(2)
        bring_back(cluster, leader, "flipped")
    check(traffic.report(leader))
    assert (corrupt.data_path / "aside" / "flipped").is_dir()
