"""Producers that number their messages: each repeats a publish, at any node, until it is stored.

One publish of a producer is on its way at a time, though an earlier attempt may be as well: a node
that has not answered for a while is given up, and its answer counts when it comes. A gap, or a
newer epoch of the same producer, is never true here, so no node may say so.
"""

import random
from collections.abc import Callable
from functools import partial

from penstock.broker.partition.appends import Stored
from penstock.broker.partition.idempotent import Stamp
from penstock.errors import PenstockError, ProducerFenced, Refused, SequenceGap, StorageError
from penstock.limits import SECOND
from sim.brokers.node import JoinedNode
from sim.brokers.observer import Publish
from sim.histories import Breach

PATIENCE_NS = 3 * SECOND
BEGUN_SHARE = 0.3  # of the turns in which nothing is on its way


class Producer:
    def __init__(self, number: int, begin: Callable[[], Publish | None]) -> None:
        self.number = number
        self.publish: Publish | None = None
        self.stored = 0
        self._begin = begin  # None: nothing more is published
        self._asked: tuple[int, int] | None = None  # the incarnation of the process, and when

    def turn(self, nodes: list[JoinedNode], now_ns: int, dice: random.Random) -> None:
        if self.publish is None and dice.random() < BEGUN_SHARE:
            self.publish = self._begin()
        if self.publish is None or not nodes:
            return
        if self._asked is not None and now_ns - self._asked[1] < PATIENCE_NS:
            return
        node = dice.choice(nodes)
        self._asked = node.incarnation, now_ns
        self._ask(node, self.publish)

    def note_ended(self, incarnation: int) -> None:
        if self._asked is not None and self._asked[0] == incarnation:
            self._asked = None

    def _ask(self, node: JoinedNode, publish: Publish) -> None:
        topic = node.broker.topics.get(publish.topic)
        if topic is None:
            self._asked = None
            return
        stamp = Stamp(self.number, 1, self.stored)
        try:
            topic.publish_stamped(
                stamp, list(publish.bodies), 0, partial(self._answered, publish, node.incarnation)
            )
        except (Refused, StorageError) as error:
            self._answered(publish, node.incarnation, error, None)

    def _answered(
        self, publish: Publish, incarnation: int, error: PenstockError | None, where: Stored | None
    ) -> None:
        if publish is not self.publish:
            return  # of an attempt that was given up: another one has stored it
        if isinstance(error, SequenceGap | ProducerFenced):
            raise Breach("I30", f"producer {self.number} was told of {error}")
        if error is None:
            publish.done(None)
            self.stored += len(publish.bodies)
            self.publish = self._asked = None
        elif self._asked is not None and self._asked[0] == incarnation:
            self._asked = None
