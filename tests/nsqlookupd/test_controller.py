"""The controller as an nsqlookupd runs it: who holds the key, and what it writes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from penstock.cluster import keys
from penstock.cluster.documents import (
    ACTIVE,
    DRAINING,
    MEMBERSHIP,
    RECORD,
    TOPIC,
    Membership,
    Topic,
)
from penstock.errors import FetchFailed
from penstock.limits import CONTROLLER_SETTLE_NS, NODE_REPLACE_NS, NODE_STEADY_NS
from penstock.net.fetch import Fetched
from penstock.replica.record import Member, Record, Seat

from .test_cluster import LIFE, Desk
from .world import S

SETTLED_S = CONTROLLER_SETTLE_NS / S + 2
STEADY_S = NODE_STEADY_NS / S + 2
REPLACED_S = NODE_REPLACE_NS / S + 2


class Place(Desk):
    """With memberships of its nodes, and `/ping` answered by those of them that answer."""

    def __init__(self, *nodes: int) -> None:
        super().__init__()
        for number in nodes:
            self.put_node(number)
            self.put_member(number)
        self.answering = set[int]()
        self.nsqds.request = self._answer  # type: ignore[method-assign]

    def put_member(self, number: int, state: str = ACTIVE) -> None:
        entry = Membership(number, 1, "", 0, LIFE, 0, state)
        self.put(keys.member(number), MEMBERSHIP.encode(entry))

    def put_partition(self, *nodes: int, replicas: int = 3) -> None:
        topic = Topic(5, replicas, 1, False, (), False, ())
        self.put(keys.topic("t"), TOPIC.encode(topic))
        members = tuple(Member(node, node, 1) for node in nodes)
        leader = Seat(nodes[0], LIFE, nodes[0])
        least = min((replicas + 1) // 2, len(nodes))
        record = Record(5, 1, leader, members, least, nodes)
        self.put(keys.partition("t", 0), RECORD.encode(record))

    @property
    def record(self) -> Record:
        return RECORD.decode("", self.store.entries[keys.partition("t", 0)].value)

    async def _answer(self, method: str, url: str, headers: Mapping[str, str] = {}) -> Fetched:
        assert url.endswith("/ping")
        if int(url.removeprefix("http://h")[0]) not in self.answering:
            raise FetchFailed(url, "no answer")
        return Fetched(200, b"OK", {})


def test_one_of_them_acts_and_another_when_it_is_gone() -> None:
    one = Desk()
    other = Desk(one.store, "l2")
    for _ in range(round(SETTLED_S)):
        one.run(1)
        other.run(1)
    acts = one.cluster.controller.acts
    assert acts is not other.cluster.controller.acts
    left = other if acts else one
    left.run(2 * SETTLED_S)  # the lease of the one that acts runs out
    assert left.cluster.controller.acts


def test_a_topic_gets_the_replicas_that_it_was_made_without() -> None:
    place = Place(1, 2, 3)
    place.put_partition(1, 2)
    place.run(STEADY_S + SETTLED_S)
    assert set(place.record.wanted) == {1, 2, 3}
    assert place.record.members_min == 2


@pytest.mark.parametrize(("answers", "stays"), [(True, True), (False, False)])
def test_a_node_is_replaced_when_it_is_gone_for_good(answers: bool, stays: bool) -> None:
    place = Place(1, 2, 3, 4)
    place.put_partition(1, 2, 3)
    place.run(STEADY_S + SETTLED_S)
    place.answering = {3} if answers else set()
    place.delete(keys.node(3))
    place.run(REPLACED_S + SETTLED_S)
    assert (3 in place.record.wanted[:3]) is stays
    assert (4 in place.record.wanted) is not stays


def test_a_node_that_is_drained_gives_up_its_replicas_once_others_are_made() -> None:
    place = Place(1, 2, 3, 4)
    place.put_partition(1, 2, 3)
    place.run(STEADY_S + SETTLED_S)
    place.put_member(3, DRAINING)
    place.run(3)
    assert set(place.record.wanted) == {1, 2, 3, 4}  # until node 4 has all of it
    added = (*place.record.members, Member(4, 4, 1))
    place.put(keys.partition("t", 0), RECORD.encode(place.record._replace(members=added)))
    place.run(3)
    assert set(place.record.wanted) == {1, 2, 4}
