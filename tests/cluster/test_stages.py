"""Stages of a cluster's topics: on every member's disk before they are answered, and wherever the
partition is led next."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock import kernel
from penstock.broker.commits.apps import NOBODY, Owner, Ref
from penstock.broker.commits.stages import Block
from penstock.errors import (
    ChangeUnknown,
    PenstockError,
    StageExists,
)
from penstock.kernel import encode_batch
from penstock.log.names import hosted_stage_number
from sim.brokers.cluster import JoinedCluster
from sim.brokers.node import JoinedNode

TOPIC = "orders"
REF = Ref(TOPIC, "one")


@pytest.fixture
def cluster() -> Iterator[JoinedCluster]:
    made = JoinedCluster(kernel)
    made.make(TOPIC, durability="disk")
    made.led_by(TOPIC)
    made.until(lambda: made.is_whole(TOPIC))
    yield made
    made.close()


def block(name: str = "one", said: bytes = b"m", size: int = 10, owner: Owner = NOBODY) -> Block:
    body = said * size
    return Block(name, encode_batch([body], 0, 0, 0), 1, owner)


class Put:
    def __init__(self, node: JoinedNode, one: Block) -> None:
        self.answers: list[PenstockError | None] = []
        topic = node.broker.topics[TOPIC]
        node.broker.commits.stages.put(topic, one, self.answers.append)


def put(cluster: JoinedCluster, one: Block) -> PenstockError | None:
    asked = Put(cluster.led_by(TOPIC), one)
    cluster.until(lambda: asked.answers)
    (answer,) = asked.answers
    return answer


def files(node: JoinedNode) -> dict[int, bytes]:
    """Of stages, on the node's disk."""
    topic = node.broker.topics.get(TOPIC)
    found: dict[int, bytes] = {}
    path = topic.replicas[0].path if topic is not None else ""
    for name in node.disk.listdir(path) if path else ():
        number = hosted_stage_number(name)
        if number is not None:
            found[number] = node.disk.content(f"{path}/{name}")
    return found


def known(node: JoinedNode) -> list[Ref]:
    """Those that can be committed there."""
    return list(node.broker.commits.stages._found)


@pytest.mark.parametrize("size", [10, 700_000])  # one frame, and several pieces
def test_every_member_has_it_before_it_is_answered(cluster: JoinedCluster, size: int) -> None:
    assert put(cluster, block(size=size)) is None
    have = [files(node) for node in cluster.nodes]
    assert len(have[0]) == 1
    assert have[0] == have[1] == have[2]
    leader = cluster.led_by(TOPIC)
    assert [known(node) for node in cluster.nodes if node is not leader] == [[], []]
    assert known(leader) == [REF]


def test_the_next_leader_has_it(cluster: JoinedCluster) -> None:
    assert put(cluster, block()) is None
    before = cluster.led_by(TOPIC)
    cluster.kill(before.number, power=True)
    cluster.until(lambda: cluster.leader(TOPIC) not in (None, before))
    leader = cluster.led_by(TOPIC)
    assert known(leader) == [REF]
    assert put(cluster, block()) is None  # the same again
    assert isinstance(put(cluster, block(said=b"x")), StageExists)
    cluster.start(before.number)
    cluster.until(lambda: cluster.is_whole(TOPIC))
    assert files(cluster.nodes[before.number]) == files(leader)


def test_an_empty_disk_gets_all_of_them(cluster: JoinedCluster) -> None:
    for name in ("one", "two", "three"):
        assert put(cluster, block(name)) is None
    leader = cluster.led_by(TOPIC).number
    lost = (leader + 1) % 3
    cluster.kill(lost)
    cluster.wipe(lost)
    cluster.until(lambda: cluster.is_whole(TOPIC) and len(files(cluster.nodes[lost])) == 3, 120)


def test_one_that_is_given_up_goes_everywhere(cluster: JoinedCluster) -> None:
    assert put(cluster, block()) is None
    leader = cluster.led_by(TOPIC)
    assert leader.broker.commits.stages.abort([REF]) == 1
    cluster.until(lambda: not any(files(node) for node in cluster.nodes))
    cluster.kill(leader.number)
    cluster.until(lambda: cluster.leader(TOPIC) not in (None, leader))
    assert known(cluster.led_by(TOPIC)) == []
    assert put(cluster, block(said=b"other")) is None  # its name is free


def test_what_no_leader_answered_does_not_stay(cluster: JoinedCluster) -> None:
    """The leader is cut off with a stage that it has and cannot send."""
    first = cluster.led_by(TOPIC)
    cluster.cut_off(first.number)
    asked = Put(first, block())
    cluster.until(lambda: cluster.leader(TOPIC) not in (None, first))
    cluster.heal()
    cluster.until(lambda: asked.answers)
    assert isinstance(asked.answers[0], ChangeUnknown)
    cluster.until(lambda: cluster.is_whole(TOPIC))
    cluster.until(lambda: not any(files(node) for node in cluster.nodes))
    assert put(cluster, block()) is None
    assert [len(files(node)) for node in cluster.nodes] == [1, 1, 1]


def path_of(node: JoinedNode) -> str:
    ((number, _),) = files(node).items()
    return f"{node.broker.topics[TOPIC].replicas[0].path}/{number:016x}.stage"


def test_a_file_that_rots_comes_from_another_replica(cluster: JoinedCluster) -> None:
    """A learner asks the leader for it, which finds that its own is corrupt."""
    leader = cluster.led_by(TOPIC)
    assert put(cluster, block()) is None
    sound = files(leader)
    leader.disk.flip(path_of(leader), len(next(iter(sound.values()))) - 1, 2)
    lost = (leader.number + 1) % 3
    cluster.kill(lost)
    cluster.wipe(lost)
    cluster.until(lambda: cluster.is_whole(TOPIC) and files(cluster.nodes[lost]) == sound, 120)
    assert files(leader) == sound
    assert known(leader) == [REF]


def test_one_that_all_members_lack_is_given_up(cluster: JoinedCluster) -> None:
    assert put(cluster, block()) is None
    for node in cluster.nodes:
        path = path_of(node)
        cluster.kill(node.number)
        node.disk.unlink(path)
    for number in range(3):
        cluster.start(number)
    cluster.until(lambda: cluster.leader(TOPIC) is not None)
    cluster.until(lambda: cluster.is_whole(TOPIC), 120)
    cluster.publish(TOPIC, b"goes on")
    assert put(cluster, block()) is None
