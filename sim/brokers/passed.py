"""I20: a cursor never passes an unfinished message.

A channel's window counts the messages below its cursor that it keeps aside. The clients know which
of them they have finished. So of what the log has below the cursor, no more may be unfinished for
the clients than the window has aside; it may have more, as a FIN can be lost with its leader.

Leaders are looked at only: who takes over leads by what the set's journals had. Channels that
clients make are left out, as what was there before is passed unfinished.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from penstock.broker.topics.topic import Topic
from penstock.kernel import Window
from sim.brokers.node import JoinedNode
from sim.brokers.observer import Feed, Observer
from sim.brokers.topics import PLANS
from sim.histories import Breach


class Passed(NamedTuple):
    """What cursors of a feed have passed in one partition, on any node."""

    end_offset: int = 0  # it has been read below
    unfinished: tuple[tuple[int, bytes], ...] = ()


class Cursors:
    def __init__(self, observer: Observer, incarnation_of: Callable[[Topic], int | None]) -> None:
        self._observer = observer
        self._incarnation_of = incarnation_of
        self._passed: dict[tuple[Feed, int], Passed] = {}

    def check(self, nodes: list[JoinedNode]) -> None:
        for node in nodes:
            for feed, topic in self._feeds(node):
                for partition, window in topic.channels[feed.channel].windows.items():
                    self._check(node, feed, topic, partition, window)

    def _feeds(self, node: JoinedNode) -> Iterator[tuple[Feed, Topic]]:
        for plan in PLANS:
            topic = node.broker.topics.get(plan.name)
            incarnation = self._incarnation_of(topic) if topic is not None else None
            if topic is None or incarnation is None:
                continue
            for channel in plan.channels:
                if channel in topic.channels:
                    yield Feed(plan.name, incarnation, channel), topic

    def _check(
        self, node: JoinedNode, feed: Feed, topic: Topic, partition: int, window: Window
    ) -> None:
        end, unfinished = self._passed.get((feed, partition), Passed())
        low = window.low
        if low > end:
            unfinished += tuple(_bodies(node, topic, partition, end, low))
            end = low
        finished = self._observer.seen(feed).finished
        unfinished = tuple(one for one in unfinished if one[1] not in finished)
        self._passed[feed, partition] = Passed(end, unfinished)
        passed = [body for offset, body in unfinished if offset < low]
        aside = window.unfinished_below(low) + window.unparked
        if len(passed) > aside:
            where = f"{feed.channel} in {feed.topic}:{partition} on node {node.number}"
            raise Breach("I20", f"{where} passes {passed[:3]!r}, and has {aside} aside")


def _bodies(
    node: JoinedNode, topic: Topic, partition: int, start: int, end: int
) -> Iterator[tuple[int, bytes]]:
    for header, data in topic.replicas[partition].log.batches(start):
        if header.base_offset >= end:
            return
        bodies = node.kernel.decode_bodies(data, 0)
        for offset, body in enumerate(bodies, header.base_offset):
            if start <= offset < end:
                yield offset, bytes(body)
