"""Publishers and consumers of a story, each a thread, and what came of each message.

A publisher sends one message after the other to its node and writes down how each ended: *acked*,
*refused* (an error that says that nothing is stored) or *unknown* (no answer, or one that says
so). What is acked must come to the consumers, and what is refused must not.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from typing import NamedTuple

from e2e.v2client import MESSAGE, Closed, Refused, V2Client

from .processes import Cluster, Node

PAUSE_S = 0.004  # between two publishes
QUIET_S = 3.0  # a story is over when none has come for so long; a second, where none is missing


class Report(NamedTuple):
    """The sums of a story."""

    acked: int
    lost: list[bytes]
    refused_yet_stored: list[bytes]
    repeats: int
    longest_s: float  # without an OK, of a publisher whose node was up all the time
    order_broken: list[tuple[bytes, bytes]]


class Publisher(threading.Thread):
    def __init__(self, node: Node, topic: str) -> None:
        super().__init__(daemon=True)
        self.node, self.topic = node, topic
        self.acked: list[bytes] = []
        self.refused: list[bytes] = []
        self.unknown: list[bytes] = []
        self.longest_s = self.last_s = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        bodies = (b"%d-%06d" % (self.node.number, number) for number in itertools.count())
        self.last_s = time.monotonic()
        while not self.over.is_set():
            body = next(bodies)
            try:
                with V2Client(self.node.ports[0], host=self.node.host) as client:
                    while not self.over.is_set():
                        self._publish(client, body)
                        self._note(body)
                        body = next(bodies)
                        self.over.wait(PAUSE_S)
            except Refused as refused:
                (self.unknown if b"not known" in refused.data else self.refused).append(body)
            except (OSError, Closed):
                self.unknown.append(body)
            self.over.wait(0.05)

    def _publish(self, client: V2Client, body: bytes) -> None:
        client.pub(self.topic, body)

    def _note(self, body: bytes) -> None:
        self.acked.append(body)
        now_s = time.monotonic()
        self.longest_s, self.last_s = max(self.longest_s, now_s - self.last_s), now_s


class KeyedPublisher(Publisher):
    """All of its messages have one key, which no other publisher has."""

    def _publish(self, client: V2Client, body: bytes) -> None:
        headers = b'{"key": "%d"}' % self.node.number
        client.command(f"PUB_EXT {self.topic}", len(headers).to_bytes(2, "big") + headers + body)
        client.ok()


class Consumer(threading.Thread):
    def __init__(self, node: Node, topic: str, channel: str) -> None:
        super().__init__(daemon=True)
        self.node, self.topic, self.channel = node, topic, channel
        self.got: list[tuple[float, bytes]] = []
        self.over = threading.Event()

    def run(self) -> None:
        while not self.over.is_set():
            try:
                with V2Client(self.node.ports[0], host=self.node.host) as client:
                    client.sub(self.topic, self.channel)
                    client.rdy(20)
                    self._take(client)
            except (OSError, Closed, Refused):
                self.over.wait(0.2)

    def _take(self, client: V2Client) -> None:
        while not self.over.is_set():
            frame = client.frame(1.0)
            if frame is not None and frame.type == MESSAGE:
                self.got.append((time.monotonic(), frame.data[26:].rstrip(b"\0")))
                client.send(b"FIN " + frame.data[10:26] + b"\n")


class Traffic:
    """`with Traffic(cluster, "orders") as traffic:` runs it; `told` says what came of it."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        channel: str = "work",
        publisher: type[Publisher] = Publisher,
    ) -> None:
        self.publishers = [publisher(node, topic) for node in cluster.nodes]
        self.consumers = [Consumer(node, topic, channel) for node in cluster.nodes]

    def __enter__(self) -> Traffic:
        for consumer in self.consumers:
            consumer.start()
        time.sleep(1.0)
        for publisher in self.publishers:
            publisher.start()
        time.sleep(1.5)
        return self

    def __exit__(self, *_: object) -> None:
        until_s = time.monotonic() + 20
        while sum(len(one.acked) for one in self.publishers) < 100 and time.monotonic() < until_s:
            time.sleep(0.1)  # a loaded machine: the story was short
        for publisher in self.publishers:
            publisher.over.set()
        for publisher in self.publishers:
            publisher.join(30)
        while self._newest() > time.monotonic() - (1.0 if self._has_all() else QUIET_S):
            time.sleep(0.2)
        for consumer in self.consumers:
            consumer.over.set()
        for consumer in self.consumers:
            consumer.join(30)

    def _has_all(self) -> bool:
        got = {body for one in self.consumers for _, body in one.got}
        return all(got.issuperset(one.acked) for one in self.publishers)

    def _newest(self) -> float:
        return max((consumer.got[-1][0] for consumer in self.consumers if consumer.got), default=0)

    def report(self, corrupt: Node | None = None) -> Report:
        """`corrupt`: the node whose own publisher has to wait for it."""
        got = [body for one in self.consumers for _, body in one.got]
        counts = Counter(got)
        acked = [body for one in self.publishers for body in one.acked]
        refused = [body for one in self.publishers for body in one.refused]
        return Report(
            len(acked),
            [body for body in acked if body not in counts],
            [body for body in refused if body in counts],
            len(got) - len(counts),
            max(one.longest_s for one in self.publishers if one.node is not corrupt),
            self._out_of_order(),
        )

    def _out_of_order(self) -> list[tuple[bytes, bytes]]:
        """Pairs of one publisher that first came the other way round."""
        came = sorted(pair for one in self.consumers for pair in one.got)
        newest: dict[bytes, bytes] = {}
        seen: set[bytes] = set()
        broken = []
        for _, body in came:
            who = body[:2]
            if body not in seen and newest.get(who, b"") > body:
                broken.append((newest[who], body))
            seen.add(body)
            newest[who] = max(newest.get(who, b""), body)
        return broken
