"""A real nsqd with what the tests of pipelines ask of it."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pyarrow as pa

from e2e.daemon import Daemon
from penstock.spark.brokerapi import BrokerApi
from penstock.spark.decode import decode

DURABLE_S_MAX = 90.0


class Node:
    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.daemon.http_port}"

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
        deadline_s = time.monotonic() + DURABLE_S_MAX
        while self.end(topic) < wanted:
            assert time.monotonic() < deadline_s, (topic, self.end(topic), wanted)
            time.sleep(0.01)
        return wanted


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(first, first + count)]


def in_the_log(node: Node, topic: str, columns: pa.Schema) -> pa.Table:
    """All that the topic's log has, in its order."""
    parts: list[pa.RecordBatch] = []
    with BrokerApi(node.url) as api:
        spans = api.positions([topic]).topics[topic]
        position, end = 0, spans.partitions[0].end
        while position < end:
            found = api.fetch(topic, 0, spans.identity, position, end)
            parts += decode(found.data, columns, topic, 0, position, end)
            position = found.next_offset
    return pa.Table.from_batches(parts, columns)
