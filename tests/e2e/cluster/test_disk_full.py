"""A node whose disk fills up: others lead what it led, and its clients go on through them."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.v2client import V2Client

from .processes import Cluster
from .test_stories import check
from .traffic import Publisher, Traffic

MIB = 1 << 20
PADDING = bytes(30_000)


class LargePublisher(Publisher):
    def _publish(self, client: V2Client, body: bytes) -> None:
        client.pub(self.topic, body + PADDING)


@pytest.fixture
def cluster(tmp_path: Path, small_disk: Path) -> Iterator[Cluster]:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "2").symlink_to(small_disk)
    with Cluster(tmp_path / "cluster", 3, f"--min-disk-free={6 * MIB}") as cluster:
        yield cluster


@pytest.mark.parametrize("small_disk", ["tmpfs"], indirect=True)
def test_a_full_disk_costs_the_node_its_leaderships_and_clients_nothing(
    cluster: Cluster, small_disk: Path
) -> None:
    full = cluster.nodes[2]
    full.ask("/topic/create?topic=large&partition_num=3", "POST")
    cluster.until(lambda: 2 in _leaders(cluster))
    with Traffic(cluster, "large", publisher=LargePublisher) as traffic:
        cluster.until(lambda: None not in _leaders(cluster) and 2 not in _leaders(cluster))
        publisher = traffic.publishers[2]
        acked = len(publisher.acked)
        cluster.until(lambda: len(publisher.acked) > acked + 50)  # at the node that is full
        subprocess.run(["mount", "-o", "remount,size=500m", str(small_disk)], check=True)
        cluster.until(
            lambda: all(len(cluster.partition("large", n)["in_sync"]) == 3 for n in range(3))
        )
    check(traffic.report())


def _leaders(cluster: Cluster) -> list[int | None]:
    return [cluster.partition("large", number)["leader"] for number in range(3)]
