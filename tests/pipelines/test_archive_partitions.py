"""A topic of four partitions, one of which has nine tenths of it, in an archive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from e2e.daemon import Daemon

from .node import Node, skewed
from .test_archive import Archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
ROW = 'partition, "offset", body::VARCHAR::INT'


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    with Daemon(tmp_path / "nsqd") as daemon:
        daemon.post("/topic/create?topic=orders&partition_num=4")
        yield Node(daemon)


@pytest.fixture
def made(spark: SparkSession, node: Node, tmp_path: Path) -> Archive:
    return Archive(spark, node, tmp_path / "lake")


def expected(*parts: dict[int, list[bytes]]) -> list[tuple[int, int, int]]:
    """Each partition counts for itself."""
    whole = {number: [b for part in parts for b in part.get(number, [])] for number in range(4)}
    return [(n, at, int(b)) for n, bodies in whole.items() for at, b in enumerate(bodies)]


def test_every_message_of_every_partition_once(made: Archive, tmp_path: Path) -> None:
    """In many batches, by runs that each go on; and behind the table when the checkpoint is
    lost."""
    first, second, third = skewed(1000), skewed(500, 1000), skewed(200, 1500)
    made.node.publish_to("orders", first)
    said = made.run(max_offsets_per_trigger=300)
    assert "archive: 1,000 rows" in said
    assert "up to date" in said
    assert made.rows(ROW) == expected(first)
    made.node.publish_to("orders", second)
    made.run(max_offsets_per_trigger=300)
    assert made.rows(ROW) == expected(first, second)
    made.node.publish_to("orders", third)
    said = made.run(checkpoint=str(tmp_path / "lost"), recover=True)
    for number, at in ((1, 1350), (3, 90)):
        assert f"recovering: partition {number} of orders goes on at offset {at}" in said
    made.run(checkpoint=str(tmp_path / "lost"))
    assert made.rows(ROW) == expected(first, second, third)
