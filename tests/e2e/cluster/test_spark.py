"""Spark's source and sink at a cluster whose leaders come and go: each message once.

They are called as Spark calls them, without Spark: batch after batch, each planned and read.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from e2e.lookupd import Lookupd
from penstock.nsqdapi.calls import Owner, Stage
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.options import read_options
from penstock.spark.source import BatchReader, StreamReader
from penstock.spark.stager import Stager

from .processes import Cluster, Node
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
    with api_of(first) as api:
        stages = staged(api)
        leader.kill()
        assert not api.commit("app", 0, stages).repeated
        assert api.commit("app", 0, stages).repeated  # the answer was lost, perhaps
    leader.start()
    cluster.until(lambda: is_whole(cluster, "written"))
    first.kill()
    with api_of(second) as api:
        api.commit("app", 0, staged(api))
    options = {"url": f"http://127.0.0.1:{second.ports[1]}", "subscribe": "written"}
    reader = BatchReader(read_options(options, streaming=False), SCHEMA)
    found = Counter(
        body
        for task in reader.partitions()
        for rows in reader.read(task)
        for body in rows.column(0).to_pylist()
    )
    assert found == Counter(BODIES)
    first.start()


BODIES = [b"%05d" % number * 10 for number in range(3_000)]


def api_of(node: Node) -> BrokerApi:
    return BrokerApi(f"http://127.0.0.1:{node.ports[1]}", retries=20)


def staged(api: BrokerApi) -> tuple[Stage, ...]:
    """In blocks for all partitions, as a task stages them."""
    stager = Stager(api, {"body": "body"}, "written", "a task", 10_000, Owner("app", 0, "first"))
    stager.add(pa.RecordBatch.from_pydict({"body": BODIES}))
    return stager.finish().stages


def make(cluster: Cluster, topic: str) -> None:
    cluster.make(f"/topic/create?topic={topic}&partition_num=3&replicator=3")
    cluster.until(lambda: is_whole(cluster, topic))


def is_whole(cluster: Cluster, topic: str) -> bool:
    return all(len(cluster.partition(topic, number)["in_sync"]) == 3 for number in range(3))
