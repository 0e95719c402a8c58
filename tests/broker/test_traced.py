"""Publishes with trace ids: what is stored, and where their publishers are sent."""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.traced import Stored, Traced
from penstock.errors import PenstockError, WriteRefused
from penstock.kernel import Section

from .faults import FaultyDisk
from .world import World

Start = Callable[..., World]


def publish(world: World, *messages: Traced) -> list[PenstockError | Stored]:
    told: list[PenstockError | Stored] = []
    world.broker.topic("t").publish_traced(messages, 0, told.append)
    return told


def test_each_publish_hears_where_its_own_first_message_is(start: Start) -> None:
    world = start()
    world.publish("t", b"before")
    first = publish(world, Traced(7, b"a"), Traced(0, b"b"))
    second = publish(world, Traced(9, b"c"))
    world.turns()
    log = world.broker.find_topic("t").leader().log
    assert [log.message(n).body for n in range(1, 4)] == [b"a", b"b", b"c"]
    assert [log.message(n).sections.get(Section.TRACE) for n in range(1, 4)] == [7, None, 9]
    assert (first, second) == (
        [Stored(1, log.message(1).id)],
        [Stored(3, log.message(3).id)],
    )


def test_a_publish_that_could_not_be_stored_hears_why(start: Start) -> None:
    disk = FaultyDisk()
    world = start(disk=disk)
    world.broker.topic("t")
    disk.fail.add(("write", ".log"))
    told = publish(world, Traced(7, b"a"))
    world.turns()
    assert [type(outcome) for outcome in told] == [WriteRefused]


def test_what_is_stored_of_a_message() -> None:
    assert Traced(0, b"abc").stored_bytes == 4 + 3
    assert Traced(1, b"abc").stored_bytes == 4 + 3 + 12
