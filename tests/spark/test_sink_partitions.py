"""Writing into a topic of four partitions of a real nsqd: by key, by number, and spread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from e2e.daemon import Daemon
from penstock.kernel import Section, murmur3_32

from .inlogs import bodies_of, section_of
from .realnsqd import Nsqd

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore::ResourceWarning")]
COUNT = 4


@pytest.fixture(scope="module")
def nsqd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nsqd]:
    with Daemon(tmp_path_factory.mktemp("nsqd")) as daemon:
        yield Nsqd(daemon)


@pytest.fixture
def topic(nsqd: Nsqd, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name[:60]
    nsqd.daemon.post(f"/topic/create?topic={name}&partition_num={COUNT}")
    return name


def write(frame: DataFrame, nsqd: Nsqd, **options: Any) -> None:
    frame.write.format("penstock").option("url", nsqd.url).options(**options).mode("append").save()


def test_a_key_keeps_its_partition_and_its_order(
    spark: SparkSession, nsqd: Nsqd, topic: str
) -> None:
    """90 % of the rows have one key."""
    frame = spark.sql(
        "SELECT string(id) AS body, if(id % 10 > 0, 'many', concat('k', id % 7)) AS key"
        " FROM range(0, 2000, 1, 2)"
    )
    write(frame, nsqd, topic=topic, stageBytes="5000")
    nsqd.daemon.post(f"/pub?topic={topic}&key=many", b"published")
    keys = [b"many" if n % 10 else b"k%d" % (n % 7) for n in range(2000)]
    found = bodies_of(nsqd.url, topic)
    for number in range(COUNT):
        wanted = [b"%d" % n for n, key in enumerate(keys) if murmur3_32(key) % COUNT == number]
        if number == murmur3_32(b"many") % COUNT:
            assert len(wanted) >= 1800
            keys.append(b"many")
            wanted.append(b"published")
        assert found[number] == wanted
        stored = section_of(nsqd.url, topic, number, Section.KEY)
        assert stored == [keys[-1 if body == b"published" else int(body)] for body in wanted]
