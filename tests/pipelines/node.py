"""A real nsqd with what the tests of pipelines ask of it."""

import uuid
from collections.abc import Mapping, Sequence

import pyarrow as pa

from e2e.daemon import Daemon
from e2e.lookupd import eventually
from penstock.kernel import encode_batch
from penstock.nsqdapi import calls
from penstock.nsqdapi.calls import Stage, TopicSpans
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.decode import decode

DURABLE_S_MAX = 90.0


class Node:
    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.daemon.http_port}"

    def spans(self, topic: str) -> TopicSpans:
        with BrokerApi(self.url) as api:
            return api.positions([topic]).topics[topic]

    def end(self, topic: str) -> int:
        with BrokerApi(self.url) as api:
            found = api.positions([topic]).topics.get(topic)
        return found.partitions[0].end if found else 0

    def publish(self, topic: str, bodies: Sequence[bytes]) -> int:
        """The end of the log, as soon as all of it can be read."""
        wanted = self.end(topic) + len(bodies)
        for body in bodies if any(b"\n" in body for body in bodies) else ():
            self.daemon.post(f"/pub?topic={topic}", body)
        if not any(b"\n" in body for body in bodies):
            self.daemon.post(f"/mpub?topic={topic}", b"\n".join(bodies))
        eventually(lambda: self.end(topic) >= wanted, DURABLE_S_MAX)
        return wanted

    def publish_to(self, topic: str, bodies: Mapping[int, Sequence[bytes]]) -> None:
        """To partitions by their number. They can be read when this returns."""
        stages = {number: Stage(topic, number, uuid.uuid4().hex) for number in bodies}
        with BrokerApi(self.url) as api:
            for number, stage in stages.items():
                api.ask(calls.stage(stage, encode_batch(list(bodies[number]), 0, 0, 0)))
            before = api.positions([topic]).topics[topic].partitions
            api.commit(uuid.uuid4().hex, 0, stages.values())

            def all_there() -> bool:
                now = api.positions([topic]).topics[topic].partitions
                return all(now[n].end >= before[n].end + len(bodies[n]) for n in bodies)

            eventually(all_there, DURABLE_S_MAX)


def skewed(total: int, first: int = 0) -> dict[int, list[bytes]]:
    """For four partitions, of which one has nine tenths."""
    shares = {0: 0.04, 1: 0.9, 2: 0.0, 3: 0.06}
    found: dict[int, list[bytes]] = {}
    for number, share in shares.items():
        count = round(total * share)
        if count:
            found[number] = numbered(count, first)
            first += count
    return found


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def in_the_log(node: Node, topic: str, columns: pa.Schema) -> pa.Table:
    """All that its first partition has, in its order."""
    return in_the_logs(node.url, topic, columns)[0]


def bodies_of(url: str, topic: str) -> list[list[bytes]]:
    """By partition."""
    found = in_the_logs(url, topic, pa.schema([("body", pa.binary())]))
    return [table.column("body").to_pylist() for table in found]


def in_the_logs(url: str, topic: str, columns: pa.Schema) -> list[pa.Table]:
    """All that the topic's partitions have, each in its order."""
    with BrokerApi(url) as api:
        spans = api.positions([topic]).topics[topic]
        return [
            pa.Table.from_batches(
                (
                    batch
                    for fetched in api.fetches(topic, n, spans.identity, span.earliest, span.end)
                    for batch in decode(fetched.data, columns, topic, n, span.earliest, span.end)
                ),
                columns,
            )
            for n, span in sorted(spans.partitions.items())
        ]
