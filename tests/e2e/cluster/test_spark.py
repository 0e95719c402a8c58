"""Spark's source and sink at a cluster whose leaders come and go: each message once.

They are called as Spark calls them, without Spark: batch after batch, each planned and read.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from e2e.daemon import Daemon
from e2e.lookupd import Lookupd
from penstock.errors import ConfigError
from penstock.spark.options import read_options
from penstock.spark.sink import BatchWriter, read_sink_options
from penstock.spark.source import BatchReader, StreamReader

from .processes import Cluster
from .traffic import Publisher

SCHEMA = pa.schema([pa.field("body", pa.binary())])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster")) as found:
        yield found
        assert found.faults() == []


class Query:
    def __init__(self, lookupd: Lookupd, topic: str) -> None:
        given = {"lookupd": f"127.0.0.1:{lookupd.http_port}", "subscribe": topic}
        options = read_options({**given, "startingOffsets": "earliest"}, streaming=True)
        self.reader = StreamReader(options, SCHEMA)
        self.at: dict[str, Any] = self.reader.initialOffset()
        self.bodies: Counter[bytes] = Counter()

    def batch(self) -> bool:
        """Was there anything?"""
        end = self.reader.latestOffset(self.at, self.reader.getDefaultReadLimit())
        for task in self.reader.partitions(self.at, end):
            for rows in self.reader.read(task):
                self.bodies.update(rows.column(0).to_pylist())
        moved, self.at = end != self.at, end
        return moved

    def has(self, bodies: list[bytes]) -> bool:
        self.batch()
        return set(bodies) <= set(self.bodies)


def test_no_message_is_missed_or_read_twice_over_a_change_of_leader(
    cluster: Cluster, tmp_path: Path
) -> None:
    with Lookupd(tmp_path, f"--cluster=etcd://{cluster.etcd.endpoint}/stories") as lookupd:
        make(cluster, "read")
        publishers = [Publisher(node, "read") for node in cluster.nodes]
        for publisher in publishers:
            publisher.start()
        query, node = Query(lookupd, "read"), cluster.leader("read")
        cluster.until(query.batch)
        node.kill()
        cluster.until(lambda: query.has([]) and sum(len(one.acked) for one in publishers) > 200)
        node.start()
        cluster.until(lambda: is_whole(cluster, "read"))
        for publisher in publishers:
            publisher.over.set()
            publisher.join()
        acked = [body for publisher in publishers for body in publisher.acked]
        cluster.until(lambda: query.has(acked))
        assert max(query.bodies.values()) == 1
        assert not {body for one in publishers for body in one.refused} & set(query.bodies)


def test_a_version_is_stored_once_whatever_dies(cluster: Cluster) -> None:
    """A leader between staging and commit, and then the node that had the stages."""
    make(cluster, "written")
    leader = cluster.leader("written")
    first, second = (node for node in cluster.nodes if node is not leader)
    writer = sink(first, second)
    staged = writer.write(rows())
    leader.kill()
    writer.commit([staged])
    writer.commit([staged])  # the answer was lost, perhaps
    leader.start()
    cluster.until(lambda: is_whole(cluster, "written"))
    first.kill()
    writer.commit([writer.write(rows())])
    options = {"url": f"http://127.0.0.1:{second.ports[1]}", "subscribe": "written"}
    reader = BatchReader(read_options(options, streaming=False), SCHEMA)
    found = Counter(
        body
        for task in reader.partitions()
        for batch in reader.read(task)
        for body in batch.column(0).to_pylist()
    )
    assert found == Counter(BODIES)
    first.start()


def test_several_addresses_are_those_of_a_cluster(cluster: Cluster, tmp_path: Path) -> None:
    with Daemon(tmp_path) as alone:
        writer = sink(alone, cluster.nodes[0])
        with pytest.raises(ConfigError, match="this nsqd is in none"):
            writer.write(rows())


BODIES = [b"%05d" % number * 10 for number in range(3_000)]


def sink(*nodes: Daemon) -> BatchWriter:
    """As a task has it: in blocks for all partitions."""
    given = {"url": ",".join(f"127.0.0.1:{node.http_port}" for node in nodes), "topic": "written",
             "txnAppId": "app", "txnVersion": "0", "stageBytes": "10000",
             "numRetries": "20"}  # fmt: skip
    return BatchWriter(read_sink_options(given, streaming=False), {"body": "body"}, {})


def rows() -> Iterator[pa.RecordBatch]:
    yield pa.RecordBatch.from_pydict({"body": BODIES})


def make(cluster: Cluster, topic: str) -> None:
    cluster.wait_until_linked()  # else it is made without the node that has just come back
    cluster.make(f"/topic/create?topic={topic}&partition_num=3&replicator=3")
    cluster.until(lambda: is_whole(cluster, topic))


def is_whole(cluster: Cluster, topic: str) -> bool:
    return all(len(cluster.partition(topic, number)["in_sync"]) == 3 for number in range(3))
