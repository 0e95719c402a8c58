"""Durability `os`: how often the logs of one topic are synced, and whose turn it is."""

from collections.abc import Callable

import pytest

from penstock import limits
from penstock.broker.ports import Syncs
from penstock.broker.topics.topic import Topic
from sim.threads import Threads

from ..world import Outcome, Start, World

PARTITIONS = 3


@pytest.fixture
def world(start: Start) -> World:
    return start(durability="os", sync_every_count=2)


def made(world: World, name: str = "t") -> Topic:
    return world.broker.topic(name, partitions=PARTITIONS)


def publish(world: World, topic: Topic, partition: int, count: int) -> None:
    outcome = Outcome()
    topic.publish([b"x"] * count, 0, outcome, partition)
    world.turns()
    assert outcome.stored


def unsynced(topic: Topic) -> list[int]:
    logs = [leader.log for leader in topic.leaders]
    return [log.written_end - log.synced_end for log in logs]


def pause(world: World) -> None:
    """Without the second's housekeeping, which syncs by time."""
    world.clock.pass_ns(limits.SYNC_PAUSE_NS)


def test_the_partition_with_most_unsynced_bytes_syncs_first(world: World) -> None:
    topic = made(world)
    for partition, count in enumerate((2, 2, 5)):
        publish(world, topic, partition, count)
    for partition, left in ((0, [2, 2, 0]), (1, [2, 0, 0]), (2, [0, 0, 2])):
        pause(world)
        publish(world, topic, partition, 2)
        assert unsynced(topic) == left


def test_a_sync_that_takes_long_holds_up_no_other_partition(world: World) -> None:
    topic = made(world)
    world.threads.held = True
    publish(world, topic, 0, 5)
    pause(world)
    publish(world, topic, 1, 2)
    assert [leader.group.busy for leader in topic.leaders] == [True, True, False]
    world.release()
    assert unsynced(topic) == [0, 0, 0]


class Work:
    def run(self) -> None:
        """It succeeds."""


@pytest.mark.timeout(10)
def test_a_wait_lets_other_partitions_answer() -> None:
    threads = Threads()
    threads.held = True
    syncs = Syncs(threads)
    busy = {"mine": True, "other": True}
    syncs.submit(Work(), lambda error: busy.update(other=False))
    syncs.submit(Work(), lambda error: busy.update(mine=False))
    syncs.wait_for(lambda: busy["mine"])
    assert busy == {"mine": False, "other": False}


def test_deferrable_syncs_begin_when_fewer_jobs_run() -> None:
    threads = Threads()
    syncs = Syncs(threads)
    begun: list[int] = []

    def begins(number: int) -> Callable[[], None]:
        def begin() -> None:
            begun.append(number)
            syncs.submit(Work(), lambda error: None)

        return begin

    most = limits.SYNCS_UNAWAITED_MAX
    asked = [begins(number) for number in range(most + 3)]
    for begin in asked:
        syncs.when_free(begin)
    syncs.when_free(asked[-1])  # a second time: it begins once
    assert begun == list(range(most))
    syncs.forget(asked[most])
    syncs.settle()
    assert sorted(begun) == [*range(most), most + 1, most + 2]
