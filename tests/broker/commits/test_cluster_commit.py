"""A commit into a topic of a cluster: numbered batches, sent until each partition has them."""

from collections.abc import Callable
from typing import Any
from unittest.mock import MagicMock

import pytest

from penstock import limits
from penstock.broker.commits.apps import Ref
from penstock.broker.commits.cluster_commit import producer_of
from penstock.broker.replicas.forwarding import ForwardAnswer
from penstock.errors import CommitUnfinished, Refused
from penstock.kernel import decode_bodies, decode_header
from penstock.replication.side_frames import Ending

from ..staging import REPEATED, Answers, block, commit, done, put, settle
from ..world import World


class Leaders:
    """In place of `Forwarding`: each batch is answered as the next of `endings` says, or stored."""

    def __init__(self) -> None:
        self.endings: list[Ending] = []
        self.led = True
        self.batches: list[bytes] = []

    def leader_of(self, topic: str, partition: int) -> object | None:
        return object() if self.led else None

    def send(self, led: object, batch: bytes, done: Callable[[ForwardAnswer], None]) -> None:
        self.batches.append(batch)
        ending = self.endings.pop(0) if self.endings else Ending.STORED
        done(ForwardAnswer(ending, reason="so it is"))

    @property
    def numbers(self) -> list[tuple[int, int]]:
        headers = [decode_header(one, 0) for one in self.batches]
        return [(one.first_sequence, one.count) for one in headers]


@pytest.fixture
def leaders() -> Leaders:
    return Leaders()


@pytest.fixture
def world(start: Callable[..., World], leaders: Leaders) -> Any:
    """Topic t is of a cluster, with blocks x and y staged: five messages and two."""
    found = start()
    topic = found.broker.topic("t")
    host = MagicMock(forwarding=leaders, metadata=None, **{"remote_topic.return_value": None})
    found.broker.context.replica_host, topic.replicated = host, True
    put(found, "t", block("x", *(b"%d" % n for n in range(5))))
    put(found, "t", block("y", b"five", b"six"))
    yield found
    found.broker.context.replica_host, topic.replicated = None, False


def test_batches_are_numbered_in_the_order_of_the_stages(world: World, leaders: Leaders) -> None:
    assert commit(world, "app", 7, ("t", "x"), ("t", "y")).answers == done(7)
    assert leaders.numbers == [(0, 2), (2, 2), (4, 1), (5, 2)]
    header = decode_header(leaders.batches[0], 0)
    assert (header.producer_id, header.producer_epoch) == producer_of("app", 7)
    assert decode_bodies(leaders.batches[3], 0) == [b"five", b"six"]
    assert world.broker.commits.stages.count == 0
    assert commit(world, "app", 7, ("t", "x"), ("t", "y")).answers == REPEATED


@pytest.mark.parametrize(
    ("first", "others", "left"),
    [
        (Ending.STORED, Ending.UNKNOWN, [(2, 2), (4, 1)]),
        (Ending.NOT_LED, Ending.REFUSED, [(0, 2), (2, 2), (4, 1)]),  # for want of the first
        (Ending.STORED, Ending.REFUSED, [(2, 2), (4, 1)]),  # for want of room
    ],
)
def test_batches_that_were_not_stored_are_sent_again(
    world: World, leaders: Leaders, first: Ending, others: Ending, left: list[tuple[int, int]]
) -> None:
    leaders.endings = [first, others, others]
    answers = Answers()
    world.broker.commits.commit("app", 1, [Ref("t", "x")], answers)
    while not answers.answers:
        world.pass_ns(limits.SECOND)
    assert answers.answers == done(5)
    assert leaders.numbers == [(0, 2), (2, 2), (4, 1), *left]


def test_a_refusal_keeps_the_stages(world: World, leaders: Leaders) -> None:
    leaders.endings = [Ending.REFUSED]
    error = commit(world, "app", 1, ("t", "x")).error
    assert isinstance(error, Refused)
    assert "t/0: so it is" in str(error)
    assert commit(world, "app", 1, ("t", "x")).answers == done(5)


def test_a_partition_without_a_leader_is_waited_for(world: World, leaders: Leaders) -> None:
    leaders.led = False
    answers = Answers()
    world.broker.commits.commit("app", 1, [Ref("t", "x")], answers)
    world.pass_seconds(limits.COMMIT_LEADER_NS // limits.SECOND + 2)
    assert isinstance(answers.error, CommitUnfinished)
    leaders.led = True
    assert commit(world, "app", 1, ("t", "x")).answers == done(5)


def test_a_stop_waits_for_no_leader(world: World, leaders: Leaders) -> None:
    leaders.led = False
    answers = Answers()
    world.broker.commits.commit("app", 1, [Ref("t", "x")], answers)
    world.pass_ns(limits.SECOND)
    world.broker.commits.close()
    assert isinstance(answers.error, CommitUnfinished)


def test_topics_of_the_node_alone_are_committed_apart(world: World) -> None:
    put(world, "own", block("z", b"a"))
    error = commit(world, "app", 1, ("t", "x"), ("own", "z")).error
    assert isinstance(error, Refused)
    settle(world)


def test_versions_have_epochs_of_their_own() -> None:
    found = {producer_of("app", version) for version in (0, 1, 65_535, 65_536, 65_537)}
    assert len(found) == 5
    assert producer_of("app", 65_536)[0] != producer_of("app", 0)[0]
    assert producer_of("app", 65_537)[1] == 1
